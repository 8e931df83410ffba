"""What the join service writes into a Server's status. Pure: the server and a decision in, a status part out.

The join service owns orderID, bootID, requestKeySHA256, tokenID, fetchedTime, refusedTime and refusedReason; the
approver owns the certificate's fields. Server-side apply drops what an owner leaves out, so each write carries all of
the service's fields.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from provisioner.api.codec import to_json
from provisioner.api.conditions import find_condition, settle_condition
from provisioner.api.meta import Condition, parse_time, rfc3339, rfc3339_micro
from provisioner.api.server import BootOrder, JoinStatus, Server
from provisioner.join.admission.admit import Denied, NotYet
from provisioner.join.admission.request import JoinRequest

SERVICE_MANAGER: Final = "provisioner-join"
REFUSAL_REFRESH_SECONDS: Final = 15
"""A machine that keeps asking is written down again only after this time."""


def is_joined(server: Server) -> bool:
    """Whether a certificate was approved on the token that was handed out last."""
    join = server.status.join
    return join is not None and join.token_id is not None and join.certificate_token_id == join.token_id


def claim(server: Server, order: BootOrder, request: JoinRequest, token_id: str, now: datetime) -> dict[str, Any]:
    """The status that takes the order's one join configuration for the machine that sent `request`."""
    join = JoinStatus(
        order_id=order.id,
        boot_id=request.boot_id,
        request_key_sha256=request.request_key_sha256,
        token_id=token_id,
        fetched_time=rfc3339_micro(now),
    )
    condition = Condition(
        type="Joined",
        status="False",
        reason="TokenIssued",
        message=f"the join configuration of boot order {order.id} was handed out; the kubelet's certificate is awaited",
        last_transition_time=rfc3339(now),
        observed_generation=server.metadata.generation,
    )
    return _status(server, join, condition)


def note(server: Server, decision: Denied | NotYet, now: datetime) -> dict[str, Any] | None:
    """The status that says why the server does not get its configuration; None if it says so already.

    A refusal is also written as refusedTime, on which the boot controller acts. A server that has joined keeps its
    condition: somebody who speaks from its address must not make it look otherwise.
    """
    join = _own_fields(server.status.join or JoinStatus())
    before = find_condition(server.status.conditions, "Joined")
    condition = before
    order = server.status.order
    current = order is None or join.order_id == order.id
    if not (is_joined(server) and current):
        condition = Condition(
            type="Joined",
            status="False",
            reason=decision.reason,
            message=decision.message,
            last_transition_time=rfc3339(now),
            observed_generation=server.metadata.generation,
        )
    refused = isinstance(decision, Denied) and _is_news(join, decision, now)
    if refused:
        join = replace(join, refused_time=rfc3339_micro(now), refused_reason=decision.reason)
    unchanged = before is not None and condition is not None and _says(before) == _says(condition)
    if not refused and (unchanged or condition is None):
        return None
    return _status(server, join, condition)


def _is_news(join: JoinStatus, decision: Denied, now: datetime) -> bool:
    if join.refused_time is None or join.refused_reason != decision.reason:
        return True
    refused = parse_time(join.refused_time)
    if join.fetched_time is not None and refused <= parse_time(join.fetched_time):
        return True
    return now - refused >= timedelta(seconds=REFUSAL_REFRESH_SECONDS)


def _says(condition: Condition) -> tuple[str, str, str]:
    return condition.status, condition.reason, condition.message


def _own_fields(join: JoinStatus) -> JoinStatus:
    return replace(
        join, certificate_time=None, certificate_token_id=None, certificate_request_name=None, credentials=()
    )


def _status(server: Server, join: JoinStatus, condition: Condition | None) -> dict[str, Any]:
    conditions = [] if condition is None else [to_json(settle_condition(server.status.conditions, condition))]
    return {"join": to_json(join), "conditions": conditions}
