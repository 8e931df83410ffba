"""The effects of a join: read, decide, claim, mint, answer. One instance serves many threads; replicas need no
agreement but the API server's.

The order of the writes is what makes a crash harmless at any line, and two racing requests one winner:

    1  delete the token that was handed out before     nobody holds a live token that the claim no longer names
    2  claim in Server.status.join                     under the resourceVersion that the decision was made on
    3  create the token's Secret
    4  read the claim back                             a repeat may have overtaken us: then its token is the one

After a crash the machine asks again with the same key and gets a fresh token. A token that a crash or a race left over
works for nobody: the approver asks for the id in the claim; it is removed by the controller or when it expires.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final, TypeVar

import structlog

from provisioner.api.images.image import Image
from provisioner.api.machinery.codec import decode, encode
from provisioner.api.machinery.errors import Conflict, Refused, Retryable
from provisioner.api.machinery.meta import Resource
from provisioner.api.machinery.values import MacAddress
from provisioner.api.pools.node_pool import NodePool
from provisioner.api.servers.firmware_profile import FirmwareProfile
from provisioner.api.servers.server import JoinStatus, Server
from provisioner.cluster.client import Cluster
from provisioner.cluster.events import Events, EventType
from provisioner.cluster.resources import LEASES, NODE_LEASES, NODES, SECRETS, ResourceType, of, regarding
from provisioner.cluster.source import Source
from provisioner.join.admission.admit import (
    Admitted,
    Challenged,
    Decision,
    Denied,
    JoinFacts,
    NotYet,
    judge_claim,
    judge_proof,
    question_of,
)
from provisioner.join.admission.attestation import VERIFIERS, EvidenceVerifier, Pending, Proven, prove
from provisioner.join.admission.configuration import JoinConfiguration, JoinSettings, SealedConfiguration
from provisioner.join.admission.kubelet_configuration import kubelet_configuration
from provisioner.join.admission.request import JoinRequest
from provisioner.join.admission.status import SERVICE_MANAGER, claim, evidence_words, note
from provisioner.join.admission.vouched import vouch
from provisioner.join.tokens.mint import (
    TOKEN_NAMESPACE,
    BootstrapToken,
    mint_token,
    token_secret,
    token_secret_name,
)
from provisioner.rules.assigned_image import joining_image_name
from provisioner.rules.boot_order import is_by_bmc
from provisioner.rules.dpus import hosts
from provisioner.rules.identity import boot_mac, find_server
from provisioner.rules.pool_of_server import ordered_pool_name
from provisioner.rules.rate import Rate, RequestLimit

log = structlog.get_logger()

R = TypeVar("R", bound=Resource)

_ATTEMPTS = 4
"""Other controllers write the same Server's status; a claim that met one of them is decided anew."""


_MOST_DPUS = 8
"""Of one server, that are read for a request."""

_UNSYNCED_SECONDS = 2.0


class NotSynced(Retryable):
    """The cache of Servers is not filled yet."""


CHALLENGES: Final = Rate(per_second=0.2, burst=6.0)
"""Of one server, at one replica. A boot needs one, and another for each answer that gets lost."""

Answer = JoinConfiguration | SealedConfiguration | Denied | NotYet | Challenged


class JoinService:
    """Answers join requests.

    `find_server` names the Server that boots from a MAC address, `find_dpus` the cards that are in a Server. A cache
    may answer, for what tells who asks is read afresh before a decision; one that is not filled yet raises NotSynced,
    so that no machine is told that nobody knows it. `sources`: caches of NodePools and Images, whose changes no join
    races with. monotonic: seconds, by which challenges are counted.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: JoinSettings,
        *,
        find_server: Callable[[MacAddress], str | None],
        find_dpus: Callable[[str], Sequence[str]] = lambda server: (),
        recorder: Events,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        mint: Callable[[], BootstrapToken] = mint_token,
        verifiers: Mapping[str, EvidenceVerifier] = VERIFIERS,
        sources: Mapping[ResourceType, Source] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._find_server = find_server
        self._find_dpus = find_dpus
        self._recorder = recorder
        self._now = now
        self._mint = mint
        self._verifiers = verifiers
        self._sources = sources or {}
        self._monotonic = monotonic
        self._challenges = RequestLimit(CHALLENGES, is_known=lambda address: True)

    def join(self, request: JoinRequest, source_address: str, *, by_dpu: bool = False) -> Answer:
        """Answer one request. by_dpu: it came to the listener for what DPUs pass on for their hosts.

        Raises: Retryable when the API server is away or many write the same Server.
        """
        try:
            name = self._find_server(request.mac_address)
        except NotSynced as error:
            return NotYet("NotSynced", f"the join service has just been started: {error}", error.after_seconds)
        for _ in range(_ATTEMPTS):
            facts = self._read_facts(name, request)
            now = self._now()
            decision = judge_claim(facts, request, source_address, now, by_dpu=by_dpu)
            if isinstance(decision, Admitted):
                decision = self._judge_proof(facts, decision, request, source_address, now, by_dpu=by_dpu)
            if facts.server is None or not isinstance(decision, Admitted):
                return self._turn_away(facts.server, decision, request, source_address, now)
            try:
                return self._hand_out(facts.server, decision, request, source_address, now)
            except Conflict:
                continue
        raise Retryable(f"Server {name} is being written by others; the claim did not get through", after_seconds=1)

    def _judge_proof(
        self,
        facts: JoinFacts,
        claimed: Admitted,
        request: JoinRequest,
        source_address: str,
        now: datetime,
        *,
        by_dpu: bool,
    ) -> Decision:
        """The claim was found right: only now is it worth a look at what is offered as proof."""
        question = question_of(facts, claimed, request, source_address, now)
        proof = vouch(prove(question, self._verifiers), question, facts.dpus, by_dpu=by_dpu)
        decision = judge_proof(replace(facts, proof=proof), claimed)
        if isinstance(decision, Challenged):
            limited = self._challenges.take(question.server.status.address or "", self._monotonic())
            if limited is not None:
                message = f"server {question.server.name} gets no challenge so soon"
                return NotYet("TooManyChallenges", message, limited.wait_seconds)
        return decision

    def _read_facts(self, name: str | None, request: JoinRequest) -> JoinFacts:
        server = self._optional(Server, name)
        if server is None or server.spec.boot_mac_address != request.mac_address:
            return JoinFacts(server=None)
        pool = self._optional(NodePool, ordered_pool_name(server))
        image = self._optional(Image, joining_image_name(server, pool))
        return JoinFacts(
            server=server,
            pool=pool,
            image=image,
            node=self._cluster.find(NODES, server.name),
            lease=None if is_by_bmc(server) else self._cluster.find(LEASES, server.name, namespace=NODE_LEASES),
            dpus=self._read_dpus(server.name),
        )

    def _read_dpus(self, server: str) -> tuple[Server, ...]:
        names = sorted(self._find_dpus(server))
        if len(names) > _MOST_DPUS:  # the one by which it boots may be any of them
            raise Retryable(
                f"{len(names)} Servers are DPUs of server {server}, {', '.join(names[:_MOST_DPUS])} among them; "
                f"expected {_MOST_DPUS} at the most: correct spec.dpu.hostRef of those that are not in it"
            )
        found = (self._cluster.find(of(Server), name) for name in names)
        return tuple(decode(Server, each) for each in found if each is not None)

    def _optional(self, kind: type[R], name: str | None) -> R | None:
        if name is None:
            return None
        source = self._sources.get(of(kind))
        cached = source.get(name) if source is not None and source.has_synced else None
        found = cached if cached is not None else self._cluster.find(of(kind), name)
        return decode(kind, found) if found is not None else None

    def _hand_out(
        self, server: Server, admitted: Admitted, request: JoinRequest, source_address: str, now: datetime
    ) -> Answer:
        before = server.status.join or JoinStatus()
        if before.token_id and before.certificate_token_id != before.token_id:  # else its certificate ended it
            self._delete_token(before.token_id)
        token = self._mint()
        self._cluster.apply_status(
            Server,
            server.name,
            claim(server, admitted, request, token.id, now, source_address),
            manager=SERVICE_MANAGER,
            resource_version=server.metadata.resource_version,
        )
        secret = token_secret(token, server.name, now)
        self._cluster.create(SECRETS, secret, namespace=TOKEN_NAMESPACE)
        claimed = self._cluster.read(Server, server.name).status.join
        if claimed is None or claimed.token_id != token.id:
            self._delete_token(token.id)
            return NotYet("Superseded", f"a later request of server {server.name} is being answered", 1.0)
        log.info(
            "join configuration handed out",
            server=server.name,
            order=admitted.order.id,
            boot_id=request.boot_id,
            token_id=token.id,
            repeat=admitted.repeat,
            source=source_address,
            evidence=evidence_words(admitted.proof),
        )
        self._record(
            server,
            "Normal",
            "JoinConfigurationIssued",
            f"Handed out the join configuration of boot order {admitted.order.id}"
            + (" again, as the same machine repeated its request," if admitted.repeat else "")
            + f" with token {token.id} to {source_address}, boot {request.boot_id}: {evidence_words(admitted.proof)}",
        )
        if isinstance(admitted.proof, Pending):
            self._learn(admitted.proof)
        configuration = self._configuration(server, admitted, token)
        proof = admitted.proof
        if isinstance(proof, Proven | Pending) and proof.seal is not None:
            return SealedConfiguration(configuration, proof.seal)
        return configuration

    def _configuration(self, server: Server, admitted: Admitted, token: BootstrapToken) -> JoinConfiguration:
        return JoinConfiguration(
            node_name=server.name,
            api_server_url=self._settings.api_server_url,
            cluster_ca=self._settings.cluster_ca,
            bootstrap_token=token.wire(),
            node_address=server.status.address or "",
            kubelet=kubelet_configuration(
                admitted.pool.spec.kubelet.configuration, cluster_dns=self._settings.cluster_dns
            ),
            numa_alignment=admitted.pool.spec.kubelet.numa_alignment,
        )

    def _turn_away(
        self, server: Server | None, decision: Decision, request: JoinRequest, source_address: str, now: datetime
    ) -> Answer:
        if isinstance(decision, Admitted):
            raise ValueError("admitted a server that does not exist")
        if isinstance(decision, Challenged):
            return decision
        log.info(
            "join turned away",
            server=server.name if server else None,
            mac=request.mac_address,
            source=source_address,
            reason=decision.reason,
        )
        if server is None or decision.reason == "NoAddress":
            return decision
        if isinstance(decision, NotYet) and decision.pending is not None:
            self._learn(decision.pending)
            self._record(server, "Warning", "AttestationPending", f"{decision.reason}: {decision.message}")
        if isinstance(decision, Denied):
            self._record(server, "Warning", "JoinRefused", f"{decision.reason}: {decision.message}")
        if isinstance(decision, Denied) and decision.contested:
            self._record(
                server,
                "Warning",
                "CredentialContested",
                f"Another machine than the one that got it asks from {source_address} for the credential of the boot "
                "under way; nothing was proved by either: see condition CredentialContested",
            )
        if isinstance(decision, NotYet) or decision.recorded:
            self._note(server, decision, now)
        return decision

    def _note(self, server: Server, decision: Denied | NotYet, now: datetime) -> None:
        status = note(server, decision, now)
        if status is None:
            return
        try:
            self._cluster.apply_status(
                Server,
                server.name,
                status,
                manager=SERVICE_MANAGER,
                resource_version=server.metadata.resource_version,
            )
        except Retryable as error:
            # The machine learns why from the answer; the record follows with its next try.
            log.info("join refusal not recorded", server=server.name, error=str(error))

    def _learn(self, pending: Pending) -> None:
        """Write down what a person may approve. It is named after its content: who comes second finds it there."""
        profile = pending.learned
        if profile is None:
            return
        try:
            self._cluster.create(of(FirmwareProfile), encode(profile))
            log.info("firmware learned", profile=profile.name)
        except (Conflict, Refused) as error:
            # The machine waits for a person all the same, who sees by its condition what is missing.
            log.warning("firmware not written down", profile=profile.name, error=str(error))

    def _delete_token(self, token_id: str) -> None:
        self._cluster.delete(SECRETS, token_secret_name(token_id), namespace=TOKEN_NAMESPACE)

    def _record(self, server: Server, type_: EventType, reason: str, message: str) -> None:
        self._recorder.record(regarding(server), type_, reason, message)


def find_server_in(servers: Source) -> Callable[[MacAddress], str | None]:
    """Which Server boots from a MAC address, out of a cache: the `find_server` of a JoinService."""
    by_mac = servers.index(lambda server: [boot_mac(server)])

    def find(mac_address: MacAddress) -> str | None:
        if not servers.has_synced:
            raise NotSynced("the servers are still being read", after_seconds=_UNSYNCED_SECONDS)
        found = find_server(mac_address, by_mac.get(mac_address))
        return found["metadata"]["name"] if found is not None else None

    return find


def find_dpus_in(servers: Source) -> Callable[[str], Sequence[str]]:
    """The names of the cards in a server, out of a cache: the `find_dpus` of a JoinService."""
    by_host = servers.index(hosts)
    return lambda server: [str(each["metadata"]["name"]) for each in by_host.get(server)]
