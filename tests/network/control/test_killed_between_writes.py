"""Whoever leads is killed between any two writes of an attachment and of its release, and the next one goes on."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address

import pytest

from provisioner.api import DPUNetwork, NetworkClaim, VPCAttachment
from provisioner.api.machinery.errors import Conflict, Retryable
from provisioner.api.network.network_claim import address_claim
from provisioner.cluster.resources import of
from tests.network.control.objects import attachment, group, pool, rule, vpc
from tests.network.control.world import Killed, World

pytestmark = pytest.mark.slow


def prepared() -> World:
    """Nobody has led yet, and one attachment is there beside the one that is looked at."""
    world = World()
    world.namespace("blue")
    world.add(pool(), vpc("blue", cidrs=["10.1.0.0/24", "fd00:1::/64"]), group("blue", "web", rule()))
    for number in (1, 2):
        world.machine(number, "blue")
    world.add(attachment("blue", "b", "s2"))
    return world


def attach(world: World) -> None:
    world.add(attachment("blue", "a", "s1", securityGroupRefs=["web"]))


def released() -> World:
    """Everything is enforced, and one is to go."""
    world = prepared()
    attach(world)
    world.settle(20)
    assert world.ready("blue", "a") == ("True", "Enforced")
    return world


def release(world: World) -> None:
    world.remove(VPCAttachment, "a", "blue")


def state(world: World) -> dict[str, object]:
    """All that is to be the same in the end, however it came about."""
    specs = {name: body["spec"] for name, body in world.admin.stored(of(DPUNetwork)).items()}
    claims = {
        name: (body["spec"]["holder"]["name"], "releasedTime" in (body.get("status") or {}))
        for name, body in world.admin.stored(of(NetworkClaim)).items()
    }
    statuses = {}
    for key, body in world.admin.stored(of(VPCAttachment)).items():
        status = dict(body["status"])
        conditions = [(each["type"], each["status"], each["reason"]) for each in status.pop("conditions")]
        status.pop("networkGeneration")
        statuses[key] = status, conditions
    return {"specs": specs, "claims": claims, "statuses": statuses}


CASES: dict[str, tuple[Callable[[], World], Callable[[World], None]]] = {
    "attach": (prepared, attach),
    "release": (released, release),
}


def undisturbed(case: str) -> tuple[int, dict[str, object]]:
    make, act = CASES[case]
    world = make()
    world.door.writes = []
    act(world)
    world.settle(60)
    return len(world.door.writes), state(world)


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("case", CASES)
def test_killed_at_every_write_it_ends_as_if_nothing_had_happened(case: str, before: bool) -> None:
    count, wanted = undisturbed(case)
    assert count >= 5
    make, act = CASES[case]
    for last in range(1, count + 1):
        world = make()
        world.door.writes = []
        world.door.last, world.door.before = last, before
        act(world)
        with pytest.raises(Killed):
            world.settle(60)
        world.lead()
        world.settle(60)
        assert state(world) == wanted, f"killed {'before' if before else 'after'} write {last} of {count}"


@pytest.mark.parametrize("fault", [Retryable, Conflict])
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("case", CASES)
def test_where_the_api_server_fails_or_its_answer_is_lost_it_goes_on(
    case: str, before: bool, fault: type[Retryable]
) -> None:
    count, wanted = undisturbed(case)
    make, act = CASES[case]
    for last in range(1, count + 1):
        world = make()
        world.door.writes = []
        world.door.last, world.door.before, world.door.fault = last, before, fault
        act(world)
        world.settle(60)
        assert state(world) == wanted, f"{fault.__name__} {'before' if before else 'after'} write {last} of {count}"


def test_a_value_is_never_two_holders_at_once_whenever_it_is_killed() -> None:
    """Of every moment: what stands in a DPUNetwork is claimed by whose it is."""
    count, _ = undisturbed("release")
    for last in range(1, count + 1):
        world = released()
        world.door.writes = []
        world.door.last, world.door.before = last, False
        release(world)
        with pytest.raises(Killed):
            world.settle(60)
        world.add(attachment("blue", "next", "s1"))
        world.lead()
        for _ in range(300):
            world.settle(0.1)
            for port in world.spec("d1").get("ports") or ():
                claims = world.claims()
                holder = claims["port.d1.pf0"]
                names = [address_claim(port["vni"], ip_address(each)) for each in port["addresses"]]
                assert {claims[name] for name in names} == {holder}
        assert world.ready("blue", "next") == ("True", "Enforced")


def test_two_leaders_at_once_give_nothing_twice() -> None:
    """The old one does not know yet that it leads no more."""
    world = prepared()
    old_controllers, old_informers = world.controllers, world.informers
    world.lead()
    world.controllers += old_controllers
    world.informers += old_informers
    attach(world)
    for number in range(3, 13):
        world.machine(number, "blue")
        world.add(attachment("blue", f"n{number}", f"s{number}"))
    world.settle(60)
    names = ["a", "b", *(f"n{number}" for number in range(3, 13))]
    given = [address for name in names for address in world.attachment("blue", name).status.addresses]
    assert len(set(given)) == len(given) == 2 * len(names)
    assert {world.ready("blue", name) for name in names} == {("True", "Enforced")}
    assert len(world.claims()) == 1 + 3 * len(names)
