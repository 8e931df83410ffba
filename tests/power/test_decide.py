"""The decisions of the power controller as a table: what is true → what is done."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest

from provisioner.api.machinery.meta import Condition, ObjectMeta, rfc3339_micro
from provisioner.api.servers.boot_stage import HEARD_STAGES
from provisioner.api.servers.server import (
    BMC,
    BootOrder,
    BootProgress,
    JoinStatus,
    PowerStatus,
    Server,
    ServerSpec,
    ServerStatus,
    StageTime,
)
from provisioner.power.bmc.power_controller import ObservedPower
from provisioner.power.decide import (
    SHUTDOWN_PATIENCE,
    Action,
    AskToShutDown,
    CutForCycle,
    CutPower,
    PollAgain,
    RecordCut,
    RecordOrder,
    StartBoot,
    decide,
)

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ORDERED = NOW - timedelta(seconds=10)
ORDER = BootOrder(
    id="order-2", reason="FirstBoot", ordered_time=rfc3339_micro(ORDERED), attempt=1, boot_id_before="boot-before"
)
DONE = PowerStatus(order_id="order-2", order_time=rfc3339_micro(ORDERED), state="On")
DUPLICATE = Condition(
    type="Accepted", status="False", reason="Duplicate", message="as r01-u09", last_transition_time=rfc3339_micro(NOW)
)
EARLIER = PowerStatus(order_id="order-1", state="On")
CUT = replace(EARLIER, cut_order_id="order-2", state="Off")


def requested(method: Any) -> BootOrder:
    """An order that a Maintenance asked for."""
    return replace(ORDER, reason="Requested", method=method, maintenance_ref="r01-u01-1", attempt_id="try-1")


def at(seconds: float) -> str:
    """A moment relative to the order."""
    return rfc3339_micro(ORDERED + timedelta(seconds=seconds))


def server(*, boot_method: Any = "Pxe", acceptance: Any = "Accepted", wanted: Any = "On", **status: Any) -> Server:
    return Server(
        metadata=ObjectMeta(name="r01-u01"),
        spec=ServerSpec(
            rack_ref="r01",
            boot_mac_address="52:54:00:00:00:01",
            bmc=BMC(address="https://10.90.0.11", boot_method=boot_method),
            acceptance=acceptance,
            power_state=wanted,
        ),
        status=ServerStatus(**status),
    )


TABLE: dict[str, tuple[Server, ObservedPower, Action]] = {
    "a server without an order is left alone": (server(), "Off", PollAgain()),
    "a server that is off is powered on": (server(order=ORDER), "Off", StartBoot("order-2", "Pxe", "PowerOn")),
    "a server that is on is reset": (server(order=ORDER, power=EARLIER), "On", StartBoot("order-2", "Pxe", "Reset")),
    "the override follows the boot method": (
        server(order=ORDER, boot_method="UefiHttp"),
        "Off",
        StartBoot("order-2", "UefiHttp", "PowerOn"),
    ),
    "a server that boots from its disk keeps its override": (
        server(order=ORDER, boot_method="Disk"),
        "Off",
        StartBoot("order-2", None, "PowerOn"),
    ),
    "an order that the BMC accepted is not carried out again": (server(order=ORDER, power=DONE), "On", PollAgain()),
    "power lost after the order is not the power controller's to repair": (
        server(order=ORDER, power=DONE),
        "Off",
        PollAgain(),
    ),
    "an order whose join configuration was fetched is only recorded": (
        server(order=ORDER, join=JoinStatus(order_id="order-2")),
        "On",
        RecordOrder("order-2"),
    ),
    "the join of an earlier order says nothing": (
        server(order=ORDER, join=JoinStatus(order_id="order-1")),
        "On",
        StartBoot("order-2", "Pxe", "Reset"),
    ),
    "a server that is off cannot have joined and run on": (
        server(order=ORDER, join=JoinStatus(order_id="order-2")),
        "Off",
        StartBoot("order-2", "Pxe", "PowerOn"),
    ),
    "a server that nobody accepted is not booted": (server(order=ORDER, acceptance="Pending"), "Off", PollAgain()),
    "a rejected server is not booted": (server(order=ORDER, acceptance="Rejected"), "On", PollAgain()),
    "a server that nobody accepted is not switched off": (
        server(wanted="Off", acceptance="Pending"),
        "On",
        PollAgain(),
    ),
    "a server that claims what is another's is not booted": (
        server(order=ORDER, conditions=(DUPLICATE,)),
        "On",
        PollAgain(),
    ),
    "a server that claims what is another's is not switched off": (
        server(wanted="Off", conditions=(DUPLICATE,)),
        "On",
        PollAgain(),
    ),
    "a server that got no address is switched off like any other": (
        server(wanted="Off", conditions=(replace(DUPLICATE, reason="NoAddress"),)),
        "On",
        AskToShutDown(),
    ),
    "a boot that the agent carries out is not the BMC's": (server(order=requested("Kexec")), "On", PollAgain()),
    "nor is a server that is off in the middle of it": (server(order=requested("Reboot")), "Off", PollAgain()),
    "a reset that was asked for is a reset": (
        server(order=requested("Reset"), power=EARLIER),
        "On",
        StartBoot("order-2", "Pxe", "Reset"),
    ),
    "a server to be reset that is off is powered on": (
        server(order=requested("Reset")),
        "Off",
        StartBoot("order-2", "Pxe", "PowerOn"),
    ),
    "a power cycle begins with a cut": (
        server(order=requested("PowerCycle"), power=EARLIER),
        "On",
        CutForCycle("order-2"),
    ),
    "a server that was seen off is on record before it is powered on": (
        server(order=requested("PowerCycle"), power=EARLIER),
        "Off",
        RecordCut("order-2"),
    ),
    "the cut of an earlier order says nothing": (
        server(order=requested("PowerCycle"), power=replace(CUT, cut_order_id="order-1")),
        "On",
        CutForCycle("order-2"),
    ),
    "a power cycle ends with power": (
        server(order=requested("PowerCycle"), power=CUT),
        "Off",
        StartBoot("order-2", "Pxe", "PowerOn"),
    ),
    "a server that is on after it was seen off was powered on": (
        server(order=requested("PowerCycle"), power=CUT),
        "On",
        RecordOrder("order-2"),
    ),
    "so is one whose BMC was away meanwhile": (
        server(order=requested("PowerCycle"), power=replace(CUT, state="Unknown")),
        "On",
        RecordOrder("order-2"),
    ),
    "what a Maintenance asked for is carried out, whoever says that it has joined": (
        server(order=requested("PowerCycle"), join=JoinStatus(order_id="order-2")),
        "On",
        CutForCycle("order-2"),
    ),
    "one that was cut, powered on and has joined": (
        server(order=requested("PowerCycle"), power=CUT, join=JoinStatus(order_id="order-2")),
        "On",
        RecordOrder("order-2"),
    ),
    "so is a reset: without the BMC's record it cannot have joined": (
        server(order=requested("Reset"), power=EARLIER, join=JoinStatus(order_id="order-2")),
        "On",
        StartBoot("order-2", "Pxe", "Reset"),
    ),
    "a power cycle that the BMC accepted is over": (
        server(order=requested("PowerCycle"), power=replace(CUT, order_id="order-2", state="On")),
        "On",
        PollAgain(),
    ),
    "a server that shall be off is not powered on by a power cycle": (
        server(wanted="Off", order=requested("PowerCycle"), power=CUT),
        "Off",
        PollAgain(),
    ),
    "a later order that only names the Maintenance is like any other": (
        server(order=replace(requested("PowerCycle"), reason="TimedOut"), power=replace(CUT, cut_order_id="order-1")),
        "On",
        StartBoot("order-2", "Pxe", "Reset"),
    ),
    "a server that shall be off is asked to shut down": (server(wanted="Off", power=DONE), "On", AskToShutDown()),
    "a server that nothing is recorded of is asked to shut down too": (server(wanted="Off"), "On", AskToShutDown()),
    "an order does not wake a server that shall be off": (server(wanted="Off", order=ORDER), "Off", PollAgain()),
    "a system that was asked gets its time": (
        server(wanted="Off", power=replace(DONE, shutdown_time=rfc3339_micro(NOW - SHUTDOWN_PATIENCE * 0.9))),
        "On",
        PollAgain(),
    ),
    "a system that does not shut down loses its power": (
        server(wanted="Off", power=replace(DONE, shutdown_time=rfc3339_micro(NOW - SHUTDOWN_PATIENCE))),
        "On",
        CutPower(),
    ),
}


@pytest.mark.parametrize("case", TABLE)
def test_decision(case: str) -> None:
    facts, observed, expected = TABLE[case]
    assert decide(facts, observed, NOW) == expected


@pytest.mark.parametrize(
    ("power", "observed", "expected"),
    [
        (EARLIER, "On", CutForCycle("order-2")),
        (EARLIER, "Off", RecordCut("order-2")),
        (CUT, "Off", StartBoot("order-2", "Pxe", "PowerOn")),
        (CUT, "On", RecordOrder("order-2")),
        (DONE, "On", PollAgain()),
    ],
)
@pytest.mark.parametrize("order", [ORDER, requested("Reset")], ids=["by itself", "requested"])
def test_an_order_that_the_bmc_gave_no_answer_to_goes_on_as_a_power_cycle(
    order: BootOrder, power: PowerStatus, observed: ObservedPower, expected: Action
) -> None:
    given = server(order=order, power=power)
    assert decide(given, observed, NOW, unanswered="order-2") == expected
    if power is CUT:
        assert decide(given, observed, NOW) == expected, "the record of the cut outlives who made it"
    if power is EARLIER:
        assert decide(given, observed, NOW, unanswered="order-1") == decide(given, observed, NOW)


@pytest.mark.parametrize("case", TABLE)
def test_whatever_was_reported_of_the_machine_the_decision_is_the_same(case: str) -> None:
    """Anybody can report a boot; what the BMC says, and what joined, can nobody forge."""
    facts, observed, expected = TABLE[case]
    for stage, boot_id, seconds in product(HEARD_STAGES, ("boot-before", "boot-now", None), (-20, 1, 9)):
        heard = BootProgress(stage=stage, boot_id=boot_id, stage_times=(StageTime(stage=stage, time=at(seconds)),))
        told = replace(facts, status=replace(facts.status, progress=heard))
        assert decide(told, observed, NOW) == expected
