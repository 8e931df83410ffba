"""A stolen DPU says of its kernel what it likes: it can hold back what it was given, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.api import VPC, DPUNetwork, NetworkClaim, VPCAttachment
from provisioner.cluster.resources import of
from tests.network.control.objects import attachment, pool, vpc
from tests.network.control.world import World

Object = dict[str, Any]


@pytest.fixture
def world() -> World:
    made = World()
    made.namespace("blue", "green")
    made.add(pool(), vpc("blue"), vpc("green"))
    for number, tenant in ((1, "blue"), (2, "blue"), (3, "green")):
        made.machine(number, tenant)
    made.add(attachment("blue", "a", "s1"), attachment("blue", "b", "s2"), attachment("green", "c", "s3"))
    made.settle()
    return made


def remove_blue(world: World) -> str:
    """Returns: name of the claim of its VNI."""
    name = f"vni-{world.vpc('blue').status.vni}"
    for each in ("a", "b"):
        world.remove(VPCAttachment, each, "blue")
    world.remove(VPC, "main", "blue")
    world.settle(70)
    return name


def test_the_honest_twin_all_confirm_and_all_is_free(world: World) -> None:
    assert remove_blue(world) not in world.claims()
    assert "blue" not in {holder.partition("/")[0] for holder in world.claims().values()}


def test_a_dpu_that_says_it_has_the_vnis_of_others_keeps_none_of_them_back(world: World) -> None:
    everything = list(range(10001, 10101))
    world.lies["d3"] = lambda _, honest: honest | {"vnis": everything}
    world.settle()
    assert remove_blue(world) not in world.claims()


def test_a_dpu_that_confirms_nothing_keeps_back_what_it_was_given(world: World) -> None:
    world.lies["d1"] = lambda _, honest: honest | {"observedGeneration": 1}
    name = remove_blue(world)
    assert world.admin.get(of(NetworkClaim), name)["status"]["waitsFor"] == ["d1"]
    assert "port.d1.pf0" in world.claims()
    assert "port.d2.pf0" not in world.claims(), "another's port is free"
    assert world.ready("green", "c") == ("True", "Enforced")


def test_a_dpu_that_goes_on_to_say_it_knows_a_vni_keeps_that_one_back(world: World) -> None:
    blue = world.vpc("blue").status.vni
    world.lies["d1"] = lambda _, honest: honest | {"vnis": [blue]}
    name = remove_blue(world)
    assert world.admin.get(of(NetworkClaim), name)["status"]["waitsFor"] == ["d1"]


def test_a_dpu_that_confirms_what_is_to_come_is_not_believed(world: World) -> None:
    world.lies["d1"] = lambda _, honest: honest | {"observedGeneration": 2**40, "vnis": []}
    world.add(attachment("blue", "vf", "s1", function="pf0vf1"))
    world.settle()
    assert world.ready("blue", "vf") == ("False", "WaitsForDPU")
    world.remove(VPCAttachment, "vf", "blue")
    name = remove_blue(world)
    assert world.admin.get(of(NetworkClaim), name)["status"]["waitsFor"] == ["d1"]


def test_a_dpu_that_confirms_what_it_has_not_done_has_only_its_own_values_released_early(world: World) -> None:
    """It has them anyway; what another one has in its kernel waits for that one."""
    world.silent = {"d2"}
    world.lies["d1"] = lambda body, honest: honest | {"observedGeneration": body["metadata"]["generation"], "vnis": []}
    name = remove_blue(world)
    assert "port.d1.pf0" not in world.claims()
    assert world.admin.get(of(NetworkClaim), name)["status"]["waitsFor"] == ["d2"]


def test_what_a_dpu_says_of_itself_changes_nothing_that_is_told_to_others(world: World) -> None:
    before = {name: body["spec"] for name, body in world.admin.stored(of(DPUNetwork)).items()}
    world.lies["d1"] = lambda _, honest: {
        "observedGeneration": 7,
        "vnis": [1, 2, 3],
        "ports": [{"function": "pf0vf9", "state": "Tenant"}],
    }
    world.settle(20)
    assert {name: body["spec"] for name, body in world.admin.stored(of(DPUNetwork)).items()} == before
