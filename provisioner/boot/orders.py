"""Whether a server needs another boot order, and when it may have it. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from provisioner.api.boot_stage import BOOT_STAGES, STAGE_TIMEOUT_SECONDS, WAITS_FOR, BootStage, stage_order
from provisioner.api.boot_timeline import PHASE_NAMES, stage_moments
from provisioner.api.conditions import find_condition
from provisioner.api.meta import parse_time, rfc3339, rfc3339_micro
from provisioner.api.node_pool import NodePool
from provisioner.api.server import BootOrder, OrderReason, Server
from provisioner.boot.facts import LEASE_FRESH, Facts

FIRST_PAUSE_SECONDS: Final = 30.0
LONGEST_PAUSE_SECONDS: Final = 1800.0
PROVEN_SECONDS: Final = 600.0
"""A server that was Ready for so long starts counting attempts anew; one that dies sooner is slowed down."""

_POOL_FIELDS: Final[dict[BootStage, str]] = {
    "Firmware": "firmware",
    "IPXE": "ipxe",
    "Stage1": "stage1",
    "Root": "root",
    "System": "system",
    "Token": "token",
    "Kubelet": "kubelet",
}
_REARMING_REFUSALS: Final = ("AlreadyFetched", "OrderExpired")


@dataclass(frozen=True, kw_only=True)
class Need:
    """Another boot is needed. `urgent`: it does not wait for the pause between attempts."""

    reason: OrderReason
    message: str
    urgent: bool = False


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Where the ordered boot is. `deadline` is None where nothing can time out."""

    stage: BootStage
    began: datetime
    deadline: datetime | None


def current_stage(server: Server, pool: NodePool | None) -> Stage | None:
    """The stage of the current order; None without an order."""
    order = server.status.order
    if order is None:
        return None
    stage, began = stage_moments(server.status)[-1]
    return Stage(stage=stage, began=began, deadline=_deadline(server, pool, stage, began))


def is_settled(server: Server) -> bool:
    """Whether the Node of the current order was Ready once: its boot is over, whatever became of it."""
    order, ready = server.status.order, server.status.ready_time
    return order is not None and ready is not None and parse_time(ready) >= parse_time(order.ordered_time)


def has_fetched(server: Server) -> bool:
    """Whether the join configuration of the current order was handed out."""
    order, join = server.status.order, server.status.join
    return order is not None and join is not None and join.order_id == order.id


def find_need(facts: Facts, now: datetime) -> Need | None:
    """Why `facts.server`, which may boot, needs a new order now; None if what is under way goes on."""
    server = facts.server
    if server.status.order is None:
        return Need(reason="FirstBoot", message="it was never booted by the provisioner", urgent=True)
    return (
        _switched_on(server)
        or _power_lost(server)
        or _booted_unordered(facts, now)
        or _image_changed(server, facts.pool)
        or _timed_out(server, facts.pool, now)
    )


def next_order(facts: Facts, need: Need, new_id: str, now: datetime) -> BootOrder:
    """The order that answers `need`."""
    server = facts.server
    before = server.status.order
    return BootOrder(
        id=new_id,
        reason=need.reason,
        ordered_time=rfc3339_micro(now),
        attempt=_attempts(server, now) + 1,
        image_ref=facts.pool.spec.image_ref if facts.pool is not None else (before.image_ref if before else None),
        boot_id_before=_boot_id_before(facts),
        message=need.message[:1024],
    )


def former_order(facts: Facts, now: datetime) -> BootOrder | None:
    """The order to go back to if the current one was not carried out and the Node lives on in the boot before it.

    What the former order said is not kept; this is as much of it as the boot left behind: its id in status.join, its
    Image in status.imageRef, the time when the BMC accepted it.
    """
    status, node = facts.server.status, facts.node
    order, power, join = status.order, status.power, status.join
    if order is None or join is None or join.order_id is None or join.order_id == order.id or join.fetched_time is None:
        return None
    if power is not None and power.order_id == order.id:
        return None
    if node is None or node.boot_id is None or join.boot_id is None or node.boot_id != join.boot_id.lower():
        return None
    if not node.was_heard(now):
        return None
    accepted = power.order_time if power is not None and power.order_id == join.order_id else None
    return BootOrder(
        id=join.order_id,
        reason=order.reason,
        ordered_time=min(accepted or join.fetched_time, join.fetched_time, key=parse_time),
        attempt=max(1, order.attempt - 1),
        image_ref=status.image_ref or order.image_ref,
        message=f"boot order {order.id} ({order.reason}) was withdrawn: the boot before it lived on",
    )


def not_before(server: Server, need: Need, now: datetime) -> datetime:
    """When the next order may be given: at once, or after a pause that doubles with each attempt (up to 30 minutes).

    The pause is spread by a fifth, fixed for each order, so that a rack that failed together does not try together.
    """
    order = server.status.order
    attempts = _attempts(server, now)
    if order is None or need.urgent or attempts == 0:
        return now
    spread = 1 + 0.2 * hashlib.sha256(order.id.encode()).digest()[0] / 255
    pause = min(FIRST_PAUSE_SECONDS * 2 ** min(attempts - 1, 16), LONGEST_PAUSE_SECONDS) * spread
    return parse_time(order.ordered_time) + timedelta(seconds=pause)


def stage_timeout_seconds(stage: BootStage, pool: NodePool | None) -> int | None:
    """How long a stage may take: the pool's word, else the built-in one; None for Ready, which lasts."""
    field = _POOL_FIELDS.get(stage)
    own = getattr(pool.spec.stage_timeout_seconds, field) if pool is not None and field is not None else None
    return own if own is not None else STAGE_TIMEOUT_SECONDS.get(stage)


def _attempts(server: Server, now: datetime) -> int:
    order, ready = server.status.order, server.status.ready_time
    if order is None:
        return 0
    if is_settled(server) and ready is not None and now - parse_time(ready) >= timedelta(seconds=PROVEN_SECONDS):
        return 0
    return order.attempt


def _boot_id_before(facts: Facts) -> str | None:
    """The kernel that runs before the order, so that its late reports and requests are told from the ordered boot's.

    Without a BMC nothing resets the machine: the boot that waits there now is the one that the order is for.
    """
    status = facts.server.status
    node = facts.node.boot_id if facts.node is not None else None
    if facts.server.spec.bmc is None:
        return node
    heard = status.progress.boot_id if status.progress is not None else None
    joined = status.join.boot_id if status.join is not None else None
    return heard or node or joined


def _deadline(server: Server, pool: NodePool | None, stage: BootStage, began: datetime) -> datetime | None:
    seconds = stage_timeout_seconds(stage, pool)
    if seconds is None or (stage == "Ordered" and server.spec.bmc is None):
        return None
    deadline = began + timedelta(seconds=seconds)
    # Reports are not authenticated: however often somebody says that the boot began anew, it is given up in the end.
    powered = [moment for passed, moment in stage_moments(server.status) if passed == "Firmware"]
    if powered and server.spec.bmc is not None:
        whole = sum(stage_timeout_seconds(s, pool) or 0 for s in BOOT_STAGES if s not in ("Ordered", "Ready"))
        deadline = min(deadline, powered[0] + timedelta(seconds=whole))
    return deadline


def _switched_on(server: Server) -> Need | None:
    ready = find_condition(server.status.conditions, "Ready")
    was_off = ready is not None and ready.reason in ("PoweredOff", "PowerState")
    is_off = server.spec.bmc is None or (server.status.power is not None and server.status.power.state == "Off")
    if was_off and is_off:
        return Need(reason="PowerState", message="it is meant to be on again", urgent=True)
    return None


def _power_lost(server: Server) -> Need | None:
    order, power = server.status.order, server.status.power
    if order is None or power is None or power.state != "Off" or power.order_id != order.id:
        return None
    if power.order_time is None or power.observed_time is None:
        return None
    seen = parse_time(power.observed_time)
    if seen <= parse_time(power.order_time):
        return None
    return Need(reason="PowerLost", message=f"its BMC says since {rfc3339(seen)} that it is off")


def _booted_unordered(facts: Facts, now: datetime) -> Need | None:
    server = facts.server
    order, join = server.status.order, server.status.join
    if order is None or join is None or join.refused_time is None or join.refused_reason not in _REARMING_REFUSALS:
        return None
    refused = parse_time(join.refused_time)
    heard = facts.node.last_heard(now) if facts.node is not None else None
    if heard is not None and refused <= heard + LEASE_FRESH:
        # Every pod speaks from its server's address. One that asked while the Node lived must not have it reset when
        # its network fails later; a machine that did boot goes on asking.
        return None
    if join.refused_reason == "OrderExpired":
        if server.spec.bmc is None and refused > parse_time(order.ordered_time):
            return Need(
                reason="Unordered",
                message=f"it booted long after order {order.id} was given and asked to join at {rfc3339(refused)}",
            )
        return None  # with a BMC the stages time out long before
    fetched = parse_time(join.fetched_time) if join.fetched_time is not None else None
    if not has_fetched(server) or fetched is None or refused <= fetched:
        return None
    if not is_settled(server):
        # Anybody who takes the server's address can be refused in its name: a boot that is nearly done goes on, and is
        # given up only if its kubelet's time is over.
        return None
    return Need(
        reason="Unordered",
        message=f"it booted again without an order and asked to join at {rfc3339(refused)}",
    )


def _image_changed(server: Server, pool: NodePool | None) -> Need | None:
    order, stage = server.status.order, current_stage(server, pool)
    if order is None or stage is None or pool is None or order.image_ref == pool.spec.image_ref:
        return None
    if stage_order(stage.stage) >= stage_order("Stage1"):
        return None
    return Need(
        reason="ImageChanged",
        message=f"NodePool '{pool.name}' wants Image '{pool.spec.image_ref}' instead of '{order.image_ref}'",
        urgent=True,
    )


def _timed_out(server: Server, pool: NodePool | None, now: datetime) -> Need | None:
    stage = current_stage(server, pool)
    if stage is None or stage.stage == "Ordered" or stage.deadline is None or now < stage.deadline:
        return None
    return Need(reason="TimedOut", message=describe_time_out(server, stage))


def describe_time_out(server: Server, stage: Stage) -> str:
    """What was waited for, since when, and what the machine last said."""
    progress = server.status.progress
    said = f"; the machine said: {progress.message}" if progress is not None and progress.message else ""
    return (
        f"{PHASE_NAMES[stage.stage]} has lasted since {rfc3339(stage.began)}, longer than it may; "
        f"waited for {WAITS_FOR[stage.stage]}{said}"
    )
