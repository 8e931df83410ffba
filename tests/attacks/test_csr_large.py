"""Certificate requests that are as large as the API server takes them: no copy holds them, and ours are decided."""

from __future__ import annotations

import json
import threading
from dataclasses import replace

from cryptography.hazmat.primitives.asymmetric import ec

from provisioner.cli.service.informers import SharedInformers
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import CSRS
from provisioner.cluster.source import Joined
from provisioner.join.certificates.request import is_whole
from tests.join.conftest import accounts, make_world, world
from tests.join.world import World, ask, certificate_pem
from tests.people import until

__all__ = ["accounts", "make_world", "world"]

PADDING = (b"x" * 63 + b"\n") * 14_000
FOREIGN_SIGNER = "example.com/anything"


def pem_of(world: World) -> bytes:
    return certificate_pem(ec.generate_private_key(ec.SECP256R1()), f"system:node:{world.name}")


def follow(cluster: Cluster, stop: threading.Event) -> Joined:
    informers = SharedInformers(cluster)
    csrs = informers.csrs
    informers.start(stop)
    assert informers.wait_for_sync(180)
    return csrs


def test_no_copy_holds_the_requests_with_which_a_node_floods_and_each_is_denied(world: World) -> None:
    node, stop = world.become_node(), threading.Event()
    foreign = [ask(node, PADDING + pem_of(world), signer=FOREIGN_SIGNER) for _ in range(3)]
    ours = [ask(node, PADDING + pem_of(world)) for _ in range(3)]
    try:
        csrs = follow(world.approver.cluster, stop)
        until(lambda: all(csrs.get(name) is not None for name in ours))
        kept = [csrs.get(name) for name in ours]
        assert all(each is not None and not is_whole(each) and len(json.dumps(each)) < 2000 for each in kept)
        assert [csrs.get(name) for name in foreign] == [None] * 3
        assert {item["spec"]["signerName"] for item in csrs.items()} <= {
            "kubernetes.io/kube-apiserver-client-kubelet",
            "kubernetes.io/kubelet-serving",
        }
        approver = replace(world.approver, sources={CSRS: csrs})
        for name in ours:
            approver.reconcile(name)
            conditions = world.admin.get(CSRS, name)["status"]["conditions"]
            assert [(each["type"], each["reason"]) for each in conditions] == [("Denied", "Malformed")]
    finally:
        stop.set()


def test_a_kubelets_request_is_held_whole_and_approved_by_the_copy(world: World) -> None:
    node, stop = world.become_node(), threading.Event()
    name = ask(node, pem_of(world))
    try:
        csrs = follow(world.approver.cluster, stop)
        until(lambda: csrs.get(name) is not None)
        found = csrs.get(name)
        assert found is not None
        assert is_whole(found)
        replace(world.approver, sources={CSRS: csrs}).reconcile(name)
        conditions = world.admin.get(CSRS, name)["status"]["conditions"]
        assert [each["type"] for each in conditions] == ["Approved"]
    finally:
        stop.set()
