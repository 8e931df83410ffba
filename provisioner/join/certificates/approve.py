"""Which certificate signing requests are approved. Pure: request and facts in, verdict out.

Ours to judge is a request for one of the two kubelet signers that comes from one of our bootstrap tokens or from a Node
of ours, also when its Server was deleted since, or that asks for the name of one of our Servers, whoever asks. Each of
these is decided, also when it cannot be read: what stays pending another approver may find. Left alone is every other
signer, and what others (people, a kubeadm token, a control plane's kubelet renewing its own certificate) ask for names
that are not ours, also when a Server was registered under the name of their Node: leaving alone grants nothing.

    requester             signer    approved when
    our bootstrap token   client    the token is the one handed out for exactly the Server whose name is asked for, and
                                    no certificate was approved on it before
    Node of ours          client    it asks for its own name, with a certificate of its current boot, which goes on
    Node of ours          serving   the same, for its own name and its registered address alone
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from provisioner.api.servers.server import JoinStatus, Server
from provisioner.join.certificates.request import (
    CertificateRequest,
    CertificateSubject,
    SubjectError,
    common_names,
    read_subject,
)
from provisioner.join.nodes.node_object import SERVER_UID_ANNOTATION
from provisioner.join.tokens.mint import BOOTSTRAP_GROUP, token_id_of_user
from provisioner.rules.boot_order import is_to_end

CLIENT_SIGNER: Final = "kubernetes.io/kube-apiserver-client-kubelet"
SERVING_SIGNER: Final = "kubernetes.io/kubelet-serving"
NODE_USER_PREFIX: Final = "system:node:"
NODE_GROUP: Final = "system:nodes"
MAX_EXPIRATION_SECONDS: Final = 86_400
MIN_EXPIRATION_SECONDS: Final = 600

_USAGES: Final = {
    CLIENT_SIGNER: frozenset({"digital signature", "client auth"}),
    SERVING_SIGNER: frozenset({"digital signature", "server auth"}),
}
_RSA_USAGE: Final = "key encipherment"


@dataclass(frozen=True)
class Ignore:
    """Not ours to judge."""


@dataclass(frozen=True)
class Deny:
    """Ours, and refused; written on the request with these words."""

    reason: str
    message: str


@dataclass(frozen=True)
class ApproveBootstrap:
    """The first certificate of a boot; it spends the token."""

    token_id: str


@dataclass(frozen=True)
class ApproveRenewal:
    """A further client certificate for who holds `credential`."""

    credential: str


@dataclass(frozen=True)
class ApproveServing:
    """The certificate with which the kubelet serves logs, exec and metrics."""


CertificateDecision = Ignore | Deny | ApproveBootstrap | ApproveRenewal | ApproveServing


@dataclass(frozen=True, kw_only=True)
class CertificateFacts:
    """What is known when a request is judged.

    `server`: the Server whose name is asked for. `requesting_server`: whether the asking Node was made for one of our
    Servers (see is_ours). `former_server`: whether it was made for one that was deleted (see was_ours).
    `token_exists`: whether the asking token's Secret is there, and ours. `credentials`: ids of the client certificates
    of the server's current boot.
    """

    server: Server | None
    requesting_server: bool = False
    former_server: bool = False
    token_exists: bool = False
    credentials: Collection[str] = ()


def asked_names(request: CertificateRequest) -> tuple[str, ...]:
    """The node names that are asked for: one as a rule, none or several in requests that no kubelet makes."""
    return tuple(name.removeprefix(NODE_USER_PREFIX) for name in common_names(request.pem, NODE_USER_PREFIX))


def requesting_node(request: CertificateRequest) -> str | None:
    """The Node that asks, or None if no Node does."""
    name = request.username.removeprefix(NODE_USER_PREFIX)
    return name if name != request.username and NODE_GROUP in request.groups else None


def is_ours(server: Server, node: Mapping[str, Any] | None) -> bool:
    """Whether who calls itself Node `server.name` is that Server: it was handed a token, or its Node was made for it.

    The name alone says nothing: a Server may have been registered under the name of a Node that others run.
    """
    if server.status.join is not None and server.status.join.token_id is not None:
        return True
    annotations = (node or {}).get("metadata", {}).get("annotations") or {}
    return server.metadata.uid is not None and annotations.get(SERVER_UID_ANNOTATION) == server.metadata.uid


def was_ours(node: Mapping[str, Any] | None) -> bool:
    """Whether a Node without a Server of its name was made for one. Admission keeps the mark from its kubelet."""
    return bool(((node or {}).get("metadata", {}).get("annotations") or {}).get(SERVER_UID_ANNOTATION))


def judge(request: CertificateRequest, facts: CertificateFacts) -> CertificateDecision:
    """Judge one pending request."""
    if request.signer not in _USAGES:
        return Ignore()
    with_our_token = BOOTSTRAP_GROUP in request.groups
    node = requesting_node(request)
    if not with_our_token and not facts.requesting_server:
        if facts.server is not None and node != facts.server.name:
            return Deny("NameTaken", f"{request.username} asks for the name of server {facts.server.name}")
        if facts.former_server:
            return Deny("ServerDeleted", f"Node {node} was made for a server that is not registered any more")
        return Ignore()
    try:
        subject = read_subject(request.pem)
    except SubjectError as error:
        return Deny("Malformed", str(error))
    return (
        _refuse_form(request, subject)
        or _refuse_server(subject, facts)
        or (_judge_token(request, facts) if with_our_token else _judge_node(request, subject, facts, node or ""))
    )


def _refuse_form(request: CertificateRequest, subject: CertificateSubject) -> Deny | None:
    if not subject.common_name.startswith(NODE_USER_PREFIX) or subject.organizations != (NODE_GROUP,):
        return Deny(
            "WrongSubject",
            f"subject is CN={subject.common_name!r} O={list(subject.organizations)}, not CN=system:node:<name> "
            "O=['system:nodes']",
        )
    if subject.other:
        return Deny("WrongSubject", f"the request carries {', '.join(subject.other)}, which no kubelet asks for")
    if subject.weakness:
        return Deny("WeakKey", subject.weakness)
    needed = _USAGES[request.signer]
    allowed = {needed, needed | {_RSA_USAGE}}
    if frozenset(request.usages) not in allowed or len(request.usages) != len(set(request.usages)):
        return Deny("WrongUsages", f"usages are {sorted(request.usages)}, not {sorted(needed)}")
    seconds = request.expiration_seconds
    if seconds is not None and not MIN_EXPIRATION_SECONDS <= seconds <= MAX_EXPIRATION_SECONDS:
        return Deny("WrongExpiration", f"{seconds} s of validity are asked for, at most {MAX_EXPIRATION_SECONDS}")
    if request.signer == CLIENT_SIGNER and (subject.dns_names or subject.ip_addresses):
        return Deny("WrongSubject", "a client certificate has no names or addresses beside its subject")
    return None


def _refuse_server(subject: CertificateSubject, facts: CertificateFacts) -> Deny | None:
    if facts.server is None:
        return Deny("UnknownServer", f"{subject.common_name!r} names no registered server")
    if subject.common_name != NODE_USER_PREFIX + facts.server.name:
        return Deny("UnknownServer", f"{subject.common_name!r} is not the name of server {facts.server.name}")
    if facts.server.metadata.deletion_timestamp is not None:
        return Deny("ServerDeleted", f"server {facts.server.name} is being deleted")
    if facts.server.spec.acceptance != "Accepted":
        return Deny("NotAccepted", f"server {facts.server.name} is {facts.server.spec.acceptance}")
    return None


def _judge_token(request: CertificateRequest, facts: CertificateFacts) -> CertificateDecision:
    server = _known(facts)
    token_id = token_id_of_user(request.username)
    if token_id is None:
        return Deny("UnknownRequester", f"{request.username} is in group {BOOTSTRAP_GROUP} but is no bootstrap token")
    if request.signer != CLIENT_SIGNER:
        return Deny("WrongSigner", "a bootstrap token is good for a client certificate only")
    join = server.status.join or JoinStatus()
    if join.token_id != token_id:
        return Deny("WrongToken", f"token {token_id} is not the one that was handed out for server {server.name}")
    if _is_claimed(join, token_id):
        if join.certificate_request_name == request.name:
            # We claimed it and died before we said so.
            return ApproveBootstrap(token_id)
        return Deny("TokenSpent", f"a certificate was approved on token {token_id} before")
    if not facts.token_exists:
        return Deny("WrongToken", f"the Secret of token {token_id} is gone, or is none of ours")
    return ApproveBootstrap(token_id)


def _is_claimed(join: JoinStatus, token_id: str) -> bool:
    """Whether a certificate was approved on it, or is about to be: that is written before the approval."""
    return join.certificate_token_id == token_id


def _judge_node(
    request: CertificateRequest, subject: CertificateSubject, facts: CertificateFacts, node: str
) -> CertificateDecision:
    server = _known(facts)
    if node != server.name:
        return Deny("NotItsOwnName", f"Node {node} asks for the name of server {server.name}")
    if request.credential is None:
        return Deny(
            "UnknownCertificate", "the API server does not say with which certificate was asked (1.34 or newer)"
        )
    if request.credential not in facts.credentials:
        return Deny("OldCertificate", f"asked with {request.credential}, which is no certificate of the current boot")
    if is_to_end(server):
        return Deny(
            "BootEnds",
            f"the next boot of server {server.name} was ordered, or it is to be off: this one renews nothing",
        )
    if request.signer == CLIENT_SIGNER:
        return ApproveRenewal(request.credential)
    if not subject.dns_names and not subject.ip_addresses:
        return Deny("WrongNames", "a serving certificate needs a name or an address")
    foreign = [name for name in subject.dns_names if name != server.name]
    own = {ipaddress.ip_address(server.status.address)} if server.status.address else set()
    foreign += [str(address) for address in subject.ip_addresses if address not in own]
    if foreign:
        return Deny(
            "WrongNames",
            f"{', '.join(foreign)}: not of server {server.name}, which has its name and {server.status.address}",
        )
    return ApproveServing()


def _known(facts: CertificateFacts) -> Server:
    if facts.server is None:
        raise ValueError("judged a request without its server")
    return facts.server
