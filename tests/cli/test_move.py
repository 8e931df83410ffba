"""`kubectl provision move`: what a person wishes, refused where it can never come true."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from provisioner.api import Image, NodePool, Server
from provisioner.api.machinery.codec import encode
from provisioner.cluster.resources import of
from tests.boot.objects import image
from tests.cli.rack_of_nodes import API, RackOfNodes


@pytest.fixture
def other(rack: RackOfNodes) -> Iterator[str]:
    """A second NodePool, with an Image for x86_64."""
    name = f"{rack.prefix}-other"
    rack.admin.create(of(Image), {**encode(image(name)), "status": {}})
    spec = {"imageRef": name, "attestation": "Optional"}
    rack.admin.create(of(NodePool), {"apiVersion": API, "kind": "NodePool", "metadata": {"name": name}, "spec": spec})
    yield name
    rack.admin.delete(of(NodePool), name)
    rack.admin.delete(of(Image), name)


def wish(rack: RackOfNodes, name: str) -> str | None:
    return rack.admin.read(Server, name).spec.node_pool_ref


def in_use(rack: RackOfNodes, name: str, pool: str) -> None:
    running = {"nodeRef": name, "nodePoolRef": pool}
    rack.admin.apply_status(Server, name, running, manager="provisioner-boot-controller")


def test_a_server_in_use_moves_when_its_jobs_have_ended_and_may_be_moved_back_before(
    rack: RackOfNodes, other: str
) -> None:
    name, home = rack.add(nodePoolRef=rack.prefix), rack.prefix
    in_use(rack, name, home)
    said = rack.done("move", name, "--to", other)
    assert f"server/{name} moves from NodePool {home} to {other} when its jobs have ended" in said
    assert f"kubectl provision rollout status {other}" in said
    assert wish(rack, name) == other
    said = rack.done("move", name, "--to", home)
    assert f"server/{name} is in NodePool {home}, and stays there: it does not move any more" in said
    assert wish(rack, name) == home


def test_a_server_on_which_nothing_runs_is_in_the_other_pool_at_once(rack: RackOfNodes, other: str) -> None:
    name = rack.add(nodePoolRef=rack.prefix)
    assert f"is booted for NodePool {other} from now on" in rack.done("move", name, "--to", other)


def test_a_dry_run_changes_nothing(rack: RackOfNodes, other: str) -> None:
    name = rack.add(nodePoolRef=rack.prefix)
    assert "(server dry run)" in rack.done("move", name, "--to", other, "--dry-run")
    assert wish(rack, name) == rack.prefix


def test_servers_that_cannot_run_the_pools_image_are_named_and_none_is_moved(rack: RackOfNodes, other: str) -> None:
    fits, foreign = rack.add(nodePoolRef=rack.prefix), rack.add(nodePoolRef=rack.prefix, architecture="arm64")
    result = rack.run("move", fits, foreign, "--to", other)
    assert result.exit_code != 0
    assert f"Image {other} of NodePool {other} is for x86_64, and {foreign} is not" in result.output
    assert wish(rack, fits) == rack.prefix


def test_a_pool_that_does_not_exist_is_refused(rack: RackOfNodes) -> None:
    name = rack.add(nodePoolRef=rack.prefix)
    result = rack.run("move", name, "--to", "nowhere")
    assert result.exit_code != 0
    assert "there is no NodePool nowhere" in result.output
