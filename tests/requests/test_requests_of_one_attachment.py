"""What one attachment, and its release, cost the API server: as much as its VPC has DPUs, however large the fleet is.

Real: the API server, the shipped account, the network's controllers. Played: the agents, which are not counted.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.control_plane.plane import ControlPlane
from provisioner.api import DPUNetwork, VPCAttachment
from provisioner.cli.service.informers import SharedInformers
from provisioner.cluster.client import Cluster
from provisioner.cluster.events import EventRecorder
from provisioner.cluster.resources import of
from provisioner.network.control.controller import build_network_controllers
from tests.inventory.site import eventually
from tests.network.control.conftest import informers_of
from tests.network.control.objects import attachment, vpc
from tests.network.control.site import Site
from tests.people import kubeconfig_of, of_account
from tests.requests.counted import Counts, lists, table

NEIGHBOURS, OTHERS = 3, 12
ATTACH_AT_MOST = 2 + (NEIGHBOURS + 1) + 2 + 2 + 1  # claims, DPUNetworks, its own status, the VPC's, an Event
RELEASE_AT_MOST = 2 * 3 + (NEIGHBOURS + 1) + 2  # a look, the mark and the end of two claims, DPUNetworks, the VPC's
SLOWER = 5
"""The controllers' clock, so that these agents confirm before a condition says that it is waited for them."""

Counted = Counter[tuple[str, str, str]]


class Fleet:
    """blue: a VPC with some DPUs; green: the rest of the fleet, in another. All agents confirm at once."""

    def __init__(self, site: Site, counts: Counts) -> None:
        self.site, self.counts = site, counts
        self.blue, self.green = site.tenant("blue"), site.tenant("green")
        self.machines = [site.machine(n, self.blue) for n in range(NEIGHBOURS + 1)]
        self.others = [site.machine(100 + n, self.green) for n in range(OTHERS)]
        site.add(vpc(self.blue), vpc(self.green))
        for number, machine in enumerate(self.machines[1:]):
            site.add(attachment(self.blue, f"b{number}", f"{machine}-s"))
        for number, machine in enumerate(self.others):
            site.add(attachment(self.green, f"g{number}", f"{machine}-s"))

    def play_agents(self, stop: threading.Event) -> None:
        admin, confirmed = self.site.cluster, dict[str, int]()
        while not stop.wait(0.05):
            for body in admin.list(of(DPUNetwork)).items:
                name, generation = body["metadata"]["name"], body["metadata"]["generation"]
                if name.startswith(self.site.name) and confirmed.get(name) != generation:
                    confirmed[name] = self.site.confirm(admin, name.removesuffix("-d"))

    def take(self) -> Counted:
        """What was asked until nothing was for a while."""
        self.counts.come_to_rest()
        return self.counts.take()


@pytest.fixture
def fleet(control_plane: ControlPlane, cluster: Cluster, unique: str, tmp_path: Path) -> Iterator[Fleet]:
    site, counts, stop = Site(cluster, unique), Counts(), threading.Event()
    made = Fleet(site, counts)
    counted = counts.connect(kubeconfig_of(control_plane, tmp_path, of_account("network")))
    caches, recorder = SharedInformers(counted), EventRecorder(counted, "network-test")
    controllers = build_network_controllers(
        counted, informers_of(caches), recorder, monotonic=lambda: time.monotonic() / SLOWER
    )
    caches.start(stop)
    threads = [threading.Thread(target=each.run, args=(stop,), daemon=True) for each in controllers]
    threads.append(threading.Thread(target=made.play_agents, args=(stop,), daemon=True))
    for thread in threads:
        thread.start()
    names = [(made.blue, f"b{n}") for n in range(NEIGHBOURS)] + [(made.green, f"g{n}") for n in range(OTHERS)]
    eventually(lambda: all(site.ready(*each) == ("True", "Enforced") for each in names), "all are enforced")
    made.take()
    yield made
    stop.set()
    for thread in threads:
        thread.join(60)
    recorder.close()
    site.tidy_up()


def networks_written(
    fleet: Fleet, act: Callable[[], object], done: Callable[[], bool], what: str
) -> tuple[Counted, set[str]]:
    """What `act` costs until it is `done` and all is quiet, and whose DPUNetworks changed."""

    def generations() -> dict[str, int]:
        items = fleet.site.cluster.list(of(DPUNetwork)).items
        return {each["metadata"]["name"]: each["metadata"]["generation"] for each in items}

    before = generations()
    act()
    eventually(done, what)
    counted = fleet.take()
    after = generations()
    return counted, {re.sub("-d$", "", name) for name in after if after[name] != before.get(name)}


def test_an_attachment_and_its_release_cost_what_its_vpc_has_dpus(fleet: Fleet) -> None:
    new = attachment(fleet.blue, "new", f"{fleet.machines[0]}-s")
    site = fleet.site

    def is_enforced() -> bool:
        return site.ready(fleet.blue, "new") == ("True", "Enforced")

    counted, told = networks_written(fleet, lambda: site.add(new), is_enforced, "it is enforced")
    assert told == set(fleet.machines), "the DPUs of the VPC, and no others"
    assert counted["network-dpus", "APPLY", "DPUNetwork"] == NEIGHBOURS + 1, "each of them once"
    assert lists(counted) == [], table(counted)
    assert sum(counted.values()) <= ATTACH_AT_MOST, table(counted)

    def are_free() -> bool:
        return not any(fleet.machines[0] in each for each in site.claims())

    def delete() -> None:
        site.cluster.delete(of(VPCAttachment), "new", namespace=fleet.blue)

    counted, told = networks_written(fleet, delete, are_free, "its values are free")
    assert told == set(fleet.machines)
    assert counted["network-dpus", "APPLY", "DPUNetwork"] == NEIGHBOURS + 1
    assert lists(counted) == [], table(counted)
    assert sum(counted.values()) <= RELEASE_AT_MOST, table(counted)
