"""A disturbance of one server, from the request to the proven end, as two tables that the code goes by. Pure.

PHASES: of its Maintenance, which the executor alone writes; no phase is followed by one that is not listed here.
BOOT_STEPS: of a reboot. Five accounts write them, none of which may write what another one does; all repeat the id of
the attempt, or of the boot order that answers it. ARCHITECTURE.md shows both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from provisioner.api import Server
from provisioner.api.machinery.conditions import find_condition
from provisioner.api.nodes.contract import (
    DRAIN_IN_PROGRESS,
    DRAINED,
    MAINTENANCE_IN_PROGRESS,
    MAINTENANCE_PLANNED,
)
from provisioner.api.nodes.facts import BootReport
from provisioner.api.nodes.maintenance import AGENT_METHODS, FINAL_PHASES, MaintenancePhase, RebootAttempt
from provisioner.api.servers.server import BootOrder
from provisioner.rules.nodes import NodeView


@dataclass(frozen=True, kw_only=True)
class PhaseRule:
    """over_once: what proves that it is over. conditions: of the Node, true in it (after KEP-5683)."""

    over_once: str
    next: tuple[MaintenancePhase, ...]
    conditions: tuple[str, ...] = (MAINTENANCE_PLANNED,)


PHASES: Final[dict[MaintenancePhase, PhaseRule]] = {
    "Waiting": PhaseRule(
        over_once="no job, hold, budget or missing Image stands in the way",
        next=("Claiming", *FINAL_PHASES),
    ),
    "Claiming": PhaseRule(
        over_once="the server is closed, and a second look past every cache finds no job that may not be interrupted",
        next=("Draining", "Waiting", *FINAL_PHASES),
        conditions=(MAINTENANCE_PLANNED, DRAIN_IN_PROGRESS),
    ),
    "Draining": PhaseRule(
        over_once="nothing runs there any more",
        next=("Drained", "Waiting", *FINAL_PHASES),
        conditions=(MAINTENANCE_PLANNED, DRAIN_IN_PROGRESS),
    ),
    "Drained": PhaseRule(
        over_once="an attempt at a reboot is on record; of a drain: nobody wants it any more",
        next=("Rebooting", "Draining", "Waiting", *FINAL_PHASES),
        conditions=(MAINTENANCE_PLANNED, DRAINED),
    ),
    "Rebooting": PhaseRule(
        over_once="another kernel boot id than `bootIDBefore`: of the Node, or of the join of the attempt's order",
        next=("Verifying", "Waiting", *FINAL_PHASES),
        conditions=(MAINTENANCE_PLANNED, DRAINED, MAINTENANCE_IN_PROGRESS),
    ),
    "Verifying": PhaseRule(
        over_once="that boot runs the wanted digest, is Ready, and has passed its checks",
        next=("Drained", "Rebooting", *FINAL_PHASES),
        conditions=(MAINTENANCE_PLANNED, DRAINED, MAINTENANCE_IN_PROGRESS),
    ),
    **{phase: PhaseRule(over_once="", next=(), conditions=()) for phase in FINAL_PHASES},
}


def may_follow(before: MaintenancePhase | None, after: MaintenancePhase) -> bool:
    """Whether a Maintenance in phase `before` may be written in `after`; None: nobody has looked at it yet."""
    return after == (before or "Waiting") or after in PHASES[before or "Waiting"].next


def answering_order(server: Server, attempt: RebootAttempt) -> BootOrder | None:
    """The server's boot order, if it is the one that answers the attempt."""
    order = server.status.order
    return order if order is not None and order.attempt_id == attempt.id else None


@dataclass(frozen=True, kw_only=True)
class RebootUnderWay:
    """An attempt at a reboot that is under way, and what the others have written about it."""

    attempt: RebootAttempt
    server: Server | None
    node: NodeView | None

    @property
    def order(self) -> BootOrder | None:
        """The boot order that answers the attempt; None until it was given, and once another one was."""
        return answering_order(self.server, self.attempt) if self.server is not None else None

    @property
    def report(self) -> BootReport | None:
        """What the agent says that it did about this attempt; None while it has not answered."""
        report = self.node.report if self.node is not None else None
        return report if report is not None and report.id == self.attempt.id else None

    @property
    def is_by_agent(self) -> bool:
        return self.attempt.method in AGENT_METHODS

    @property
    def next_step(self) -> BootStep | None:
        """The first one that was not taken; None if all were, and the new boot alone is awaited."""
        return next((step for step in BOOT_STEPS if step.concerns(self) and not step.is_taken(self)), None)


@dataclass(frozen=True, kw_only=True)
class BootStep:
    """A step between the attempt and the new boot. awaited: what to say while it was not taken.

    concerns: whether a reboot by that attempt's method takes it.
    """

    name: str
    account: str
    written_to: str
    is_taken: Callable[[RebootUnderWay], bool]
    awaited: Callable[[RebootUnderWay], str]
    concerns: Callable[[RebootUnderWay], bool] = lambda reboot: True


def _is_prepared(reboot: RebootUnderWay) -> bool:
    order, prepared = reboot.order, _node_prepared(reboot)
    is_ours = reboot.node is None or (order is not None and reboot.node.prepared_order == order.id)
    return is_ours and prepared is None


def _node_prepared(reboot: RebootUnderWay) -> str | None:
    """Why the Node cannot be prepared; None if nothing is said of that."""
    conditions = reboot.server.status.conditions if reboot.server is not None else ()
    found = find_condition(conditions, "NodePrepared")
    return found.message if found is not None and found.status == "False" else None


def _preparing(reboot: RebootUnderWay) -> str:
    order, obstacle = reboot.order, _node_prepared(reboot)
    if order is not None and reboot.node is not None and reboot.node.prepared_order != order.id:
        return f"the join controller has not prepared the Node for boot order {order.id} yet"
    return f"the Node cannot be prepared: {obstacle}"


def _is_told(reboot: RebootUnderWay) -> bool:
    intent = reboot.node.intent if reboot.node is not None else None
    return intent is not None and intent.id == reboot.attempt.id


def _has_system(reboot: RebootUnderWay) -> bool:
    return reboot.is_by_agent and reboot.node is not None and reboot.node.boot_id is not None


def _is_accepted(reboot: RebootUnderWay) -> bool:
    order, power = reboot.order, reboot.server.status.power if reboot.server is not None else None
    if order is None or power is None:
        return False
    return order.id in (power.order_id, power.cut_order_id) or power.shutdown_time is not None


ORDERED: Final = BootStep(
    name="Ordered",
    account="provisioner-orders",
    written_to="Server `status.order`, `attemptID`",
    is_taken=lambda reboot: reboot.order is not None,
    awaited=lambda reboot: "the boot controller has not ordered the boot yet",
)
PREPARED: Final = BootStep(
    name="Prepared",
    account="provisioner-join",
    written_to="Node annotation `prepared-order`, the order's id; where that fails: Server, condition NodePrepared",
    is_taken=_is_prepared,
    awaited=_preparing,
)
TOLD: Final = BootStep(
    name="Told",
    account="provisioner-maintenance",
    written_to="Node annotation `boot-intent`, `id`",
    is_taken=_is_told,
    awaited=lambda reboot: "the agent is about to be told",
    concerns=_has_system,
)
ANSWERED: Final = BootStep(
    name="Answered",
    account="the node's own",
    written_to="Node annotation `boot-report`, `id`",
    is_taken=lambda reboot: reboot.report is not None,
    awaited=lambda reboot: "the agent was told, and has not answered",
    concerns=_has_system,
)
ACCEPTED: Final = BootStep(
    name="Accepted",
    account="provisioner-power",
    written_to="Server `status.power.orderID`, or `cutOrderID`, the order's id; `shutdownTime` on the way there",
    is_taken=_is_accepted,
    awaited=lambda reboot: "a boot by the BMC is awaited",
    concerns=lambda reboot: not reboot.is_by_agent,
)
BOOT_STEPS: Final = (ORDERED, PREPARED, TOLD, ANSWERED, ACCEPTED)
"""In the order in which they are taken. Then comes the new boot: its join repeats the order's id
(`status.join.orderID`), its Node has another boot id, and its checks name that (`status.verification.bootID`)."""
