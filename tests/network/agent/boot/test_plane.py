"""The boot plane in a kernel: what of a host's port arrives in it, and what leaves it."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest

from provisioner.api.dpu_network import DPUNetworkSpec
from provisioner.network.agent.boot.plane import BootingHost, booting_host
from tests.network.agent.boot.site import BOOT_HOST, HOST_ADDRESS, PLANE_MAC, Site, boots, told
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
        said = site.host.run("busybox", "arping", "-c", "1", "-w", "2", "-I", "eth0", address)
        assert PLANE_MAC in said.stdout.lower()
