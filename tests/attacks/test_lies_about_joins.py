"""Somebody has taken a boot host, and says of a join what is not so: a node that lives does not notice."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from provisioner.api import Image, NodePool, Server
from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.meta import rfc3339_micro
from provisioner.boot.orders.decide import decide
from provisioner.boot.orders.facts import OrderFacts
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import of
from provisioner.health.situation import boot_to_judge
from provisioner.maintenance.phases.kept_drain import why_unverified
from provisioner.rules.liveness import read_life
from provisioner.rules.nodes import read_node
from tests.boot import objects
from tests.maintenance.plane import DIGEST, Plane

NOW = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)
NOON = rfc3339_micro(NOW)
FALSE_BOOT = "ffffffff-ffff-4fff-8fff-ffffffffffff"


@pytest.fixture
def plane(cluster: Cluster, unique: str) -> Plane:
    return Plane(cluster, cluster, unique)


@pytest.fixture
def boot_host(account: Callable[[str], Cluster], plane: Plane) -> Cluster:
    """The cluster as a boot host's account sees it, once a boot was ordered."""
    order(plane)
    return account("boot")


def order(plane: Plane, number: int = 1, **more: Any) -> str:
    """The boot controller orders a boot."""
    given = {"id": f"order-{number}", "reason": "FirstBoot", "orderedTime": NOON, "attempt": 1, "imageRef": plane.image}
    status = {"order": given, **more}
    plane.cluster.apply_status(Server, plane.name, status, manager="provisioner-boot-controller")
    return f"order-{number}"


def claim(boot: Cluster, plane: Plane, number: int, boot_id: str) -> None:
    """What the join service writes when it hands out the configuration of an order."""
    join = {"orderID": f"order-{number}", "bootID": boot_id, "tokenID": f"token{number}", "fetchedTime": NOON}
    boot.apply_status(Server, plane.name, {"join": join}, manager="provisioner-join")


def approve(plane: Plane, number: int) -> None:
    """What the approver writes when the kubelet has its certificate."""
    join = {"certificateTokenID": f"token{number}", "certificateTime": NOON, "credentials": ["X509SHA256=of-the-boot"]}
    plane.cluster.apply_status(Server, plane.name, {"join": join}, manager="provisioner-approver")


def boot_id_of(plane: Plane) -> str:
    return str(plane.node()["status"]["nodeInfo"]["bootID"])


def ready_of(plane: Plane) -> tuple[str, str]:
    """What the boot controller says of the server, decided on what the API server holds."""
    facts = OrderFacts(
        server=plane.cluster.read(Server, plane.name),
        rack=objects.rack(),
        pool=plane.cluster.read(NodePool, plane.unique),
        next_pool=plane.cluster.read(NodePool, plane.unique),
        next_image=plane.cluster.read(Image, plane.image),
        ordered_image=plane.cluster.read(Image, plane.image),
        node=read_life(plane.node(), None),
    )
    decision = decide(facts, NOW, "a-new-order")
    found = next(c for c in decision.status["conditions"] if c["type"] == "Ready")
    assert not decision.orders
    assert not decision.revokes
    return found["status"], found["reason"]


LIES: dict[str, dict[str, Any]] = {
    "another kernel": {"bootID": FALSE_BOOT},
    "another order": {"orderID": "order-of-mine"},
    "another token": {"tokenID": "stolen"},
    "another key": {"requestKeySHA256": DIGEST},
    "another time": {"fetchedTime": "1970-01-01T00:00:00Z"},
    "another certificate": {"credentials": ["X509SHA256=stolen"]},
    "another approval": {"certificateTokenID": "stolen"},
}


@pytest.mark.parametrize("lie", LIES)
def test_it_says_nothing_else_of_a_join_that_is_over(plane: Plane, boot_host: Cluster, lie: str) -> None:
    claim(boot_host, plane, 1, boot_id_of(plane))
    approve(plane, 1)
    before = plane.cluster.read(Server, plane.name).status.join
    with pytest.raises(Refused, match=r"the boot service|provisioner-boot may not write"):
        boot_host.patch(of(Server), plane.name, {"status": {"join": LIES[lie]}}, subresource="status")
    assert plane.cluster.read(Server, plane.name).status.join == before
    assert ready_of(plane) == ("True", "Ready")


def test_it_does_not_take_the_record_of_a_join_away(plane: Plane, boot_host: Cluster) -> None:
    claim(boot_host, plane, 1, boot_id_of(plane))
    approve(plane, 1)
    for join in (None, {"credentials": None}):
        with pytest.raises(Refused, match=r"the boot service|provisioner-boot may not write"):
            boot_host.patch(of(Server), plane.name, {"status": {"join": join}}, subresource="status")


def test_an_honest_join_service_records_refusals_and_hands_out_the_next_configuration(
    plane: Plane, boot_host: Cluster
) -> None:
    claim(boot_host, plane, 1, boot_id_of(plane))
    claim(boot_host, plane, 1, boot_id_of(plane))  # once more: the same machine repeats its request
    approve(plane, 1)
    refused = {"refusedTime": NOON, "refusedReason": "AlreadyFetched"}
    boot_host.patch(of(Server), plane.name, {"status": {"join": refused}}, subresource="status")
    order(plane, 2)
    claim(boot_host, plane, 2, FALSE_BOOT)
    join = plane.cluster.read(Server, plane.name).status.join
    assert join is not None
    assert (join.order_id, join.boot_id) == ("order-2", FALSE_BOOT)


def test_what_the_node_reports_goes_before_a_false_word_about_its_boot(plane: Plane, boot_host: Cluster) -> None:
    """It lies in the moment in which its word counts: when it hands the configuration out."""
    claim(boot_host, plane, 1, FALSE_BOOT)
    order(plane, 1, readyTime=NOON)
    server, node = plane.cluster.read(Server, plane.name), plane.node()
    assert ready_of(plane) == ("True", "Ready")
    assert boot_to_judge(server, read_node(node)) == boot_id_of(plane)
    assert "has not joined" not in (why_unverified(server, read_node(node)) or "")


def test_the_kernel_before_the_order_is_not_taken_for_the_ordered_one(plane: Plane, boot_host: Cluster) -> None:
    before = boot_id_of(plane)
    given = {"id": "order-2", "reason": "Requested", "orderedTime": NOON, "attempt": 1, "bootIDBefore": before}
    plane.cluster.apply_status(Server, plane.name, {"order": given}, manager="provisioner-boot-controller")
    claim(boot_host, plane, 2, FALSE_BOOT)
    assert ready_of(plane)[0] == "False"
    assert not isinstance(boot_to_judge(plane.cluster.read(Server, plane.name), read_node(plane.node())), str)
