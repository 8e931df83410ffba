"""The network's controllers at work, on a real API server, and tenants of each test for them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from provisioner.cli.service.informers import SharedInformers
from provisioner.cluster.events import EventRecorder
from provisioner.network.control.controller import build_network_controllers
from provisioner.network.control.records.informers import NetworkInformers
from tests.inventory.site import GENEROUS_SECONDS
from tests.network.control.site import Site
from tests.network.evpn.fabric import BOTH, ROUTES

if TYPE_CHECKING:
    from provisioner.cluster.client import Cluster

collect_ignore = [] if ROUTES == BOTH else ["test_bgpd_away.py"]


@pytest.fixture
def leadership(controller_account: Cluster) -> Iterator[Callable[[], Callable[[], None]]]:
    """Starts a leadership of the controllers, as often as it is called; each call returns how to end it."""
    ends: list[Callable[[], None]] = []

    def begin() -> Callable[[], None]:
        stop = threading.Event()
        recorder = EventRecorder(controller_account, "network-test")
        caches = SharedInformers(controller_account)
        controllers = build_network_controllers(controller_account, informers_of(caches), recorder)
        caches.start(stop)
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


def informers_of(caches: SharedInformers) -> NetworkInformers:
    return NetworkInformers(
        servers=caches.servers,
        vpcs=caches.vpcs,
        attachments=caches.attachments,
        groups=caches.security_groups,
        pools=caches.network_pools,
        claims=caches.network_claims,
        networks=caches.dpu_networks,
        roles=caches.dpu_roles,
        bindings=caches.dpu_bindings,
    )


@pytest.fixture
def site(cluster: Cluster, unique: str) -> Iterator[Site]:
    made = Site(cluster, unique)
    yield made
    made.tidy_up()


@pytest.fixture(scope="session")
def controller_account(account: Callable[[str], Cluster]) -> Cluster:
    """The cluster as this stage's controller sees it."""
    return account("network")
