"""The inventory controllers at work, on a real API server, and a rack of each test for them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from provisioner.api import AddressBlock, NodePool, Rack, Server
from provisioner.cluster.events import EventRecorder
from provisioner.cluster.informer import Informer
from provisioner.cluster.resources import of
from provisioner.inventory.controller import InventoryInformers, build_inventory_controllers
from tests.inventory.site import GENEROUS_SECONDS, Site

if TYPE_CHECKING:
    from provisioner.cluster.client import Cluster


@pytest.fixture
def leadership(controller_account: Cluster) -> Iterator[Callable[[], Callable[[], None]]]:
    """Starts a leadership of the controllers, as often as it is called; each call returns how to end it."""
    ends: list[Callable[[], None]] = []

    def begin() -> Callable[[], None]:
        stop = threading.Event()
        recorder = EventRecorder(controller_account, "inventory-test")
        informers = InventoryInformers(
            racks=Informer(controller_account, of(Rack)),
            servers=Informer(controller_account, of(Server)),
            address_blocks=Informer(controller_account, of(AddressBlock)),
        )
        controllers = build_inventory_controllers(controller_account, informers, recorder)
        for informer in (informers.racks, informers.servers, informers.address_blocks):
            assert isinstance(informer, Informer)
            informer.start(stop)
        threads = [threading.Thread(target=each.run, args=(stop,), daemon=True) for each in controllers]
        for thread in threads:
            thread.start()

        def end() -> None:
            stop.set()
            for thread in threads:
                thread.join(GENEROUS_SECONDS)
            recorder.close()

        ends.append(end)
        return end

    yield begin
    for end in ends:
        end()


@pytest.fixture
def site(cluster: Cluster, unique: str) -> Iterator[Site]:
    yield Site(cluster, unique)
    for kind in (Server, Rack, NodePool):
        for body in cluster.list(of(kind)).items:
            if body["metadata"]["name"].startswith(unique):
                cluster.delete(of(kind), body["metadata"]["name"])
    cluster.delete(of(AddressBlock), Site(cluster, unique).address(0))


@pytest.fixture(scope="session")
def controller_account(account: Callable[[str], Cluster]) -> Cluster:
    """The cluster as this stage's controller sees it."""
    return account("inventory")
