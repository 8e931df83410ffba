"""The four controllers on real informers: nobody calls them, they see what changes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from provisioner.api.machinery.codec import encode
from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.values import MacAddress
from provisioner.api.pools.node_pool import NodePool
from provisioner.api.servers.rack import Rack
from provisioner.api.servers.server import Server
from provisioner.cluster.client import Cluster
from provisioner.cluster.informer import Informer
from provisioner.cluster.resources import CREDENTIALS, CSRS, NODES, ROLE_BINDINGS, ROLES, of
from provisioner.join.admission.configuration import JoinConfiguration
from provisioner.join.admission.service import find_server_in
from provisioner.join.controller import (
    CertificateInformers,
    NodeInformers,
    build_certificate_controllers,
    build_node_controllers,
)
from tests.cluster.fake_events import FakeEvents
from tests.join import samples
from tests.join.conftest import Accounts
from tests.join.der import Parts, signed, tlv
from tests.join.world import World, ask, certificate_pem

SECONDS = 180.0


@pytest.fixture(scope="module")
def informers(accounts: Accounts) -> Iterator[CertificateInformers]:
    """All controllers run, each with the rights of its account; what the approver follows."""
    followed = NodeInformers(
        servers=Informer(accounts.join, of(Server)),
        node_pools=Informer(accounts.join, of(NodePool)),
        racks=Informer(accounts.join, of(Rack)),
        nodes=Informer(accounts.join, NODES),
    )
    by_approver = CertificateInformers(
        servers=Informer(accounts.approver, of(Server)),
        nodes=Informer(accounts.approver, NODES),
        csrs=Informer(accounts.approver, CSRS),
        roles=Informer(accounts.approver, ROLES, namespace=CREDENTIALS),
        bindings=Informer(accounts.approver, ROLE_BINDINGS, namespace=CREDENTIALS),
    )
    stop = threading.Event()
    controllers = [
        *build_node_controllers(accounts.join, followed, FakeEvents()),
        *build_certificate_controllers(accounts.approver, by_approver, FakeEvents(), settle_seconds=1.0),
    ]
    threads = [threading.Thread(target=controller.run, args=(stop,), daemon=True) for controller in controllers]
    caches = [*vars(followed).values(), *vars(by_approver).values()]
    for informer in caches:
        informer.start(stop)
    for thread in threads:
        thread.start()
    for informer in caches:
        assert informer.wait_for_sync(SECONDS)
    yield by_approver
    stop.set()
    for thread in threads:
        thread.join(SECONDS)


def wait_until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < deadline, f"{what} did not come true in {SECONDS} s"
        time.sleep(0.05)


def test_an_order_becomes_a_node_and_a_request_a_certificate(
    informers: CertificateInformers, make_world: Callable[..., World]
) -> None:
    world = make_world()
    world.prepare_node = lambda: None  # type: ignore[method-assign]
    world.order("order-1")
    answers: list[object] = []

    def joins() -> bool:
        answers.append(world.join())
        return isinstance(answers[-1], JoinConfiguration)

    wait_until(joins, "the Node is prepared and the server joins")
    configuration = answers[-1]
    assert isinstance(configuration, JoinConfiguration)
    csr = ask(
        world.with_token(configuration),
        certificate_pem(ec.generate_private_key(ec.SECP256R1()), f"system:node:{world.name}"),
    )
    assert b"BEGIN CERTIFICATE" in world.wait_for_certificate(csr)
    wait_until(lambda: world.tokens() == [], "the spent token is deleted")
    join = world.server().status.join
    assert join is not None
    wait_until(lambda: bool((world.server().status.join or join).credentials), "the credential is noted")

    world.admin.delete(NODES, world.name)
    wait_until(lambda: informers.nodes.get(world.name) is not None, "a deleted Node is made again")


def test_a_certificate_is_listed_by_itself_so_that_it_writes_and_the_one_before_does_not(
    informers: CertificateInformers, make_world: Callable[..., World]
) -> None:
    world = make_world()
    world.prepare_node = lambda: None  # type: ignore[method-assign]

    def boots(order: str, request_key: str) -> Cluster:
        world.order(order)
        answers: list[object] = []

        def joins() -> bool:
            answers.append(world.join(requestKey=request_key))
            return isinstance(answers[-1], JoinConfiguration)

        wait_until(joins, f"{order} joins")
        assert isinstance(answers[-1], JoinConfiguration)
        key = ec.generate_private_key(ec.SECP256R1())
        csr = ask(world.with_token(answers[-1]), certificate_pem(key, f"system:node:{world.name}"))
        return world.as_node(key, world.wait_for_certificate(csr))

    def writes(node: Cluster) -> bool:
        try:
            node.patch(NODES, world.name, {"metadata": {"annotations": {"example.com/a": "b"}}})
        except Refused:
            return False
        return True

    earlier = boots("order-1", samples.KEY)
    wait_until(lambda: writes(earlier), "the kubelet writes")
    current = boots("order-2", samples.OTHER_KEY)
    wait_until(lambda: writes(current), "the next boot's kubelet writes")
    wait_until(lambda: not writes(earlier), "the list has come to the API server's authorizer")
    # It may be the list of the moment at which no certificate of this boot was signed yet.
    wait_until(lambda: writes(current), "the list has come with this boot's certificate")
    for account in ("approver", "authorizer", "controller"):  # whose rights on the list are Roles beside it
        assert world.admin.get(ROLES, f"provisioner-{account}", namespace=CREDENTIALS)["rules"]


def test_the_token_of_a_server_that_is_deleted_while_it_joins_goes_with_it(
    informers: CertificateInformers, make_world: Callable[..., World]
) -> None:
    world = make_world()
    world.prepare_node = lambda: None  # type: ignore[method-assign]
    world.order("order-1")
    wait_until(lambda: isinstance(world.join(), JoinConfiguration), "the Node is prepared and the server joins")
    assert len(world.tokens()) == 1
    world.admin.delete(of(Server), world.name)
    wait_until(lambda: world.tokens() == [], "the token is deleted")


def test_the_node_of_a_deleted_server_is_denied_and_a_request_that_cannot_be_read_keeps_nobody_waiting(
    informers: CertificateInformers, make_world: Callable[..., World]
) -> None:
    world = make_world()
    world.prepare_node = lambda: None  # type: ignore[method-assign]
    world.order("order-1")
    answers: list[object] = []

    def joins() -> bool:
        answers.append(world.join())
        return isinstance(answers[-1], JoinConfiguration)

    def denied(csr: str) -> str | None:
        conditions = (informers.csrs.get(csr) or {}).get("status", {}).get("conditions") or [{}]
        return conditions[0].get("reason") if conditions[0].get("type") == "Denied" else None

    wait_until(joins, "the Node is prepared and the server joins")
    configuration, key = answers[-1], ec.generate_private_key(ec.SECP256R1())
    assert isinstance(configuration, JoinConfiguration)
    token, pem = world.with_token(configuration), certificate_pem(key, f"system:node:{world.name}")
    unreadable = ask(token, signed(replace(Parts.of(pem), version=tlv(0x02, b"\x01")).whole()))
    node = world.as_node(key, world.wait_for_certificate(ask(token, pem)))
    wait_until(lambda: denied(unreadable) == "Malformed", "what cannot be read is denied")
    world.admin.delete(of(Server), world.name)
    wait_until(lambda: informers.servers.get(world.name) is None, "the server is gone")
    renewal = ask(node, pem)
    wait_until(lambda: denied(renewal) == "ServerDeleted", "the renewal is denied")


def test_a_server_is_found_by_its_boot_mac_address(
    informers: CertificateInformers, make_world: Callable[..., World]
) -> None:
    world = make_world()
    find = find_server_in(informers.servers)
    wait_until(lambda: find(MacAddress(world.mac)) == world.name, "the server is in the cache")
    assert find(MacAddress("52:54:ff:ff:ff:fe")) is None


def test_a_pool_that_appears_late_is_noticed(informers: CertificateInformers, make_world: Callable[..., World]) -> None:
    world = make_world()
    world.admin.delete(of(NodePool), world.name)
    world.prepare_node = lambda: None  # type: ignore[method-assign]
    world.order("order-1")

    def reason() -> str | None:
        return next((c.reason for c in world.server().status.conditions if c.type == "NodePrepared"), None)

    wait_until(lambda: reason() == "Incomplete", "the missing pool is reported")
    world.admin.apply(encode(samples.pool(world.name, image_ref=world.name)), manager="tests")
    wait_until(lambda: reason() == "Prepared", "the Node is prepared")


def test_a_pool_that_goes_and_comes_back_leaves_a_prepared_node_prepared(
    informers: CertificateInformers, make_world: Callable[..., World]
) -> None:
    world = make_world()
    world.prepare_node = lambda: None  # type: ignore[method-assign]
    world.order("order-1")

    def prepared() -> tuple[str | None, tuple[str, ...]]:
        status = world.server().status
        return next((c.reason for c in status.conditions if c.type == "NodePrepared"), None), status.node_taints

    wait_until(lambda: prepared()[0] == "Prepared", "the Node is prepared")

    def ours() -> tuple[Any, ...]:
        node = world.admin.get(NODES, world.name)
        written = [each for each in node["metadata"]["managedFields"] if each["manager"] == "provisioner-join"]
        return node["spec"], node["metadata"]["annotations"], written

    before, (_, taints) = ours(), prepared()
    world.admin.delete(of(NodePool), world.name)
    wait_until(lambda: prepared() == ("Incomplete", taints), "the missing pool is reported")
    world.admin.apply(encode(samples.pool(world.name, image_ref=world.name)), manager="tests")
    wait_until(lambda: prepared() == ("Prepared", taints), "the Node is known as prepared again")
    assert ours() == before
