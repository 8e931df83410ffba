"""Requests that an approver cannot read, and those of who has no right to a boot any more: none is left pending, for
another approver to find. docs/threat-model.md, "Stolen token" and "Stolen certificate"."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from provisioner.api.machinery.codec import encode
from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.meta import ObjectMeta
from provisioner.api.nodes.maintenance import Maintenance, MaintenanceSpec, Requestor
from provisioner.api.servers.server import Server
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import NODES, of
from provisioner.join.certificates.approve import SERVING_SIGNER
from provisioner.join.nodes.node_object import SERVER_UID_ANNOTATION
from tests.join.conftest import accounts, make_world, world
from tests.join.der import KEY, Parts, signed
from tests.join.test_csr import dns, foreign_token
from tests.join.test_csr_decisions import UNREADABLE
from tests.join.world import World, ask, certificate_pem

__all__ = ["accounts", "make_world", "world"]

SERVER_USAGES = ("digital signature", "server auth")


def client_pem(world: World) -> bytes:
    """What an honest kubelet asks for."""
    return certificate_pem(ec.generate_private_key(ec.SECP256R1()), f"system:node:{world.name}")


def ask_to_serve(node: Cluster, world: World) -> str:
    pem = certificate_pem(
        ec.generate_private_key(ec.SECP256R1()), f"system:node:{world.name}", alternative=[dns(world.name)]
    )
    return ask(node, pem, signer=SERVING_SIGNER, usages=SERVER_USAGES)


def unreadable(world: World, why: str) -> bytes:
    subject = Parts.of(certificate_pem(KEY, f"system:node:{world.name}")).subject
    return signed(replace(UNREADABLE[why], subject=subject).whole())


@pytest.mark.parametrize("why", UNREADABLE)
def test_what_the_api_server_takes_and_the_approver_cannot_read_is_denied(world: World, why: str) -> None:
    token = world.with_token(world.joined())
    assert world.decide(ask(token, unreadable(world, why))) == "Malformed"
    honest = ask(token, client_pem(world))
    assert world.decide(honest) == "Approved", "the token is not spent by what was denied"


def test_a_node_that_asks_so_is_denied_and_goes_on_renewing(world: World) -> None:
    node = world.become_node()
    for why in UNREADABLE:
        assert world.decide(ask(node, unreadable(world, why))) == "Malformed"
    assert world.decide(ask(node, client_pem(world))) == "Approved"


def test_another_joiner_does_not_get_our_name_by_a_request_that_the_approver_cannot_read(world: World) -> None:
    kubeadm = foreign_token(world)
    for why in UNREADABLE:
        assert world.decide(ask(kubeadm, unreadable(world, why))) == "NameTaken"
    twice = unreadable(world, "version 1") + certificate_pem(KEY, "system:node:control-plane-1")
    assert world.decide(ask(kubeadm, twice)) == "NameTaken"
    version_1 = replace(UNREADABLE["version 1"], subject=Parts.of(certificate_pem(KEY, "system:node:cp-1")).subject)
    assert world.decide(ask(kubeadm, signed(version_1.whole()))) == "Pending", "its own affair"


def test_the_node_of_a_deleted_server_gets_no_certificate(world: World) -> None:
    thief = world.become_node()
    world.admin.delete(of(Server), world.name)
    assert world.decide(ask(thief, client_pem(world))) == "ServerDeleted"
    assert world.decide(ask_to_serve(thief, world)) == "ServerDeleted"
    assert world.decide(ask(thief, unreadable(world, "version 1"))) == "ServerDeleted"


def test_it_does_not_take_the_mark_off_its_node_to_pass_for_another_joiners(world: World) -> None:
    thief = world.become_node()
    world.admin.delete(of(Server), world.name)
    unmarked = {"metadata": {"annotations": {SERVER_UID_ANNOTATION: None}}}
    with pytest.raises(Refused, match="server-uid"):
        thief.patch(NODES, world.name, unmarked)
    assert world.decide(ask(thief, client_pem(world))) == "ServerDeleted"


def test_the_nodes_of_other_servers_and_of_others_do_not_mind(world: World, make_world: Callable[..., World]) -> None:
    other = make_world("b")
    other.order("order-1")
    node = other.become_node()
    world.become_node()
    world.admin.delete(of(Server), world.name)
    assert other.decide(ask(node, client_pem(other))) == "Approved"
    assert world.decide(ask(foreign_token(other), certificate_pem(KEY, "system:node:control-plane-1"))) == "Pending"


def test_an_old_boot_gets_no_certificate_once_the_next_one_is_ordered(world: World) -> None:
    """However long the reset takes: a mute BMC, or a root on the node who stops its agent, gains nothing by it."""
    thief = world.become_node()
    world.order("order-2")
    assert world.decide(ask(thief, client_pem(world))) == "BootEnds"
    assert world.decide(ask_to_serve(thief, world)) == "BootEnds"


@pytest.mark.parametrize("phase", ["Waiting", "Draining", "Rebooting"])
def test_the_living_boot_renews_whatever_a_maintenance_is_about_before_the_order(world: World, phase: str) -> None:
    """The order is what ends it: before that nobody is told to, and an attempt may be taken back."""
    node = world.become_node()
    asked = (Requestor(name="user-a", action="Reboot", policy="WhenIdle"),)
    maintenance = Maintenance(
        metadata=ObjectMeta(name=f"{world.name}-1"), spec=MaintenanceSpec(server_ref=world.name, requestors=asked)
    )
    world.admin.apply(encode(maintenance), manager="tests")
    world.admin.apply_status(Maintenance, maintenance.name, {"phase": phase}, manager="tests")
    assert world.decide(ask(node, client_pem(world))) == "Approved"
    assert world.decide(ask_to_serve(node, world)) == "Approved"
    world.admin.delete(of(Maintenance), maintenance.name)


def test_the_living_boot_renews_while_nothing_is_ordered_and_again_once_the_order_is_revoked(world: World) -> None:
    node = world.become_node()
    assert world.decide(ask(node, client_pem(world))) == "Approved"
    living = world.server().status.order
    assert living is not None
    world.order("order-2")
    assert world.decide(ask(node, client_pem(world))) == "BootEnds"
    world.order(living.id)  # as the boot controller does where the Node lives on: boot/orders/order.py
    assert world.decide(ask(node, client_pem(world))) == "Approved"
    assert world.decide(ask_to_serve(node, world)) == "Approved"
