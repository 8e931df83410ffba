"""Somebody has a node's client certificate and key. docs/threat-model.md, "Stolen certificate"."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from provisioner.api.machinery.errors import Refused
from provisioner.cluster.resources import CSRS, NODES
from provisioner.join.certificates.approve import SERVING_SIGNER
from tests.join.conftest import accounts, make_world, world
from tests.join.samples import OTHER_KEY
from tests.join.world import World, ask, certificate_pem

__all__ = ["accounts", "make_world", "world"]


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def test_it_is_not_renewed_after_the_next_boot_of_its_server(world: World) -> None:
    thief = world.become_node()
    world.order("order-2")
    world.joined(requestKey=OTHER_KEY)
    assert world.decide(ask(thief, certificate_pem(new_key(), f"system:node:{world.name}"))) == "OldCertificate"


def test_it_is_not_renewed_once_the_server_is_rejected(world: World) -> None:
    thief = world.become_node()
    world.change_spec(acceptance="Rejected")
    assert world.decide(ask(thief, certificate_pem(new_key(), f"system:node:{world.name}"))) == "NotAccepted"


def test_it_serves_under_no_other_name(world: World, make_world: Callable[..., World]) -> None:
    other = make_world("b")
    thief = world.become_node()
    pem = certificate_pem(new_key(), f"system:node:{world.name}", alternative=[x509.DNSName(other.name)])
    csr = ask(thief, pem, signer=SERVING_SIGNER, usages=("digital signature", "server auth"))
    assert world.decide(csr) == "WrongNames"


def test_it_does_not_touch_other_nodes_or_approve_for_itself(world: World, make_world: Callable[..., World]) -> None:
    other = make_world("b")
    other.order("order-1")
    thief = world.become_node()
    with pytest.raises(Refused, match="is not allowed to modify node"):
        thief.patch(NODES, other.name, {"metadata": {"labels": {"a": "b"}}})
    name = ask(thief, certificate_pem(new_key(), f"system:node:{world.name}"))
    csr = world.admin.get(CSRS, name)
    csr["status"] = {"conditions": [{"type": "Approved", "status": "True", "reason": "x", "message": "x"}]}
    with pytest.raises(Refused, match="forbidden"):
        thief.replace(CSRS, csr, subresource="approval")


def test_it_does_not_take_the_pools_taints_off_its_own_node(world: World) -> None:
    thief = world.become_node()
    with pytest.raises(Refused, match="is not allowed to modify taints"):
        thief.patch(NODES, world.name, {"spec": {"taints": None}})
