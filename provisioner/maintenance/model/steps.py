"""What a decision may be: one thing to do, after which everything is read again."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from provisioner.api.nodes.contract import MaintenanceEffect
from provisioner.api.nodes.facts import BootIntent
from provisioner.api.nodes.maintenance import Maintenance, MaintenanceStatus
from provisioner.jobs.model.work import JobKind
from provisioner.maintenance.status.node_status import NodeCondition
from provisioner.maintenance.status.record import judge, with_conditions
from provisioner.maintenance.status.verdict import Cause


@dataclass(frozen=True, kw_only=True)
class WriteStatus:
    """Write the Maintenance's status."""

    status: MaintenanceStatus


@dataclass(frozen=True, kw_only=True)
class NeedBudget:
    """The decision hangs on the budget. `fresh`: on what is true now, past every cache."""

    fresh: bool


@dataclass(frozen=True, kw_only=True)
class NeedId:
    """What is to be written takes a new id."""

    then: Callable[[str], WriteStatus]


@dataclass(frozen=True, kw_only=True)
class SetFinalizer:
    """Put the finalizer on the Maintenance, or take it off."""

    present: bool


@dataclass(frozen=True, kw_only=True)
class SetTaint:
    """Put the maintenance taint on the Node with that value and effect; None takes it off."""

    value: str | None
    effect: MaintenanceEffect = "NoSchedule"


@dataclass(frozen=True, kw_only=True)
class SetIntent:
    """Tell the agent what to do; None takes back what it was told."""

    intent: BootIntent | None


@dataclass(frozen=True, kw_only=True)
class SetNodeConditions:
    """Set conditions on the Node, by type; all duplicates of a type alike."""

    conditions: tuple[NodeCondition, ...]


@dataclass(frozen=True, kw_only=True)
class CloseSlurm:
    """Drain the node in Slurm with that reason."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class ReserveSlurm:
    """Reserve the node in Slurm from that moment on, and lift a drain of one's own; drain it where Slurm cannot."""

    begins: datetime


@dataclass(frozen=True, kw_only=True)
class ReopenSlurm:
    """Lift the drain of `node` if it has still that reason. reserved: delete its reservation, too."""

    node: str
    reason: str
    reserved: bool = False


@dataclass(frozen=True, kw_only=True)
class Evict:
    """Ask what runs there to end."""

    spare: Collection[JobKind]
    force: bool


@dataclass(frozen=True, kw_only=True)
class Wait:
    """Nothing to do now. `warn`: tell the jobs there of that deadline."""

    seconds: float
    warn: datetime | None = None


NodeWrite = Literal["Taint", "Intent", "Conditions"]

Step = (
    WriteStatus
    | NeedBudget
    | NeedId
    | SetFinalizer
    | SetTaint
    | SetIntent
    | SetNodeConditions
    | CloseSlurm
    | ReserveSlurm
    | ReopenSlurm
    | Evict
    | Wait
)


def judged(maintenance: Maintenance, cause: Cause, message: str, now: datetime) -> WriteStatus:
    """The verdict is written, before anything is undone."""
    return WriteStatus(status=judge(maintenance, cause, message, now))


def changed(maintenance: Maintenance, status: MaintenanceStatus, now: datetime) -> WriteStatus | None:
    """`status` is written with the conditions that follow from its phase; None if all of it is on record."""
    status = with_conditions(maintenance, status, now)
    return WriteStatus(status=status) if status != maintenance.status else None


def node_write_of(step: Step) -> NodeWrite | None:
    """Which kind of write to the Node a step is; None if it writes something else."""
    match step:
        case SetTaint():
            return "Taint"
        case SetIntent():
            return "Intent"
        case SetNodeConditions():
            return "Conditions"
        case _:
            return None
