"""Boots that a Maintenance asks for: of a server whose Node lives, and only on that Maintenance's word."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lab.machine.machine import BootPlan
from provisioner.api.nodes.maintenance import Maintenance
from provisioner.power.bmc.power_controller import BmcAccess, BmcRefused
from provisioner.power.bmc.redfish import RedfishPower
from tests.power.node_on_server import node_on, renew_lease
from tests.power.power_site import PINNED, Site
from tests.power.slow_bmc import Once, SlowBmc

HTTP = BootPlan(source="UefiHttp", http_boot_uri=PINNED)
DISK = BootPlan(source="Disk")


@pytest.fixture
def alive(site: Site) -> Iterator[Site]:
    """A server that is on, and whose Node lives."""
    with node_on(site):
        renew_lease(site, datetime.now(UTC) + timedelta(hours=1))
        site.fake.machine.power_on(DISK)
        site.write_server()
        yield site


def slow(*, at_override: Once | None = None, at_state: Once | None = None) -> Callable[[BmcAccess], SlowBmc]:
    hooks = {"at_override": at_override or Once(), "at_state": at_state or Once()}
    return lambda access: SlowBmc(access, **hooks)


def test_a_living_node_is_reset_where_its_maintenance_asks_for_it(alive: Site) -> None:
    alive.ask("Reset")
    alive.order_as_asked("order-1", "Reset")
    alive.start()
    alive.wait_for_order("order-1")
    assert alive.fake.machine.boots == [DISK, HTTP]
    alive.wait_for_condition("On")


def test_a_living_node_is_power_cycled_where_its_maintenance_asks_for_it(alive: Site) -> None:
    alive.ask("PowerCycle")
    alive.order_as_asked("order-1", "PowerCycle")
    alive.start()
    power = alive.wait_for_order("order-1").status.power
    assert power is not None
    assert (power.cut_order_id, power.state) == ("order-1", "On")
    assert alive.fake.machine.boots == [DISK, HTTP]
    alive.wait_for_events("PowerCycling", "BootOrderAccepted")
    assert "PowerLost" not in alive.event_reasons(), "it was cut on purpose"


@pytest.mark.parametrize("method", ["Reset", "PowerCycle"])
def test_a_server_that_is_off_already_is_powered_on(site: Site, method: str) -> None:
    site.write_server()
    site.ask(method)
    site.order_as_asked("order-1", method)
    site.start()
    site.wait_for_order("order-1")
    assert site.fake.machine.boots == [HTTP]


@pytest.mark.parametrize("method", ["Kexec", "Reboot"])
def test_a_boot_that_the_agent_carries_out_is_left_to_it(alive: Site, method: str) -> None:
    alive.ask(method)
    alive.order_as_asked("order-1", method)
    looks = Once()
    alive.start(connect=slow(at_state=looks))
    looks.wait_for(4)
    alive.wait_for_condition("On")
    power = alive.read().status.power
    assert power is not None
    assert (power.order_id, alive.fake.machine.boots) == (None, [DISK])


@pytest.mark.parametrize("method", ["Reset", "PowerCycle"])
def test_without_the_word_of_its_maintenance_the_server_is_left_on(alive: Site, method: str) -> None:
    alive.order_as_asked("order-1", method)
    alive.start()
    condition = alive.wait_for_condition("NotAskedFor")
    assert f"Maintenance {alive.name}-1, which asked for it, is gone" in condition.message
    alive.ask(method, endedTime="2026-01-02T03:04:05Z")
    alive.ask("Kexec", id="try-2")
    looks = Once()
    alive.stop()
    alive.start(connect=slow(at_state=looks))
    looks.wait_for(4)
    assert alive.fake.machine.boots == [DISK]
    assert alive.fake.machine.running
    alive.ask(method)
    alive.wait_for_order("order-1")
    assert alive.fake.machine.boots == [DISK, HTTP]


def test_a_maintenance_that_vanishes_while_the_bmc_is_busy_has_no_word_any_more(alive: Site) -> None:
    alive.ask("Reset")
    alive.order_as_asked("order-1", "Reset")
    alive.start(connect=slow(at_override=Once(alive.withdraw)))
    alive.wait_for_condition("NotAskedFor")
    assert alive.fake.machine.boots == [DISK]


def test_a_maintenance_that_ends_between_look_and_cut_has_no_word_any_more(alive: Site) -> None:
    def end() -> None:
        alive.cluster.apply_status(
            Maintenance, f"{alive.name}-1", {"phase": "Cancelled"}, manager="provisioner-maintenance"
        )

    alive.ask("PowerCycle")
    alive.order_as_asked("order-1", "PowerCycle")
    alive.start(connect=slow(at_state=Once(end)))
    condition = alive.wait_for_condition("NotAskedFor")
    assert "its phase is Cancelled, not Rebooting" in condition.message
    assert alive.fake.machine.running


def test_a_server_that_was_cut_is_powered_on_though_its_maintenance_vanished(alive: Site) -> None:
    alive.ask("PowerCycle")
    alive.order_as_asked("order-1", "PowerCycle")
    alive.start(connect=slow(at_override=Once(alive.withdraw)))
    alive.wait_for_order("order-1")
    assert alive.fake.machine.boots == [DISK, HTTP]


def test_a_later_order_of_the_same_maintenance_does_not_reset_a_living_node(alive: Site) -> None:
    alive.ask("PowerCycle")
    alive.order_as_asked("order-2", "PowerCycle", reason="TimedOut")
    alive.start()
    alive.wait_for_condition("NodeAlive")
    assert alive.fake.machine.boots == [DISK]


def test_a_bmc_that_never_says_off_is_told_and_goes_on_once_it_does(
    alive: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alive.fake.machine, "power_off", lambda: None)
    alive.ask("PowerCycle")
    alive.order_as_asked("order-1", "PowerCycle")
    alive.start()
    condition = alive.wait_for_condition("PowerCycling")
    assert (condition.status, "its BMC says that it is on" in condition.message) == ("True", True)
    power = alive.read().status.power
    assert power is not None
    assert (power.order_id, power.cut_order_id) == (None, None)
    monkeypatch.undo()
    alive.wait_for_order("order-1")
    assert alive.fake.machine.boots == [DISK, HTTP]


def test_a_leader_that_is_stopped_does_not_cut_the_power(alive: Site) -> None:
    leadership = threading.Event()
    looks = Once(leadership.set)
    alive.ask("PowerCycle")
    alive.order_as_asked("order-1", "PowerCycle")
    alive.start(connect=slow(at_state=looks), leadership=leadership)
    looks.wait_for(3)
    assert alive.fake.machine.running
    alive.stop()
    alive.start()
    alive.wait_for_order("order-1")
    assert alive.fake.machine.boots == [DISK, HTTP]


class RefusesOverrides(RedfishPower):
    """Until `refuses` is cleared."""

    refuses = True

    def set_boot_override(self, *args: Any) -> None:
        if RefusesOverrides.refuses:
            raise BmcRefused("BMC refused the request (HTTP 400): no", reason="RequestRefused", hint="ask its vendor")
        super().set_boot_override(*args)


def test_a_refused_override_in_the_middle_of_a_power_cycle_is_told_and_tried_again(
    alive: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("provisioner.power.reconcile._REFUSED_SECONDS", 0.3)
    monkeypatch.setattr(RefusesOverrides, "refuses", True)
    alive.ask("PowerCycle")
    alive.order_as_asked("order-1", "PowerCycle")
    alive.start(connect=RefusesOverrides)
    alive.wait_for_condition("RequestRefused")
    assert not alive.fake.machine.running, "it is not powered on to boot from anywhere"
    power = alive.read().status.power
    assert power is not None
    assert (power.order_id, power.cut_order_id) == (None, "order-1")
    monkeypatch.setattr(RefusesOverrides, "refuses", False)
    alive.wait_for_order("order-1")
    assert alive.fake.machine.boots == [DISK, HTTP]
