"""Somebody has a bootstrap token. docs/threat-model.md, "Stolen token"."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from provisioner.api.machinery.errors import Refused
from provisioner.api.servers.server import Server
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import LEASES, NODES, PODS, SECRETS, of
from tests.join.conftest import accounts, make_world, world
from tests.join.world import World, ask, certificate_pem

__all__ = ["accounts", "make_world", "world"]


def request_for(name: str) -> bytes:
    return certificate_pem(ec.generate_private_key(ec.SECP256R1()), f"system:node:{name}")


def test_it_does_not_make_another_node(world: World, make_world: Callable[..., World]) -> None:
    other = make_world("b")
    other.order("order-1")
    other.joined()
    thief = world.with_token(world.joined())
    assert world.decide(ask(thief, request_for(other.name))) == "WrongToken"
    assert world.decide(ask(thief, request_for("some-new-node"))) == "UnknownServer"


def test_it_does_not_make_a_second_node(world: World) -> None:
    token = world.with_token(world.joined())
    assert world.decide(ask(token, request_for(world.name))) == "Approved"
    assert world.decide(ask(token, request_for(world.name))) == "TokenSpent"


def test_it_does_not_outlive_the_repeat_of_the_request(world: World) -> None:
    stolen = world.with_token(world.joined())
    csr = ask(stolen, request_for(world.name))
    rightful = world.with_token(world.joined())
    assert world.decide(csr) == "WrongToken"
    assert world.decide(ask(rightful, request_for(world.name))) == "Approved"


def test_it_does_not_outlive_the_certificate(world: World) -> None:
    token = world.with_token(world.joined())
    csr = ask(token, request_for(world.name))
    assert world.decide(csr) == "Approved"
    world.wait_for_certificate(csr)
    world.decide(csr)
    assert world.tokens() == []


@pytest.mark.parametrize(
    "act",
    [
        lambda cluster, world: cluster.list(NODES),
        lambda cluster, world: cluster.get(NODES, world.name),
        lambda cluster, world: cluster.list(PODS),
        lambda cluster, world: cluster.list(SECRETS, namespace="kube-system"),
        lambda cluster, world: cluster.list(LEASES, namespace="kube-node-lease"),
        lambda cluster, world: cluster.get(of(Server), world.name),
        lambda cluster, world: cluster.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "x"}}),
        lambda cluster, world: cluster.delete(NODES, world.name),
    ],
    ids=["nodes", "its node", "pods", "tokens", "leases", "its server", "a new node", "no node"],
)
def test_it_reads_and_writes_nothing_but_certificate_requests(
    world: World, act: Callable[[Cluster, World], object]
) -> None:
    with pytest.raises(Refused, match="forbidden"):
        act(world.with_token(world.joined()), world)
