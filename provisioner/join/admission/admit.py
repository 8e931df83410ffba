"""May this machine have its join configuration now? Pure: facts in, decision out.

A boot that the controller ordered arms one fetch. The fetch may be repeated by the machine that made it (it alone
knows the key that it invented), because answers get lost and services die between two writes; until the certificate
is out, after which nobody needs the token any more.

A proof is asked for last: a machine that would be told to wait anyway costs nobody a challenge, and who speaks from
another address learns of none. Where nothing is proved, first use wins; who comes second with another key contests it.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from provisioner.api.images.image import Image
from provisioner.api.machinery.meta import parse_time
from provisioner.api.machinery.values import normal_system_uuid
from provisioner.api.nodes.contract import PREPARED_ORDER_ANNOTATION
from provisioner.api.pools.node_pool import NodePool
from provisioner.api.servers.server import BootOrder, JoinStatus, Server
from provisioner.join.admission.attestation import (
    Challenge,
    EvidenceQuestion,
    Pending,
    Proof,
    Unproven,
    known_endorsement_key,
)
from provisioner.join.admission.origin import find_elsewhere
from provisioner.join.admission.request import JoinRequest
from provisioner.join.admission.successor import find_successor
from provisioner.join.nodes.node_object import SERVER_UID_ANNOTATION
from provisioner.rules.assigned_image import joining_image_name
from provisioner.rules.boot_order import is_by_agent, is_by_bmc
from provisioner.rules.bootability import REMEDY, find_distrusted, find_unaccepted, find_unjudged, find_without_pool
from provisioner.rules.liveness import read_heartbeat
from provisioner.rules.stage_timeouts import time_to_join


@dataclass(frozen=True)
class Admitted:
    """Hand it out. `repeat`: the same machine asks again for what it was given. proof: what it proved of itself."""

    order: BootOrder
    pool: NodePool
    repeat: bool
    proof: Proof | None = None


@dataclass(frozen=True)
class Denied:
    """No. `recorded`: the server's status shall say so (the asker speaks from the server's own address). contested: two
    machines ask for one boot's credential, and neither has proved anything."""

    reason: str
    message: str
    recorded: bool = False
    contested: bool = False


@dataclass(frozen=True)
class NotYet:
    """Come again in `retry_after_seconds`. pending: what a person has to approve first."""

    reason: str
    message: str
    retry_after_seconds: float = 5.0
    pending: Pending | None = None


@dataclass(frozen=True)
class Challenged:
    """Answer this first."""

    challenge: Mapping[str, Any]


Decision = Admitted | Denied | NotYet | Challenged


@dataclass(frozen=True, kw_only=True)
class JoinFacts:
    """What is known when a request is judged. Objects that do not exist are None.

    lease: the Node's, needed only where no BMC carries the order out. dpus: the cards that are in the server. proof: is
    asked for once everything else is right; see `judge_claim`.
    """

    server: Server | None
    pool: NodePool | None = None
    image: Image | None = None
    node: Mapping[str, Any] | None = None
    lease: Mapping[str, Any] | None = None
    proof: Proof | None = None
    dpus: tuple[Server, ...] = ()


def judge_claim(
    facts: JoinFacts, request: JoinRequest, source_address: str, now: datetime, *, by_dpu: bool = False
) -> Decision:
    """Judge all but the proof: whether the machine would be admitted if it is the one that it claims to be.
    by_dpu: the request came to the listener for what DPUs pass on.

    The order of the rules matters: until the origin is right, nothing about the request reaches the server's
    status (an Event tells of it), and the answer tells no more than the server's boot script, which anybody may read.
    """
    server = facts.server
    if server is None:
        return Denied(
            "UnknownMachine", f"no server with boot MAC address {request.mac_address} is registered; register it"
        )
    if server.status.address is None:
        return NotYet("NoAddress", f"server {server.name} has no address yet; it needs a rack with a free address")
    elsewhere = find_elsewhere(server, server.status.address, facts.dpus, source_address, by_dpu=by_dpu)
    if elsewhere is not None:
        return Denied("WrongAddress", elsewhere)
    return _judge_identity(facts, server, request) or _judge_order(facts, server, request, now)


def question_of(
    facts: JoinFacts, admitted: Admitted, request: JoinRequest, address: str, now: datetime
) -> EvidenceQuestion:
    """What a verifier is asked, once the claim was found right. Raises: ValueError for facts that admit nobody."""
    if facts.server is None or facts.image is None:
        raise ValueError("a claim was admitted without a server or an Image")
    successor = find_successor(facts.node, admitted.order)
    is_asking = successor is not None and successor.asks(request.request_key_sha256)
    return EvidenceQuestion(
        server=facts.server,
        request=request,
        order=admitted.order,
        pool=admitted.pool,
        image=facts.image,
        address=address,
        now=now,
        successor=successor if is_asking else None,
    )


def judge_proof(facts: JoinFacts, admitted: Admitted) -> Decision:
    """Judge what the machine proves of itself.

    What was offered and fails is refused in every pool; a machine of which a TPM is known is not believed without it; a
    pool with attestation Required takes no less than a proof.
    """
    proof, pool = facts.proof, admitted.pool
    is_required = pool.spec.attestation == "Required"
    if isinstance(proof, Challenge):
        return Challenged(proof.challenge)
    if isinstance(proof, Pending):
        if is_required:
            return NotYet(proof.reason, proof.message, 15.0, pending=proof)
    elif isinstance(proof, Unproven) and proof.offered:
        return Denied(proof.reason, proof.why, recorded=True)
    elif proof is None or isinstance(proof, Unproven):
        refused = _without_proof(facts.server, pool, proof)
        if refused is not None:
            return refused
    return replace(admitted, proof=proof)


def _without_proof(server: Server | None, pool: NodePool, proof: Unproven | None) -> Denied | None:
    known = known_endorsement_key(server) if server is not None else None
    if server is not None and known is not None:
        return Denied(
            "ProofMissing",
            f"server {server.name} has a TPM, endorsement key {known}, and the machine proved nothing by it"
            f"{REMEDY}boot an image whose agent does, or see docs/registration.md for a server that has lost its TPM",
            recorded=True,
        )
    if pool.spec.attestation == "Required":
        why = proof.why if proof is not None else "nothing was offered"
        return Denied(
            "AttestationRequired",
            f"NodePool {pool.name} admits only servers that prove their identity: {why}{REMEDY}"
            "set the pool's attestation to Optional where servers have no TPM",
            recorded=True,
        )
    return None


def _judge_identity(facts: JoinFacts, server: Server, request: JoinRequest) -> Decision | None:
    spec = server.spec
    unaccepted = find_unaccepted(server)
    if unaccepted is not None:
        return Denied("NotAccepted", unaccepted.words, recorded=True)
    claimed = request.system_uuid or ""
    if spec.system_uuid and normal_system_uuid(spec.system_uuid) != normal_system_uuid(claimed):
        return Denied(
            "SystemUUIDMismatch",
            f"the machine says that its system UUID is {request.system_uuid or 'none'}, server {server.name} is "
            f"registered with {spec.system_uuid}{REMEDY}if its mainboard was exchanged, correct spec.systemUUID",
            recorded=True,
        )
    poolless = find_without_pool(server, facts.pool)
    if poolless is not None:
        return Denied("NoPool", poolless.words, recorded=True)
    return None


def _judge_order(facts: JoinFacts, server: Server, request: JoinRequest, now: datetime) -> Decision:
    order, join = server.status.order, server.status.join or JoinStatus()
    if order is None:
        return NotYet("NotOrdered", f"nobody has ordered a boot of server {server.name} yet")
    power = server.status.power
    by_bmc = is_by_bmc(server)
    accepted = by_bmc and power is not None and power.order_id == order.id
    accepted_time = power.order_time if power is not None and accepted else None
    armed = parse_time(accepted_time or order.ordered_time)
    # Armed since the BMC accepted the order; since it was given, where there is no BMC or the agent carries it out.
    window = time_to_join(facts.pool, by_agent=order.method if is_by_agent(order) else None)
    if join.order_id == order.id and not _may_repeat(join, request):
        return Denied(
            "AlreadyFetched",
            f"the join configuration of boot order {order.id} was handed out at {join.fetched_time}; "
            "the next ordered boot gets the next one",
            recorded=True,
            contested=_contests(server, join, request) and now <= armed + window,
        )
    if by_bmc and not accepted:
        return NotYet(
            "OrderNotCarriedOut",
            f"boot order {order.id} of server {server.name} has not reached its BMC: this boot is an older one",
        )
    if _is_boot_before(order, request):
        return NotYet(
            "StillOldBoot", f"boot {request.boot_id} ran before order {order.id} was given; the ordered boot is awaited"
        )
    if not by_bmc and join.order_id != order.id:
        obstacle = _judge_predecessor(facts, server, order, request, armed, now)
        if obstacle is not None:
            return obstacle
    if now > armed + window:
        return Denied(
            "OrderExpired",
            f"boot order {order.id} was armed at {armed:%Y-%m-%dT%H:%M:%SZ}, longer ago than the "
            f"{int(window.total_seconds())} s that a boot may take; a new order is needed",
            recorded=True,
        )
    return _judge_image(facts, server, order, request) or _judge_node(
        facts, server, order, Admitted(order, _present(facts.pool), repeat=join.order_id == order.id)
    )


def _judge_predecessor(
    facts: JoinFacts, server: Server, order: BootOrder, request: JoinRequest, armed: datetime, now: datetime
) -> Decision | None:
    """No BMC has ended the boot before this one: whether it is over, and this one its successor."""
    successor = find_successor(facts.node, order)
    if successor is not None:
        if successor.asks(request.request_key_sha256):
            return None
        until = successor.comes_until(armed, now)
        if now <= until:
            return NotYet(
                "OtherBootAwaited",
                f"server {server.name} was told to start a kernel by kexec for boot order {order.id}; until "
                f"{until:%Y-%m-%dT%H:%M:%SZ} only that one joins, by the request key that it was given",
            )
    # The new boot cannot have renewed the Lease: it has no certificate before it has joined. As long as the old kubelet
    # lives, pods live beside it and speak from the server's address, with any boot id that they invent.
    if read_heartbeat(facts.lease).is_fresh(now):
        return NotYet(
            "OldBootRuns",
            f"the kubelet of server {server.name} was heard of a moment ago: the boot before order {order.id} runs",
            2.0,
        )
    return None


def _judge_image(facts: JoinFacts, server: Server, order: BootOrder, request: JoinRequest) -> Decision | None:
    name = joining_image_name(server, facts.pool)
    if facts.image is None:
        return NotYet("NoImage", f"Image {name} of boot order {order.id} does not exist{REMEDY}publish it", 15.0)
    if request.image_digest != facts.image.spec.digest:
        return Denied(
            "WrongImage",
            f"the machine says that it booted {request.image_digest}, the order for server {server.name} is "
            f"{name} ({facts.image.spec.digest}); it must boot again",
            recorded=True,
        )
    distrusted = find_distrusted(facts.image)
    if distrusted is not None:
        return Denied("ImageNotVerified", distrusted.words, recorded=True)
    unjudged = find_unjudged(facts.image)
    return NotYet("ImageNotJudged", unjudged.words) if unjudged is not None else None


def _judge_node(facts: JoinFacts, server: Server, order: BootOrder, admitted: Admitted) -> Decision:
    annotations = ((facts.node or {}).get("metadata") or {}).get("annotations") or {}
    if facts.node is not None and annotations.get(SERVER_UID_ANNOTATION) != server.metadata.uid:
        return Denied(
            "NodeNameTaken",
            f"Node {server.name} exists and was not made for this server{REMEDY}delete it or rename the server",
            recorded=True,
        )
    if annotations.get(PREPARED_ORDER_ANNOTATION) != order.id:
        return NotYet(
            "NodeNotPrepared",
            f"Node {server.name} is not prepared for boot order {order.id} yet by the controller",
            1.0,
        )
    return admitted


def _is_boot_before(order: BootOrder, request: JoinRequest) -> bool:
    return order.boot_id_before is not None and request.boot_id == order.boot_id_before.lower()


def _may_repeat(join: JoinStatus, request: JoinRequest) -> bool:
    spent = join.token_id is not None and join.certificate_token_id == join.token_id
    return not spent and _has_key(join, request)


def _has_key(join: JoinStatus, request: JoinRequest) -> bool:
    known = (join.request_key_sha256 or "").encode()
    return hmac.compare_digest(known, request.request_key_sha256.encode())


def _contests(server: Server, join: JoinStatus, request: JoinRequest) -> bool:
    """Whether another machine than the one that got it asks: it has not that one's key, and that one proved nothing."""
    attested = server.status.attestation
    was_proven = attested is not None and attested.order_id == join.order_id
    return not was_proven and not _has_key(join, request)


def _present(pool: NodePool | None) -> NodePool:
    if pool is None:
        raise ValueError("judged an order without a pool")
    return pool
