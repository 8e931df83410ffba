"""The effects of certificate approval: read, judge, claim, decide, clean up.

A client certificate is claimed in the Server's status before it is approved, under the resourceVersion that was judged:
of two requests with one token one wins, and an approver that dies in between finishes its own claim later.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Final

import structlog

from provisioner.api.machinery.codec import to_json
from provisioner.api.machinery.conditions import condition_of
from provisioner.api.machinery.errors import Forbidden, NotFound, Refused
from provisioner.api.machinery.meta import rfc3339
from provisioner.api.machinery.rules import LABEL_PATTERN
from provisioner.api.servers.server import JoinStatus, Server
from provisioner.cluster.client import Cluster
from provisioner.cluster.events import Events
from provisioner.cluster.own_writes import BEHIND_SECONDS, FreshReader, OwnWrites
from provisioner.cluster.resources import CSRS, NODES, SECRETS, ResourceType, of, regarding
from provisioner.cluster.source import Source
from provisioner.join.certificates.approve import (
    CLIENT_SIGNER,
    SERVING_SIGNER,
    ApproveBootstrap,
    ApproveRenewal,
    CertificateFacts,
    Deny,
    Ignore,
    asked_names,
    is_ours,
    judge,
    requesting_node,
    was_ours,
)
from provisioner.join.certificates.request import (
    CertificateRequest,
    is_decided,
    is_whole,
    issued_credential,
    read_request,
)
from provisioner.join.tokens.mint import TOKEN_NAMESPACE, token_id_of_user, token_secret_name

log = structlog.get_logger()

APPROVER_MANAGER: Final = "provisioner-approver"
_SERVER_NAME: Final = re.compile(LABEL_PATTERN)
"""What is asked for is anybody's text; only what may name a Server is looked up."""
MAX_MESSAGE_LENGTH: Final = 1024
"""What is denied may have been made to be long."""


def concerns_us(csr: Mapping[str, Any]) -> bool:
    """Whether a request is worth a look: of a kubelet signer."""
    return (csr.get("spec") or {}).get("signerName") in (CLIENT_SIGNER, SERVING_SIGNER)


@dataclass(frozen=True, kw_only=True)
class Approver:
    """Reconciles one CertificateSigningRequest after the other."""

    cluster: Cluster
    recorder: Events
    now: Callable[[], datetime]
    sources: Mapping[ResourceType, Source] = field(default_factory=dict)
    """Caches of what may be of a moment ago; without one, the API server is asked."""

    @cached_property
    def reader(self) -> FreshReader:
        return FreshReader(self.cluster, self.sources, OwnWrites(self.now))

    def reconcile(self, name: str) -> float | None:
        """Decide a pending request; record what was issued on an approved one. Raises: Conflict, Retryable."""
        csr = self.reader.get(CSRS, name)
        if csr is not None and not is_decided(csr) and not is_whole(csr):
            csr = self.cluster.find(CSRS, name)  # larger than any kubelet's: not kept, and decided all the same
        if csr is None or not concerns_us(csr):
            return None
        request = read_request(csr)
        # A Server that the cache does not have is not one that it will show: it was deleted, or never was.
        servers = (asked for asked in asked_names(request) if self._server(asked) is not None)
        if not all(self.reader.shows_own_writes(group) for group in (name, *servers)):
            return BEHIND_SECONDS
        self._reconcile(request, csr)
        return None

    def _reconcile(self, request: CertificateRequest, csr: dict[str, Any]) -> None:
        if is_decided(csr):
            self._take_note(request, csr)
            return
        server = self._asked_server(request, fresh=True)  # an approval cannot be taken back
        node = requesting_node(request)
        requesting = server if server is not None and server.name == node else self._server(node)
        facts = CertificateFacts(
            server=server,
            requesting_server=requesting is not None and self._is_ours(requesting),
            former_server=requesting is None and node is not None and self._was_ours(node),
            token_exists=self._delete_token(request, dry_run=True),
            credentials=self._credentials(server, request),
        )
        verdict = judge(request, facts)
        if isinstance(verdict, Ignore):
            return
        if isinstance(verdict, Deny):
            self._deny(csr, request, verdict, facts)
            return
        if server is None:
            raise ValueError(f"approved {request.name} without a server")
        if isinstance(verdict, ApproveBootstrap):
            self._claim(server, request, credentials=())
        elif isinstance(verdict, ApproveRenewal):
            self._claim(server, request, credentials=(verdict.credential,))
        self._approve(csr, request, server)

    def _claim(self, server: Server, request: CertificateRequest, credentials: tuple[str, ...]) -> None:
        """Spend the token (or name the renewal) on this request before it is approved. Raises: Conflict."""
        join = server.status.join or JoinStatus()
        now = rfc3339(self.now())
        self._apply_join(
            server,
            JoinStatus(
                certificate_time=now,
                certificate_token_id=join.token_id,
                certificate_request_name=request.name,
                credentials=credentials,
            ),
        )

    def _take_note(self, request: CertificateRequest, csr: Mapping[str, Any]) -> None:
        """After the certificate was issued: delete the token, then record the credential: it says that this is done."""
        if request.signer != CLIENT_SIGNER:
            return
        server = self._asked_server(request)
        join = server.status.join if server else None
        if server is None or join is None or join.certificate_request_name != request.name:
            return
        if join.certificate_token_id != join.token_id:
            return  # the server has been handed another token since: this certificate is of an older boot
        credential = issued_credential(csr)
        if credential is not None and credential not in join.credentials:
            if token_id_of_user(request.username) == join.token_id:
                self._delete_spent(request)
            self._apply_join(
                server,
                JoinStatus(
                    certificate_time=join.certificate_time,
                    certificate_token_id=join.certificate_token_id,
                    certificate_request_name=join.certificate_request_name,
                    credentials=(*join.credentials, credential)[-2:],
                ),
            )

    def _apply_join(self, server: Server, join: JoinStatus) -> None:
        words = f"the kubelet's certificate was approved at {join.certificate_time}"
        condition = condition_of(server, "Joined", True, "CertificateApproved", words, self.now())
        with self.reader.written_on(server):
            written = self.cluster.apply_status(
                Server,
                server.name,
                {
                    "join": to_json(join),
                    "conditions": [to_json(condition)],
                },
                manager=APPROVER_MANAGER,
                resource_version=server.metadata.resource_version,
            )
        self.reader.note(server.name, of(Server), written)

    def _approve(self, csr: dict[str, Any], request: CertificateRequest, server: Server) -> None:
        kind = "serving" if request.signer == SERVING_SIGNER else "client"
        message = f"server {server.name}, boot order {(server.status.join or JoinStatus()).order_id}"
        self._decide(csr, "Approved", "ProvisionerApproved", message)
        log.info("certificate approved", csr=request.name, server=server.name, kind=kind, username=request.username)

    def _deny(self, csr: dict[str, Any], request: CertificateRequest, verdict: Deny, facts: CertificateFacts) -> None:
        self._decide(csr, "Denied", verdict.reason, verdict.message[:MAX_MESSAGE_LENGTH])
        log.warning(
            "certificate denied",
            csr=request.name,
            username=request.username,
            signer=request.signer,
            reason=verdict.reason,
            message=verdict.message,
        )
        # Without the request's name: a flood of forged requests is one Event that counts.
        words = f"{verdict.reason}: {verdict.message}"
        self.recorder.record(csr, "Warning", "CertificateDenied", words)
        if facts.server is not None:
            self.recorder.record(regarding(facts.server), "Warning", "CertificateDenied", words)

    def _decide(self, csr: dict[str, Any], type_: str, reason: str, message: str) -> None:
        now = rfc3339(self.now())
        condition = {
            "type": type_,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastUpdateTime": now,
            "lastTransitionTime": now,
        }
        decided = {**csr, "status": {**(csr.get("status") or {}), "conditions": [condition]}}
        written = self.cluster.replace(CSRS, decided, subresource="approval")
        self.reader.note(csr["metadata"]["name"], CSRS, written)

    def _asked_server(self, request: CertificateRequest, *, fresh: bool = False) -> Server | None:
        """The Server whose name is asked for. Of several names, which no kubelet asks for, the first that is one's."""
        names = asked_names(request)
        if len(names) > 1:
            names = tuple(name for name in names if self._server(name) is not None)
        return self._server(names[0], fresh=fresh) if names else None

    def _server(self, name: str | None, *, fresh: bool = False) -> Server | None:
        if name is None or not _SERVER_NAME.fullmatch(name):
            return None
        if fresh:
            try:
                return self.cluster.read(Server, name)
            except NotFound:
                return None
        return self.reader.read(Server, name)

    def _is_ours(self, server: Server) -> bool:
        return is_ours(server, None) or is_ours(server, self.reader.get(NODES, server.name))

    def _was_ours(self, node: str) -> bool:
        """Of a Node without a Server in the cache; whether there is none, the API server is asked as well."""
        if not _SERVER_NAME.fullmatch(node) or not was_ours(self.reader.get(NODES, node)):
            return False
        return self._server(node, fresh=True) is None

    def _delete_token(self, request: CertificateRequest, *, dry_run: bool = False) -> bool:
        """Delete the Secret of the token that asks; whether it was there. A policy keeps us to tokens of our own.

        With `dry_run` nothing is deleted: it tells that the token is there without the right to read Secrets, which
        RBAC can only give for all of the namespace.
        Raises: Forbidden, where the right itself is missing, which says nothing of the token.
        """
        token_id = token_id_of_user(request.username)
        if token_id is None:
            return False
        try:
            return self.cluster.delete(SECRETS, token_secret_name(token_id), namespace=TOKEN_NAMESPACE, dry_run=dry_run)
        except Forbidden:
            raise
        except Refused as refused:
            log.warning("token is not ours to delete", csr=request.name, token_id=token_id, error=str(refused))
            return False

    def _delete_spent(self, request: CertificateRequest) -> None:
        """Where that is forbidden the certificate counts all the same: nothing more is approved on the token."""
        try:
            self._delete_token(request)
        except Forbidden as error:
            log.warning("spent token was not deleted", csr=request.name, error=str(error))

    def _credentials(self, server: Server | None, request: CertificateRequest) -> tuple[str, ...]:
        """Ids of the client certificates of the server's current boot, freshly issued ones included."""
        join = server.status.join if server else None
        if join is None or join.token_id is None or join.certificate_token_id != join.token_id:
            return ()
        if request.credential is None or request.credential in join.credentials or not join.certificate_request_name:
            return join.credentials
        # A kubelet asks for its serving certificate as soon as it has the other, which may be before we noted that.
        found = self.reader.get(CSRS, join.certificate_request_name)
        issued = issued_credential(found) if found is not None else None
        return (*join.credentials, issued) if issued else join.credentials
