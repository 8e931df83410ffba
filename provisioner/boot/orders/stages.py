"""Where the ordered boot of a server is, and until when it may be there. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from provisioner.api.boot_stage import BOOT_STAGES, STAGE_TIMEOUT_SECONDS, WAITS_FOR, BootStage
from provisioner.api.boot_timeline import PHASE_NAMES, stage_moments
from provisioner.api.maintenance import AGENT_METHODS
from provisioner.api.meta import parse_time, rfc3339
from provisioner.api.node_pool import NodePool
from provisioner.api.pool_settings import MethodTimeouts
from provisioner.api.server import BootOrder, Server

_POOL_FIELDS: Final[dict[BootStage, str]] = {
    "Firmware": "firmware",
    "IPXE": "ipxe",
    "Stage1": "stage1",
    "Root": "root",
    "System": "system",
    "Token": "token",
    "Kubelet": "kubelet",
}


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
    return Stage(stage=stage, began=began, deadline=_deadline(server, order, pool, stage, began))


def is_settled(server: Server) -> bool:
    """Whether the Node of the current order was Ready once: its boot is over, whatever became of it."""
    order, ready = server.status.order, server.status.ready_time
    return order is not None and ready is not None and parse_time(ready) >= parse_time(order.ordered_time)


def has_fetched(server: Server) -> bool:
    """Whether the join configuration of the current order was handed out."""
    order, join = server.status.order, server.status.join
    return order is not None and join is not None and join.order_id == order.id


def is_by_agent(order: BootOrder) -> bool:
    """Whether the running system's agent carries the order out; the BMC does otherwise."""
    return order.method in AGENT_METHODS


def describe_time_out(server: Server, stage: Stage) -> str:
    """What was waited for, since when, and what the machine last said."""
    progress = server.status.progress
    said = f"; the machine said: {progress.message}" if progress is not None and progress.message else ""
    return (
        f"{PHASE_NAMES[stage.stage]} has lasted since {rfc3339(stage.began)}, longer than it may; "
        f"waited for {WAITS_FOR[stage.stage]}{said}"
    )


def stage_timeout_seconds(stage: BootStage, pool: NodePool | None) -> int | None:
    """How long a stage may take: the pool's word, else the built-in one; None for Ready, which lasts."""
    field = _POOL_FIELDS.get(stage)
    own = getattr(pool.spec.stage_timeout_seconds, field) if pool is not None and field is not None else None
    return own if own is not None else STAGE_TIMEOUT_SECONDS.get(stage)


def _deadline(
    server: Server, order: BootOrder, pool: NodePool | None, stage: BootStage, began: datetime
) -> datetime | None:
    seconds = stage_timeout_seconds(stage, pool)
    # Nobody can say how long a hand at the power button takes; and for the agent the Maintenance waits, with a time-out
    # for each of its paths.
    if seconds is None or (stage == "Ordered" and (server.spec.bmc is None or is_by_agent(order))):
        return None
    deadline = began + timedelta(seconds=seconds)
    whole = _whole_deadline(server, order, pool)
    return deadline if whole is None else min(deadline, whole)


def _whole_deadline(server: Server, order: BootOrder, pool: NodePool | None) -> datetime | None:
    """When the boot as a whole is given up. Reports are not authenticated: however often somebody says that the boot
    began anew, it ends."""
    if server.spec.bmc is None:
        return None
    stages = sum(stage_timeout_seconds(s, pool) or 0 for s in BOOT_STAGES if s not in ("Ordered", "Ready"))
    if is_by_agent(order):
        limits = pool.spec.maintenance.method_timeout_seconds if pool is not None else MethodTimeouts()
        path = limits.kexec if order.method == "Kexec" else limits.reboot
        return parse_time(order.ordered_time) + timedelta(seconds=path + stages)
    powered = [moment for passed, moment in stage_moments(server.status) if passed == "Firmware"]
    return powered[0] + timedelta(seconds=stages) if powered else None
