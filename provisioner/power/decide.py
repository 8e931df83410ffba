"""What to do about a server's power. Pure: facts and a moment in, one action out. `status` builds the condition.

A boot is an order: the boot controller writes it, and it is carried out once. `status.power.orderID` says which order
the BMC has accepted. A controller that died between the BMC's answer and that record carries the order out once more.
That is harmless: without the record no boot of the order gets a join configuration, so nothing lives on the machine but
a boot that waits for one, and it begins anew; and before every reset the Node is looked for, or the Maintenance that
asks for it (preflight.py). What was heard of the machine is no reason to leave it alone: anybody can report a boot that
never was, and the old one would live on beside the record that arms its next token.

Where a BMC was told to reset or power on and gave no answer, it may or may not have done so, each time (`act`
remembers that, in memory). Then the order is carried out as a power cycle, whose steps can each be seen by the power
alone.

An order of method Kexec or Reboot is for the agent in the running system: no BMC is told anything. A power cycle is:
cut, seen off, powered on. Each look at a server that is still on cuts it once more; `status.power.cutOrderID` is
written once it was seen off, before it is powered on. So a controller that died anywhere in between knows from that
record and the power alone what is left to do, and a server that was cut is powered on by whoever looks next.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from provisioner.api.machinery.meta import ConditionStatus, parse_time
from provisioner.api.nodes.maintenance import RebootMethod
from provisioner.api.servers.server import BootOrder, PowerStatus, Server
from provisioner.power.bmc.power_controller import ObservedPower, OverrideTarget
from provisioner.rules.boot_order import has_fetched
from provisioner.rules.bootability import find_duplicate, find_unaccepted

SHUTDOWN_PATIENCE: Final = timedelta(seconds=120)
"""How long a system may take to shut down before its power is cut."""


@dataclass(frozen=True)
class PollAgain:
    """Nothing to do but to look again later."""


@dataclass(frozen=True)
class StartBoot:
    """Set the boot override (unless None: leave it alone), then power on, or reset a server that is on."""

    order_id: str
    override: OverrideTarget | None
    power: Literal["PowerOn", "Reset"]


@dataclass(frozen=True)
class CutForCycle:
    """The first half of a power cycle: cut the power of a server that is on."""

    order_id: str


@dataclass(frozen=True)
class RecordCut:
    """The server that is to be power-cycled is off: record that, and power it on at the next look."""

    order_id: str


@dataclass(frozen=True)
class RecordOrder:
    """The order was carried out already; only the record of it is missing."""

    order_id: str


@dataclass(frozen=True)
class AskToShutDown:
    """Ask the system to shut down."""


@dataclass(frozen=True)
class CutPower:
    """The system did not shut down when asked: cut the power."""


Action = PollAgain | StartBoot | CutForCycle | RecordCut | RecordOrder | AskToShutDown | CutPower


@dataclass(frozen=True)
class PoweredOn:
    """The condition of that name."""

    status: ConditionStatus
    reason: str
    message: str


def decide(server: Server, observed: ObservedPower, now: datetime, unanswered: str | None = None) -> Action:
    """The one thing to do now. Call it again with what is true afterwards.

    unanswered: the order that the BMC was told to carry out without giving an answer.
    """
    if find_hold(server) is not None:
        return PollAgain()
    if server.spec.power_state == "Off":
        return _switch_off(server, observed, now)
    order = pending_order(server)
    if order is None:
        return PollAgain()
    # By the join's own rules: without a BMC then, or none was needed. What a Maintenance asked for is carried out: it
    # has waited for what ran there, and whoever has a boot host can write such a record.
    if observed == "On" and has_fetched(server) and not is_requested(order):
        return RecordOrder(order.id)
    power = server.status.power
    if is_power_cycle(order, power) or order.id == unanswered:
        was_off = power is not None and power.cut_order_id == order.id
        if observed == "Off" and not was_off:
            return RecordCut(order.id)
        if observed == "On":
            # On after it was seen off: it was powered on, and whoever did it died before the record.
            return RecordOrder(order.id) if was_off else CutForCycle(order.id)
    bmc = server.spec.bmc
    override: OverrideTarget | None = bmc.boot_method if bmc and bmc.boot_method != "Disk" else None
    return StartBoot(order.id, override, "Reset" if observed == "On" else "PowerOn")


def find_hold(server: Server) -> PoweredOn | None:
    """Why the server's BMC is not even asked, as its condition says it; None if nothing speaks against it.

    Of a server that nobody accepted, or that claims what is another one's, the BMC may be the other one's, too.
    """
    unaccepted, duplicate = find_unaccepted(server), find_duplicate(server)
    if unaccepted is not None:
        return PoweredOn("Unknown", "NotAccepted", f"its BMC is left alone: {unaccepted.words}")
    if duplicate is not None:
        return PoweredOn("Unknown", duplicate.reason, f"its BMC is left alone: {duplicate.words}")
    return None


def pending_order(server: Server) -> BootOrder | None:
    """The order that the BMC has not accepted yet. A server that may not boot has none, nor one whose agent boots."""
    order, power = server.status.order, server.status.power
    if order is None or find_hold(server) is not None or _requested(order, "Kexec", "Reboot"):
        return None
    if power is not None and power.order_id == order.id:
        return None
    return order


def is_requested(order: BootOrder) -> bool:
    """Whether a Maintenance asks for this order, and so for a Node that lives to be disturbed.

    Orders that follow it for other reasons still name the Maintenance; they are not what it asked for.
    """
    return _requested(order, "Reset", "PowerCycle")


def is_power_cycle(order: BootOrder, power: PowerStatus | None) -> bool:
    """Whether the server shall be without power for a moment, or was for this order."""
    return _requested(order, "PowerCycle") or (power is not None and power.cut_order_id == order.id)


def _requested(order: BootOrder, *methods: RebootMethod) -> bool:
    return order.reason == "Requested" and order.method in methods


def _switch_off(server: Server, observed: ObservedPower, now: datetime) -> Action:
    if observed == "Off":
        return PollAgain()
    power = server.status.power
    asked = power.shutdown_time if power is not None else None
    if asked is None:
        return AskToShutDown()
    return CutPower() if now - parse_time(asked) >= SHUTDOWN_PATIENCE else PollAgain()
