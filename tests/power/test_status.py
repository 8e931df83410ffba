"""What is recorded of a server's power, and what its condition says."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from provisioner.api.machinery.meta import ObjectMeta, rfc3339_micro
from provisioner.api.servers.server import BMC, BootOrder, PowerStatus, Server, ServerSpec, ServerStatus
from provisioner.power.decide import AskToShutDown, CutForCycle, CutPower, RecordCut, RecordOrder, StartBoot
from provisioner.power.status import SETTLING, after_action, after_look, describe

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LATER = NOW + timedelta(seconds=60)


def test_the_time_changes_only_with_the_state() -> None:
    first = after_look(None, "On", "On", NOW)
    assert (first.state, first.observed_time) == ("On", rfc3339_micro(NOW))
    assert after_look(first, "On", "On", LATER) == first
    assert after_look(first, "Off", "On", LATER).observed_time == rfc3339_micro(LATER)


def test_a_boot_is_recorded_with_its_order_and_keeps_nothing_of_the_one_before() -> None:
    before = PowerStatus(order_id="order-1", order_time=rfc3339_micro(NOW), state="Off", observed_time="then")
    after = after_action(before, StartBoot("order-2", "Pxe", "PowerOn"), LATER)
    assert after == PowerStatus(
        order_id="order-2", order_time=rfc3339_micro(LATER), state="On", observed_time=rfc3339_micro(LATER)
    )
    assert after_action(before, RecordOrder("order-2"), LATER).order_id == "order-2"


def test_a_bmc_that_lags_behind_the_power_button_does_not_look_like_lost_power() -> None:
    booted = after_action(None, StartBoot("order-1", "Pxe", "PowerOn"), NOW)
    assert after_look(booted, "Off", "On", NOW + SETTLING * 0.9).state == "On"
    assert after_look(booted, "Off", "On", NOW + SETTLING).state == "Off"
    assert after_look(booted, "Off", "Off", NOW).state == "Off", "a server that shall be off may be off at once"


def test_the_wait_for_a_shutdown_ends_with_it_or_when_the_server_shall_be_on_again() -> None:
    asked = after_action(PowerStatus(state="On"), AskToShutDown(), NOW)
    assert asked.shutdown_time == rfc3339_micro(NOW)
    assert after_look(asked, "On", "Off", LATER).shutdown_time == rfc3339_micro(NOW)
    assert after_action(asked, CutPower(), LATER) == asked
    assert after_look(asked, "Off", "Off", LATER).shutdown_time is None
    assert after_look(asked, "On", "On", LATER).shutdown_time is None


def test_a_power_cycle_is_recorded_when_the_server_is_seen_off_and_kept_when_it_is_on_again() -> None:
    before = PowerStatus(order_id="order-1", order_time=rfc3339_micro(NOW), state="On")
    assert after_action(before, CutForCycle("order-2"), NOW) == before
    cut = after_action(before, RecordCut("order-2"), NOW)
    assert cut == replace(before, state="Off", observed_time=rfc3339_micro(NOW), cut_order_id="order-2")
    on = after_action(cut, StartBoot("order-2", "Pxe", "PowerOn"), LATER)
    assert (on.state, on.order_id, on.cut_order_id) == ("On", "order-2", "order-2")


ORDER = BootOrder(id="order-2", reason="FirstBoot", ordered_time=rfc3339_micro(NOW), attempt=1)
CYCLE = replace(ORDER, reason="Requested", method="PowerCycle")
KEXEC = replace(ORDER, reason="Requested", method="Kexec")
ON, OFF = PowerStatus(state="On", order_id="order-2"), PowerStatus(state="Off", order_id="order-2")


@pytest.mark.parametrize(
    ("spec", "order", "power", "status", "reason"),
    [
        ({}, None, ON, "True", "On"),
        ({}, None, OFF, "False", "PowerOff"),
        ({}, ORDER, replace(OFF, order_id=None), "False", "BootOrdered"),
        ({}, ORDER, replace(ON, order_id="order-1"), "True", "BootOrdered"),
        ({}, ORDER, ON, "True", "On"),
        ({}, CYCLE, replace(ON, order_id="order-1"), "True", "PowerCycling"),
        ({}, CYCLE, replace(OFF, order_id="order-1"), "False", "PowerCycling"),
        ({}, KEXEC, replace(ON, order_id="order-1"), "True", "On"),
        ({"node_pool_ref": None}, None, OFF, "False", "NoNodePool"),
        ({"power_state": "Off"}, None, OFF, "False", "Off"),
        ({"power_state": "Off"}, None, ON, "True", "ShuttingDown"),
    ],
)
def test_the_condition_says_what_is_waited_for(
    spec: dict[str, Any], order: BootOrder | None, power: PowerStatus, status: str, reason: str
) -> None:
    fields: dict[str, Any] = {
        "rack_ref": "r01",
        "boot_mac_address": "52:54:00:00:00:01",
        "bmc": BMC(address="https://10.90.0.11"),
        "acceptance": "Accepted",
        "node_pool_ref": "gpu",
    }
    server = Server(
        metadata=ObjectMeta(name="r01-u01"),
        spec=ServerSpec(**fields | spec),
        status=ServerStatus(order=order, power=power),
    )
    said = describe(server, power)
    assert (said.status, said.reason) == (status, reason)
    assert len(said.message) > 15
