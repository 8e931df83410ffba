"""`status.power` and the condition PoweredOn after what was done and seen. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final, Literal

from provisioner.api.machinery.meta import parse_time, rfc3339_micro
from provisioner.api.servers.server import PowerState, PowerStatus, Server
from provisioner.power.bmc.power_controller import ObservedPower
from provisioner.power.decide import (
    SHUTDOWN_PATIENCE,
    Action,
    AskToShutDown,
    PoweredOn,
    RecordCut,
    RecordOrder,
    StartBoot,
    is_power_cycle,
    pending_order,
)
from provisioner.power.standing import LOOK_SECONDS, SHARE, SLOW_REASON

SETTLING: Final = timedelta(seconds=20)
"""For so long after a power-on or reset a BMC may still say Off without meaning that the power was lost."""


def after_action(power: PowerStatus | None, action: Action, now: datetime) -> PowerStatus:
    """What to record once `action` was carried out. What the BMC says of it is for the next look."""
    power = power or PowerStatus()
    if isinstance(action, StartBoot):
        on = after_look(power, "On", "On", now)
        return replace(on, order_id=action.order_id, order_time=rfc3339_micro(now))
    if isinstance(action, RecordCut):
        return replace(after_look(power, "Off", "Off", now), cut_order_id=action.order_id)
    if isinstance(action, RecordOrder):
        return replace(power, order_id=action.order_id, order_time=rfc3339_micro(now))
    if isinstance(action, AskToShutDown):
        return replace(power, shutdown_time=rfc3339_micro(now))
    return power


def after_look(
    power: PowerStatus | None, state: ObservedPower | Literal["Unknown"], wanted: PowerState, now: datetime
) -> PowerStatus:
    """What to record after a look alone; the time changes only with the state."""
    power = power or PowerStatus()
    if state == "Off" or wanted == "On":
        power = replace(power, shutdown_time=None)
    if state == "Off" and wanted == "On" and _settles(power, now):
        return power
    if power.state == state:
        return power
    return replace(power, state=state, observed_time=rfc3339_micro(now))


def describe(server: Server, power: PowerStatus, *, slow_bmc: bool = False) -> PoweredOn:
    """The condition PoweredOn of a server whose BMC was asked and answers; `power` is what is recorded of it now.

    slow_bmc: it answers slowly, which is told where there is nothing else to do or to wait for.
    """
    said = _describe(server, power)
    if not slow_bmc or said.reason not in ("On", "Off"):
        return said
    words = (
        f"{said.message}; its BMC answers slowly: it needs more than {SHARE:.0%} of a worker's time, or "
        f"{LOOK_SECONDS['Prompt']:g} s for one answer, and is asked less often; reset it or update its firmware"
    )
    return PoweredOn(said.status, SLOW_REASON, words)


def _describe(server: Server, power: PowerStatus) -> PoweredOn:
    on = power.state == "On"
    if server.spec.power_state == "Off":
        if not on:
            return PoweredOn("False", "Off", "the server is off, as spec.powerState wants")
        seconds = int(SHUTDOWN_PATIENCE.total_seconds())
        words = f"the system was asked to shut down; its power is cut if it has not after {seconds} s"
        return PoweredOn("True", "ShuttingDown", words)
    order = pending_order(replace(server, status=replace(server.status, power=power)))
    if order is not None:
        if is_power_cycle(order, power):
            return _describe_cycle(order.id, on)
        status = "on" if on else "off"
        words = f"the server is {status}; boot order {order.id} is to be carried out"
        return PoweredOn("True" if on else "False", "BootOrdered", words)
    if on:
        return PoweredOn("True", "On", "the server is on")
    if server.spec.node_pool_ref is None:
        return PoweredOn("False", "NoNodePool", "the server is off; without spec.nodePoolRef no boot is ordered")
    return PoweredOn("False", "PowerOff", "the server is off although spec.powerState is On; a boot order is awaited")


def _describe_cycle(order_id: str, on: bool) -> PoweredOn:
    words = f"boot order {order_id} is a power cycle: "
    if not on:
        return PoweredOn("False", "PowerCycling", words + "the server is off and is powered on next")
    remedy = "if this stays, pull its plug or let its slot be switched off"
    return PoweredOn("True", "PowerCycling", words + f"its power is cut, and its BMC says that it is on; {remedy}")


def _settles(power: PowerStatus, now: datetime) -> bool:
    return power.state == "On" and power.order_time is not None and now - parse_time(power.order_time) < SETTLING
