"""The boot plane in a kernel: what of a host's port arrives in it, and what leaves it."""

from __future__ import annotations

import json
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from provisioner.api.machinery.codec import to_json
from provisioner.api.network.dpu_network import DPUNetworkSpec
from provisioner.network.agent.boot.plane import BootingHost, booting_host
from provisioner.network.agent.desired import wanted_state
from provisioner.network.agent.model.state import HOME
from provisioner.network.agent.preflight import examine
from provisioner.network.agent.situation import DpuInputs, Underlay
from tests.network.agent.boot.site import BOOT_HOST, HOST_ADDRESS, PLANE_MAC, SERVICES, Site, boots, told
from tests.network.agent.rack import Rack
from tests.network.agent.specs import port, vpc


@pytest.fixture
def site(network: Rack) -> Site:
    return Site(network)


ISOLATED = told(host_boot=boots())
ATTACHED = told(host_boot=boots(), vpcs=(vpc(),), ports=(port("10.1.0.3"), port("10.1.0.5", function="pf1")))


@pytest.mark.parametrize("spec", [ISOLATED, ATTACHED], ids=["a host in no VPC", "a host in a VPC"])
def test_a_dump_agrees_and_a_second_look_changes_nothing(site: Site, spec: DPUNetworkSpec) -> None:
    done = site.enforce(spec)
    assert (done.problems, done.agrees) == ((), True)
    again = site.enforce(spec)
    assert (again.agrees, again.changes) == (True, 0)
    found = site.dpu.inside(lambda: booting_host(site.enforcer.observe().places))
    assert found == BootingHost("pf0", site.host.mac, IPv4Address(HOST_ADDRESS))


def test_it_follows_its_port_into_a_vpc_and_out_of_it_and_goes_with_it(site: Site) -> None:
    for spec in (ISOLATED, ATTACHED, ISOLATED, ATTACHED):
        done = site.enforce(spec)
        assert (done.problems, done.agrees) == ((), True)
    done = site.enforce(told(host_boot=None))
    assert (done.problems, done.agrees) == ((), True)
    assert site.plane() not in site.dpu.domains()
    site.enforce(ISOLATED)
    assert site.dpu.inside(site.enforcer.release).agrees
    assert site.dpu.domains() == []


@pytest.mark.parametrize("spec", [ISOLATED, ATTACHED], ids=["a host in no VPC", "a host in a VPC"])
def test_every_address_that_the_host_asks_for_is_the_dpu(site: Site, spec: DPUNetworkSpec) -> None:
    site.enforce(spec)
    site.take_boot_address()
    for address in (BOOT_HOST, "192.0.2.254"):
        said = site.host.run("busybox", "arping", "-f", "-w", "20", "-I", "eth0", address)
        assert PLANE_MAC in said.stdout.lower()


@pytest.mark.parametrize("mistyped", ["boot_host", "api_server"])
def test_a_host_that_has_the_address_of_what_it_boots_from_is_told_of(network: Rack, mistyped: str) -> None:
    own = IPv4Address(HOST_ADDRESS)
    services = replace(SERVICES, boot_host=own) if mistyped == "boot_host" else replace(SERVICES, api_server=own)
    done = Site(network, services).enforce(ATTACHED)
    assert [each.reason for each in done.problems] == ["SpecUnreadable"]
    assert HOST_ADDRESS in done.problems[0].message
    assert (done.agrees, done.boot) == (False, None)


def test_an_agent_that_was_not_told_of_the_boot_host_says_so_and_keeps_nobody_waiting(network: Rack) -> None:
    site = Site(network)
    site.enforcer = site.dpu.enforcer
    done = site.enforce(ATTACHED)
    assert [each.reason for each in done.problems] == ["BootServicesUnknown"]
    assert (done.agrees, done.holds, done.boot) == (False, True, None)
    assert site.plane() not in site.dpu.domains()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"address": "224.0.0.1"}, "SpecUnreadable"),
        ({"address": "10.1.0.300"}, "SpecUnreadable"),
        ({"mac_address": "53:54:00:00:00:01"}, "SpecUnreadable"),
        ({"mac_address": "52:54:00:99:99:99"}, "SpecUnreadable"),
        ({"function": "pf3"}, "PortMissing"),
    ],
    ids=["a group", "no address", "a group's MAC", "another MAC than in its VPC", "no such function"],
)
def test_a_host_that_cannot_be_is_told_of_and_the_ports_are_as_they_were(
    site: Site, changes: dict[str, str], reason: str
) -> None:
    done = site.enforce(replace(ATTACHED, host_boot=replace(boots(), **changes)))
    assert [each.reason for each in done.problems] == [reason]
    assert (done.holds, done.boot) == (True, None)
    assert [each.state for each in done.ports] == ["Tenant", "Tenant"]


def test_in_vrfs_the_link_lies_beside_the_port_at_home() -> None:
    situation = DpuInputs(
        backend="vrf",
        owner="",
        interfaces={"pf0": "pf0hpf", "pf1": "pf1hpf"},
        largest_mtus={"pf0": 9216, "pf1": 9216},
        underlay=Underlay("uplink", 9216),
        has_conntrack=True,
        boot=SERVICES,
    )
    for spec in (ISOLATED, ATTACHED):
        wanted = wanted_state(examine(spec, situation), situation)
        assert set(wanted) == {HOME, "vpc-boot"}
        assert {each.name for each in wanted[HOME].links} >= {"pf0hpf", "boot-pf0"}
        assert {each.kind for each in wanted["vpc-boot"].routes} == {"local", "unicast"}
        assert booting_host(wanted) == BootingHost("pf0", boots().mac_address, IPv4Address(HOST_ADDRESS))


def test_the_agent_as_a_program_makes_the_plane_and_wants_both_addresses(site: Site, tmp_path: Path) -> None:
    (tmp_path / "spec").write_text(json.dumps(to_json(ISOLATED)))
    told_of = ("--boot-host", BOOT_HOST, "--api-server", f"{BOOT_HOST}:6443")
    ran = site.dpu.agent("once", "--spec", str(tmp_path / "spec"), *told_of)
    assert (ran.returncode, json.loads(ran.stdout)["agrees"]) == (0, True)
    assert site.plane() in site.dpu.domains()
    for bad in (told_of[:2], told_of[2:], ("--boot-host", "boot", *told_of[2:]), (*told_of[:3], f"{BOOT_HOST}:0")):
        assert site.dpu.agent("once", "--spec", str(tmp_path / "spec"), *bad).returncode == 2
