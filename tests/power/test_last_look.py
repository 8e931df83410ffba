"""What changes between a decision and its power action keeps the action from being carried out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lab.machine.machine import BootPlan
from provisioner.api.servers.server import Server
from tests.power.node_on_server import node_on, renew_lease, report
from tests.power.power_site import Site
from tests.power.slow_bmc import Once, SlowBmc


def start(
    site: Site, *, at_override: Once | None = None, at_state: Callable[[], None] | None = None, **more: Any
) -> None:
    hooks = {"at_override": at_override or Once(), "at_state": at_state or Once()}
    site.start(connect=lambda access: SlowBmc(access, **hooks), **more)


def switch_on(site: Site) -> None:
    """The machine is on before any order."""
    site.fake.machine.power_on(BootPlan(source="Disk"))


@pytest.fixture
def node(site: Site) -> Iterator[Site]:
    """A site whose server has a Node that a kubelet reported to, and that is not alive."""
    with node_on(site):
        yield site


@pytest.mark.parametrize("skew", [timedelta(), timedelta(hours=1), timedelta(hours=-1)], ids=str)
def test_a_server_whose_lease_was_just_renewed_is_not_reset_while_that_lasts(node: Site, skew: timedelta) -> None:
    """Whatever the node's own clock says: the API server dates the renewal, too."""
    site = node
    switch_on(site)
    site.write_server()
    site.order("order-1")

    def renew() -> None:
        """For as long as it is looked: a slow machine may need longer than a Lease lasts."""
        renew_lease(site, datetime.now(UTC) + skew)

    renew()
    looks = Once()
    start(site, at_state=lambda: (renew(), looks())[1])
    condition = site.wait_for_condition("NodeAlive")
    assert condition.status == "True"
    assert f"Node '{site.name}' is alive: its kubelet renewed its Lease" in condition.message
    assert "order-1" in condition.message
    looks.wait_for(looks.times + 3)
    power = site.read().status.power
    assert power is not None
    assert (power.state, power.order_id, len(site.fake.machine.boots)) == ("On", None, 1)
    site.wait_for_events("NodeAlive")
    site.ahead = timedelta(minutes=1)
    site.wait_for_order("order-1")
    assert len(site.fake.machine.boots) == 2


def test_a_node_that_comes_back_while_the_bmc_is_busy_is_not_reset(node: Site) -> None:
    site = node
    switch_on(site)
    site.write_server()
    join = {"orderID": "order-0", "bootID": "B1"}
    site.cluster.apply_status(Server, site.name, {"join": join}, manager="provisioner-join")
    site.order("order-1")
    start(site, at_override=Once(lambda: report(site, ready="True", boot_id="b1")))
    condition = site.wait_for_condition("NodeAlive")
    assert "it is Ready in boot b1" in condition.message
    assert len(site.fake.machine.boots) == 1


def test_a_node_that_is_not_alive_and_one_without_a_report_do_not_keep_a_server_from_its_reset(node: Site) -> None:
    site = node
    switch_on(site)
    site.write_server()
    site.order("order-1")
    renew_lease(site, datetime.now(UTC) + timedelta(hours=1))
    site.ahead = timedelta(seconds=26)
    start(site)
    site.wait_for_order("order-1")
    report(site, ready="Unknown", boot_id="")
    renew_lease(site, datetime.now(UTC) + timedelta(seconds=26))
    site.order("order-2")
    site.wait_for_order("order-2")
    assert len(site.fake.machine.boots) == 3


def test_a_server_that_is_off_is_powered_on_whatever_its_lease_says(node: Site) -> None:
    site = node
    renew_lease(site, datetime.now(UTC) + timedelta(hours=1))
    site.write_server()
    site.order("order-1")
    start(site)
    site.wait_for_order("order-1")
    assert site.fake.machine.running


@pytest.mark.parametrize("on", [True, False])
def test_a_leader_that_is_stopped_in_the_middle_of_a_boot_does_not_finish_it(site: Site, on: bool) -> None:
    if on:
        switch_on(site)
    before = list(site.fake.machine.boots)
    leadership = threading.Event()
    site.write_server()
    site.order("order-1")
    override, looks = Once(leadership.set), Once()
    start(site, at_override=override, at_state=looks, leadership=leadership)
    override.wait_for(1)
    looks.wait_for(looks.times + 2)  # so the look in which it was stopped has ended
    assert (site.fake.machine.running, site.fake.machine.boots, override.times) == (on, before, 1)
    power = site.read().status.power
    assert power is None or power.order_id is None
    site.stop()
    site.start()
    site.wait_for_order("order-1")


def test_a_leader_that_is_stopped_does_not_switch_a_server_off(site: Site) -> None:
    switch_on(site)
    leadership = threading.Event()
    site.write_server(powerState="Off")
    looks = Once(leadership.set)
    start(site, at_state=looks, leadership=leadership)
    looks.wait_for(3)
    assert site.fake.machine.button_presses == 0
    site.stop()
    site.start()
    site.wait_for_condition("Off")


def test_a_server_is_not_booted_by_an_order_that_was_replaced_meanwhile(site: Site) -> None:
    site.write_server()
    site.order("order-1")
    start(site, at_override=Once(lambda: site.order("order-2")))
    server = site.wait_for_order("order-2")
    assert server.status.power is not None
    assert len(site.fake.machine.boots) == 1


def test_a_server_whose_boot_began_meanwhile_is_not_reset(site: Site) -> None:
    switch_on(site)
    site.write_server()
    site.order("order-1")

    def join() -> None:
        status = {"join": {"orderID": "order-1", "bootID": "b2"}}
        site.cluster.apply_status(Server, site.name, status, manager="provisioner-join")

    start(site, at_override=Once(join))
    site.wait_for_order("order-1")
    assert len(site.fake.machine.boots) == 1
    site.wait_for_events("BootOrderUnderWay")


def test_a_server_whose_acceptance_is_withdrawn_meanwhile_is_not_booted(site: Site) -> None:
    site.write_server()
    site.order("order-1")
    start(site, at_override=Once(lambda: site.write_server(acceptance="Rejected")))
    site.wait_for_condition("NotAccepted")
    assert site.fake.machine.boots == []


def test_a_server_that_was_given_another_bmc_meanwhile_is_not_booted_through_the_old_one(site: Site) -> None:
    site.write_server()
    site.order("order-1")
    start(site, at_override=Once(lambda: site.write_server(bmc={"credentialsName": "absent"})))
    site.wait_for_condition("CredentialsMissing")
    assert site.fake.machine.boots == []
