"""What a registration looks like in `kubectl get events`: inventory and boot controller side by side, for real."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from provisioner.api import AddressBlock, Image, Maintenance, NodePool, Rack, Server
from provisioner.api.machinery.codec import encode
from provisioner.boot.orders.controller import build_boot_controllers
from provisioner.boot.orders.informers import BootInformers
from provisioner.cluster.client import Cluster
from provisioner.cluster.events import EventRecorder
from provisioner.cluster.informer import Informer
from provisioner.cluster.resources import EVENTS, LEASES, NODE_LEASES, NODES, of
from provisioner.inventory.controller import InventoryInformers, build_inventory_controllers
from tests.boot.objects import image, pool, rack, server

GENEROUS_SECONDS = 180.0


@pytest.fixture
def flush(account: Callable[[str], Cluster]) -> Iterator[Callable[[], bool]]:
    """Both at work, on the same caches, as `provisioner controller` has them; writes their Events out."""
    stop = threading.Event()
    reader, inventory, orders = account("controller"), account("inventory"), account("orders")
    recorders = [EventRecorder(each, "registration-test") for each in (inventory, orders)]
    servers, pools, racks, images, maintenances = (
        Informer(reader, of(kind)) for kind in (Server, NodePool, Rack, Image, Maintenance)
    )
    nodes, blocks = Informer(reader, NODES), Informer(reader, of(AddressBlock))
    leases = Informer(reader, LEASES, namespace=NODE_LEASES)
    built = [
        *build_inventory_controllers(
            inventory,
            InventoryInformers(racks=racks, servers=servers, address_blocks=blocks),
            recorders[0],
        ),
        *build_boot_controllers(
            orders,
            BootInformers(
                servers=servers,
                pools=pools,
                images=images,
                racks=racks,
                nodes=nodes,
                leases=leases,
                maintenances=maintenances,
            ),
            recorders[1],
        ),
    ]
    for informer in (servers, pools, racks, images, maintenances, nodes, leases, blocks):
        informer.start(stop)
        assert informer.wait_for_sync(GENEROUS_SECONDS)
    threads = [threading.Thread(target=each.run, args=(stop,), daemon=True) for each in built]
    for thread in threads:
        thread.start()
    yield lambda: all(recorder.flush(GENEROUS_SECONDS) for recorder in recorders)
    stop.set()
    for thread in threads:
        thread.join(GENEROUS_SECONDS)
    for recorder in recorders:
        recorder.close()


def register(cluster: Cluster, unique: str, count: int, **subnet: Any) -> list[str]:
    """A rack, its image and pool, and then its servers, as `provisioner rack register` writes them; their names."""
    octets = random.Random(unique).randbytes(5)
    place = rack()
    wanted = replace(place.spec.subnets[0], cidr=f"10.{octets[0]}.{octets[1]}.0/24", gateway=None, **subnet)
    of_rack = replace(place, spec=replace(place.spec, subnets=(wanted,)))
    for resource in (of_rack, image(), pool(image_ref=f"{unique}-image")):
        body = encode(resource)
        status = body.pop("status", None)
        body["metadata"] = {"name": f"{unique}-{resource.KIND.kind.lower()}"}
        cluster.create(of(type(resource)), body)
        if status:
            cluster.apply_status(type(resource), body["metadata"]["name"], status, manager="provisioner-boot")
    names = [f"{unique}-u{number:02d}" for number in range(1, count + 1)]
    for number, name in enumerate(names, start=1):
        mac = "02:" + ":".join(f"{octet:02x}" for octet in (*octets[:4], number))
        wish = server(
            name, boot_mac_address=mac, rack_ref=f"{unique}-rack", node_pool_ref=f"{unique}-nodepool", bmc=None
        )
        body = encode(replace(wish, metadata=replace(wish.metadata, uid=None)))
        body.pop("status")
        cluster.create(of(Server), body)
    return names


def eventually(check: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + GENEROUS_SECONDS
    while not check():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def warnings(cluster: Cluster, name: str) -> set[str]:
    found = cluster.list(EVENTS, field_selector=f"involvedObject.name={name}").items
    return {event["reason"] for event in found if event["type"] == "Warning"}


def test_a_normal_registration_leaves_no_warning(cluster: Cluster, flush: Callable[[], bool], unique: str) -> None:
    names = register(cluster, unique, 10)
    for name in names:
        eventually(
            lambda name=name: cluster.read(Server, name).status.order is not None,
            f"{name} gets there: {cluster.read(Server, name).status}",
        )  # type: ignore[misc]
    assert flush()
    assert {name: warnings(cluster, name) for name in names} == {name: set() for name in names}


@pytest.mark.usefixtures("flush")
def test_a_server_that_gets_no_address_is_a_warning_of_the_inventory(cluster: Cluster, unique: str) -> None:
    (name,) = register(cluster, unique, 1)
    cluster.patch(of(Server), name, {"spec": {"bootAddress": "192.0.2.9"}})
    eventually(
        lambda: "AddressUnusable" in warnings(cluster, name), f"{name} gets there: {cluster.read(Server, name).status}"
    )
    assert "NoAddress" not in warnings(cluster, name)
