"""What a tenant tries with the objects that are its own, on an API server in memory; each beside what it may."""

from __future__ import annotations

import pytest

from provisioner.api import DPU, VPC, Server, VPCAttachment
from provisioner.cluster.resources import of
from tests.network.control.objects import attachment, pool, vpc
from tests.network.control.world import World


@pytest.fixture
def world() -> World:
    """Two tenants, two machines of the one and one of the other, each with an attachment."""
    made = World()
    made.namespace("blue", "red")
    made.add(pool(), vpc("blue"), vpc("red", cidrs=["10.2.0.0/24"]))
    for number, tenant in ((1, "blue"), (2, "blue"), (3, "red")):
        made.machine(number, tenant)
        made.add(attachment(tenant, f"a{number}", f"s{number}"))
    made.settle()
    return made


def state(world: World, dpu: str) -> list[str]:
    return [each["state"] for each in world.spec(dpu).get("ports", ())]


# Quarantine


def test_a_tenant_does_not_lift_a_quarantine_that_the_administrators_have_set_on_its_server(world: World) -> None:
    addresses = world.attachment("blue", "a1").status.addresses
    world.change(Server, "s1", networkQuarantined=True)
    world.settle()
    assert state(world, "d1") == ["Quarantined"]
    assert world.spec("d2")["vpcs"][0].get("remotes") is None, "nobody sends there any more"
    assert world.ready("blue", "a1") == ("False", "Quarantined")
    assert "administrators" in world.message("blue", "a1")
    assert world.attachment("blue", "a1").status.addresses == addresses

    world.change(VPCAttachment, "a1", "blue", quarantined=False)
    world.remove(VPCAttachment, "a1", "blue")
    world.settle()
    world.add(vpc("blue", "other"), attachment("blue", "again", "s1", vpcRef="other"))
    world.add(attachment("blue", "vf", "s1", function="pf0vf1"))
    world.settle()
    assert state(world, "d1") == ["Quarantined", "Quarantined"]

    world.change(Server, "s1", networkQuarantined=False)
    world.settle()
    assert state(world, "d1") == ["Tenant", "Tenant"]


def test_a_tenant_lifts_a_quarantine_of_its_own(world: World) -> None:
    """The honest twin of the one above."""
    world.change(VPCAttachment, "a1", "blue", quarantined=True)
    world.settle()
    assert state(world, "d1") == ["Quarantined"]
    assert "spec.quarantined" in world.message("blue", "a1")
    world.change(VPCAttachment, "a1", "blue", quarantined=False)
    world.settle()
    assert state(world, "d1") == ["Tenant"]


def test_a_quarantine_of_a_function_holds_for_its_tenant_and_for_no_other(world: World) -> None:
    functions = [{"name": "pf0vf1", "tenant": "red", "quarantined": True}]
    world.change(DPU, "d1", functions=functions)
    world.add(attachment("red", "vf", "s1", function="pf0vf1"))
    world.settle()
    assert state(world, "d1") == ["Tenant", "Quarantined"]
    world.change(Server, "s1", networkQuarantined=True)
    world.settle()
    assert state(world, "d1") == ["Quarantined", "Quarantined"], "that of a server holds for all of its functions"


# What a tenant leaves behind


def test_a_tenant_keeps_no_port_of_a_server_that_was_taken_from_it(world: World) -> None:
    """A finalizer keeps its attachment there as long as it likes; it is being deleted all the same, for good."""
    body = attachment("blue", "a1", "s1")
    body["metadata"]["finalizers"] = ["blue.example/never"]
    world.add(body)
    world.remove(VPCAttachment, "a1", "blue")
    world.settle()
    assert world.admin.get(of(VPCAttachment), "a1", namespace="blue")["metadata"]["deletionTimestamp"]
    assert state(world, "d1") == []
    world.change(Server, "s1", tenant="red")
    world.add(attachment("red", "mine", "s1"))
    world.settle()
    assert world.ready("red", "mine") == ("True", "Enforced")


def test_a_vpc_that_a_tenant_never_lets_go_of_keeps_no_identifier(world: World) -> None:
    body = vpc("blue")
    body["metadata"]["finalizers"] = ["blue.example/never"]
    world.add(body)
    vni = world.vpc("blue").status.vni
    for name in ("a1", "a2"):
        world.remove(VPCAttachment, name, "blue")
    world.remove(VPC, "main", "blue")
    world.settle(40)
    assert f"vni-{vni}" not in world.claims()
