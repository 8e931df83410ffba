"""Which host a DPU is told to boot, and that it is told of no other."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.api import Server
from provisioner.api.machinery.codec import decode
from provisioner.api.network.dpu_network import HostBoot
from provisioner.network.control.records.facts import host_boot
from tests.network.control.objects import card, pool, tenants_server
from tests.network.control.world import World

TOLD = HostBoot(server="s1", function="pf0", mac_address="52:54:00:00:00:01", address="10.80.0.21")


def dpu(host: str = "s1", acceptance: str = "Accepted", **changes: Any) -> Server:
    return decode(Server, card("d1", host, 1, acceptance, **({"hostBoot": "Proxied"} | changes)))


def host(name: str = "s1", address: str | None = "10.80.0.21", **spec: Any) -> Server:
    body = tenants_server(name, "blue", 1)
    body["spec"] |= {"acceptance": "Accepted"} | spec
    body["status"] = {"address": address} if address else {}
    return decode(Server, body)


def test_a_card_that_is_told_to_hears_its_hosts_address_and_by_which_function_it_boots() -> None:
    assert host_boot(dpu(), host()) == TOLD


def test_a_function_that_has_the_boot_mac_address_is_the_one_that_boots() -> None:
    functions = [
        {"name": "pf0", "macAddress": "52:54:00:00:00:99"},
        {"name": "pf1", "macAddress": "52:54:00:00:00:01"},
    ]
    told = host_boot(dpu(functions=functions), host())
    assert told is not None
    assert told.function == "pf1"


@pytest.mark.parametrize(
    ("card_", "host_"),
    [
        (dpu(hostBoot="Direct"), host()),
        (dpu(acceptance="Pending"), host()),
        (dpu(acceptance="Rejected"), host()),
        (dpu("s2"), host()),
        (dpu(), host(address=None)),
        (dpu(), host(acceptance="Pending")),
        (dpu(), None),
        (dpu(functions=[{"name": "pf0", "macAddress": "52:54:00:00:00:99"}]), host()),
    ],
    ids=[
        "not told to",
        "not accepted",
        "rejected",
        "in another server",
        "no address yet",
        "the host is not accepted",
        "there is no such host",
        "boots by none of its functions",
    ],
)
def test_no_host_boots_through_it(card_: Server, host_: Server | None) -> None:
    assert host_boot(card_, host_) is None


def test_each_dpu_is_told_of_its_own_host_alone_as_soon_as_that_has_an_address() -> None:
    world = World()
    world.namespace("blue")
    world.add(pool())
    for number in (1, 2, 3):
        world.machine(number, "blue", **({"hostBoot": "Proxied"} if number < 3 else {}))
        world.change(Server, f"s{number}", acceptance="Accepted")
    world.settle()
    assert all("hostBoot" not in world.spec(each) for each in ("d1", "d2", "d3"))
    for number in (1, 2, 3):
        world.admin.apply_status(Server, f"s{number}", {"address": f"10.80.0.2{number}"}, manager="tests")
    world.settle()
    assert {each: world.spec(each).get("hostBoot", {}).get("address") for each in ("d1", "d2", "d3")} == {
        "d1": "10.80.0.21",
        "d2": "10.80.0.22",
        "d3": None,
    }
    world.change(Server, "d1", dpu={"hostBoot": "Direct"})
    world.settle()
    assert "hostBoot" not in world.spec("d1")
