"""Servers whose BMC speaks IPMI, from the boot order to the machine: real API server, OpenIPMI's ipmi_sim."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lab.machine.machine import BootPlan
from provisioner.api.machinery.errors import NeedsHuman
from provisioner.cluster.client import Cluster
from tests.power.ipmi_sim import PASSWORD, IpmiSim, ipmi_sim
from tests.power.power_site import Site

PXE = BootPlan(source="Pxe")


@pytest.fixture
def sim(tmp_path: Path) -> Iterator[IpmiSim]:
    with ipmi_sim(tmp_path / "ipmi") as made:
        yield made


def write_server(site: Site, sim: IpmiSim, **spec: Any) -> None:
    """The site's server, but its BMC is the other one."""
    body = {
        "apiVersion": "provisioner.dev/v1alpha1",
        "kind": "Server",
        "metadata": {"name": site.name},
        "spec": {
            "rackRef": "r01",
            "bootMACAddress": "52:54:00:00:00:01",
            "acceptance": "Accepted",
            "nodePoolRef": "gpu",
            "bmc": {"address": sim.address, "protocol": "IPMI", "credentialsName": f"{site.name}-bmc"},
        }
        | spec,
    }
    site.cluster.apply(body, manager="test")


@contextmanager
def running(site: Site) -> Iterator[None]:
    site.start()
    try:
        yield
    finally:
        site.stop()


def test_a_server_is_booted_power_cycled_and_switched_off_by_ipmi(site: Site, sim: IpmiSim) -> None:
    site.write_secret(PASSWORD)
    write_server(site, sim)
    with running(site):
        site.wait_for_condition("PowerOff")
        site.order("order-1")
        site.wait_for_order("order-1")
        assert sim.machine.boots == [PXE]
        site.ask("PowerCycle")
        site.order_as_asked("order-2", "PowerCycle")
        site.wait_for_order("order-2")
        assert sim.machine.boots == [PXE, PXE]
        assert sim.said == ["boot pxe", "power 1", "power 0", "boot pxe", "power 1"]
        write_server(site, sim, powerState="Off")
        site.wait_for_condition("Off")
        assert (sim.machine.running, sim.machine.button_presses) == (False, 1)


def test_a_wrong_password_is_told_and_the_right_one_taken_when_the_secret_changes(site: Site, sim: IpmiSim) -> None:
    site.write_secret("guess")
    write_server(site, sim)
    with running(site):
        condition = site.wait_for_condition("CredentialsRefused")
        assert "Incorrect password provided" in condition.message
        assert "guess" not in condition.message
        site.write_secret(PASSWORD)
        write_server(site, sim, position="u09")
        site.wait_for_condition("PowerOff")


def test_a_server_that_is_given_a_redfish_bmc_instead_is_spoken_to_by_redfish(site: Site, sim: IpmiSim) -> None:
    site.write_secret(PASSWORD)
    write_server(site, sim)
    with running(site):
        site.wait_for_condition("PowerOff")
        site.write_secret()
        site.write_server()
        site.order("order-1")
        site.wait_for_order("order-1")
    assert (sim.machine.boots, len(site.fake.machine.boots)) == ([], 1)


def test_an_address_of_the_other_protocol_is_refused_by_the_api_server(cluster: Cluster, unique: str) -> None:
    body = {
        "apiVersion": "provisioner.dev/v1alpha1",
        "kind": "Server",
        "metadata": {"name": unique},
        "spec": {"bootMACAddress": "52:54:00:00:00:01", "bmc": {"address": "https://10.90.0.1", "protocol": "IPMI"}},
    }
    with pytest.raises(NeedsHuman, match=r"protocol IPMI: write ipmi://10\.90\.0\.1, or set protocol to Redfish"):
        cluster.apply(body, manager="test", dry_run=True)
