"""What the join service writes into a Server's status. Pure: the server and a decision in, a status part out.

The join service owns attestation, credentials, and of join orderID, bootID, requestKeySHA256, tokenID, fetchedTime,
refusedTime and refusedReason; the approver owns the certificate's fields. Server-side apply drops what an owner leaves
out, so each write carries all of the service's fields.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from provisioner.api.machinery.codec import to_json
from provisioner.api.machinery.conditions import condition_of, find_condition
from provisioner.api.machinery.meta import Condition, parse_time, rfc3339_micro
from provisioner.api.servers.attestation import (
    CREDENTIAL_CONTESTED,
    MAX_CREDENTIALS,
    AttestationStatus,
    IssuedCredential,
)
from provisioner.api.servers.server import BootOrder, JoinStatus, Server
from provisioner.join.admission.admit import Admitted, Denied, NotYet
from provisioner.join.admission.attestation import Pending, Proof, Proven, Unproven
from provisioner.join.admission.request import JoinRequest

SERVICE_MANAGER: Final = "provisioner-join"
JOINED: Final = "Joined"
ATTESTED: Final = "Attested"
REFUSAL_REFRESH_SECONDS: Final = 15
"""A machine that keeps asking is written down again only after this time."""


def is_joined(server: Server) -> bool:
    """Whether a certificate was approved on the token that was handed out last."""
    join = server.status.join
    return join is not None and join.token_id is not None and join.certificate_token_id == join.token_id


def claim(
    server: Server, admitted: Admitted, request: JoinRequest, token_id: str, now: datetime, address: str = ""
) -> dict[str, Any]:
    """The status that takes the order's one join configuration for the machine that sent `request` from `address`."""
    order, proof = admitted.order, admitted.proof
    join = JoinStatus(
        order_id=order.id,
        boot_id=request.boot_id,
        request_key_sha256=request.request_key_sha256,
        token_id=token_id,
        fetched_time=rfc3339_micro(now),
    )
    joined = condition_of(
        server,
        JOINED,
        False,
        "TokenIssued",
        f"the join configuration of boot order {order.id} was handed out; the kubelet's certificate is awaited",
        now,
    )
    conditions = [joined, _attested(server, proof, now)]
    contested = find_condition(server.status.conditions, CREDENTIAL_CONTESTED) if admitted.repeat else None
    conditions += [contested] if contested is not None else []
    credentials = (*server.status.credentials, _credential(join, order, proof, address))[-MAX_CREDENTIALS:]
    return _status(join, conditions, _record(server, proof), credentials)


def _credential(join: JoinStatus, order: BootOrder, proof: Proof | None, address: str) -> IssuedCredential:
    seal = proof.seal if isinstance(proof, Proven | Pending) else None
    return IssuedCredential(
        token_id=join.token_id or "",
        order_id=order.id,
        boot_id=join.boot_id or "",
        address=address,
        evidence="TPM2" if seal is not None else "None",
        endorsement_key_sha256=seal.endorsement_key_sha256 if seal is not None else None,
        known_by=proof.record.known_by if isinstance(proof, Proven) else None,
        time=join.fetched_time or "",
    )


def evidence_words(proof: Proof | None) -> str:
    """For which evidence a credential is handed out, for an Event."""
    if isinstance(proof, Proven):
        return f"proved by {proof.how}"
    if isinstance(proof, Pending):
        key = proof.seen.endorsement_key_sha256
        return f"sealed to endorsement key {key}, which proves nothing yet ({proof.reason}); address and order decided"
    return "nothing was proved: address and order decided"


def _record(server: Server, proof: Proof | None) -> AttestationStatus | None:
    """What is proved lasts until something else is; what waits for approval, until another is seen or it is proved."""
    if isinstance(proof, Proven):
        return proof.record
    if isinstance(proof, Pending):
        return replace(server.status.attestation or AttestationStatus(), pending=proof.seen)
    return server.status.attestation


def _attested(server: Server, proof: Proof | None, now: datetime) -> Condition:
    if isinstance(proof, Proven):
        return condition_of(server, ATTESTED, True, proof.record.known_by or "Proven", proof.how, now)
    if isinstance(proof, Pending):
        return condition_of(server, ATTESTED, False, proof.reason, proof.message, now)
    why = proof.why if isinstance(proof, Unproven) else "nothing was offered"
    words = f"the machine joined by its address and its order: {why}"
    return condition_of(server, ATTESTED, False, "NothingProved", words, now)


def note(server: Server, decision: Denied | NotYet, now: datetime) -> dict[str, Any] | None:
    """The status that says why the server does not get its configuration; None if it says so already.

    A refusal is also written as refusedTime, on which the boot controller acts. A server that has joined keeps its
    condition Joined: somebody who speaks from its address must not make it look otherwise.
    """
    join = _own_fields(server.status.join or JoinStatus())
    existing = server.status.conditions
    joined, attested, contested = (find_condition(existing, each) for each in (JOINED, ATTESTED, CREDENTIAL_CONTESTED))
    order = server.status.order
    current = order is None or join.order_id == order.id
    if not (is_joined(server) and current):
        joined = condition_of(server, JOINED, False, decision.reason, decision.message, now)
        pending = decision.pending if isinstance(decision, NotYet) else None
        if pending is not None:
            attested = _attested(server, pending, now)
    if isinstance(decision, Denied) and decision.contested:
        words = contested_words(server.name, join)
        contested = condition_of(server, CREDENTIAL_CONTESTED, True, "SecondMachine", words, now)
    refused = isinstance(decision, Denied) and _is_news(join, decision, now)
    if refused:
        join = replace(join, refused_time=rfc3339_micro(now), refused_reason=decision.reason)
    record = server.status.attestation
    if isinstance(decision, NotYet) and decision.pending is not None:
        record = _still_pending(record, decision.pending)
    wanted = [each for each in (joined, attested, contested) if each is not None]
    is_said = all(any(_says(each) == _says(before) for before in existing) for each in wanted)
    if not refused and is_said and record == server.status.attestation:
        return None
    return _status(join, wanted, record, server.status.credentials)


def contested_words(name: str, join: JoinStatus) -> str:
    """What is known of it, and what a person can do."""
    return (
        f"two machines asked for the credential of boot order {join.order_id}: the one that got it at "
        f"{join.fetched_time} as boot {join.boot_id}, and another, with another key, from the same address; the Node "
        "is not let in by its checks: find out who has the address, then have the server booted again; or let it in: "
        f"kubectl provision release {name} --verification -m WHY"
    )


def _still_pending(record: AttestationStatus | None, pending: Pending) -> AttestationStatus:
    """Seen again is not news; only something else is."""
    record = record or AttestationStatus()
    before = record.pending
    if before is not None and replace(before, time=pending.seen.time) == pending.seen:
        return record
    return replace(record, pending=pending.seen)


def _is_news(join: JoinStatus, decision: Denied, now: datetime) -> bool:
    if join.refused_time is None or join.refused_reason != decision.reason:
        return True
    refused = parse_time(join.refused_time)
    if join.fetched_time is not None and refused <= parse_time(join.fetched_time):
        return True
    return now - refused >= timedelta(seconds=REFUSAL_REFRESH_SECONDS)


def _says(condition: Condition) -> tuple[str, str, str, str]:
    return condition.type, condition.status, condition.reason, condition.message


def _own_fields(join: JoinStatus) -> JoinStatus:
    return replace(
        join, certificate_time=None, certificate_token_id=None, certificate_request_name=None, credentials=()
    )


def _status(
    join: JoinStatus,
    conditions: Iterable[Condition],
    record: AttestationStatus | None,
    credentials: Iterable[IssuedCredential],
) -> dict[str, Any]:
    status: dict[str, Any] = {"join": to_json(join), "conditions": [to_json(each) for each in conditions]}
    if record is not None:
        status["attestation"] = to_json(record)
    if issued := [to_json(each) for each in credentials]:
        status["credentials"] = issued
    return status
