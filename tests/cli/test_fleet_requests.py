"""What registering a fleet costs the API server, counted: no timings. All controllers, as they are shipped."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lab.control_plane.plane import ControlPlane
from provisioner.api import AddressBlock, Image, NodePool, Rack, Server
from provisioner.api.machinery.conditions import find_condition
from provisioner.api.machinery.errors import Conflict, ProvisionerError
from provisioner.cli.service.controllers import run_controllers
from provisioner.cluster.access import Access, load_configuration
from provisioner.cluster.client import Cluster
from provisioner.cluster.metrics import Meters
from provisioner.cluster.resources import NODES, of
from provisioner.cluster.transport import Transport
from provisioner.health.look import ALL_CHECKS
from provisioner.maintenance.status.verdict import FINAL_PHASE_OF
from tests.api.objects import IMAGE_JUDGED, image, node_pool, rack, server, subnet
from tests.people import CONTROLLER, kubeconfig_of

SERVERS = 50
GENEROUS_SECONDS = 240.0


class CountingTransport(Transport):
    """Remembers method and path of every request but the watches; of those that met another writer apart, for how many
    these are the load of the machine decides."""

    seen: list[tuple[str, str]]
    met_another: list[tuple[str, str]]
    under_way: list[tuple[str, str]]

    def request(self, method: str, path: str, **arguments: Any) -> dict[str, Any]:
        self.under_way.append((method, path))
        try:
            answer = super().request(method, path, **arguments)
        except Conflict:
            self.met_another.append((method, path))
            raise
        except ProvisionerError:
            self.seen.append((method, path))
            raise
        else:
            self.seen.append((method, path))
        finally:
            self.under_way.remove((method, path))
        return answer


@pytest.fixture
def asking(controller_account: Cluster, control_plane: ControlPlane, tmp_path: Path) -> Iterator[CountingTransport]:
    """The controllers at work; what they ask."""
    account = kubeconfig_of(control_plane, tmp_path, CONTROLLER)
    access = Access(lambda: load_configuration(account, None), account)
    transport = CountingTransport(access, user_agent="provisioner-tests")
    transport.seen, transport.met_another, transport.under_way = [], [], []
    stop = threading.Event()
    settings: dict[str, Any] = {"boot_url": "http://10.80.0.1"}
    meters = Meters(causes=FINAL_PHASE_OF.items(), checks=ALL_CHECKS)
    settings |= {"power_poll_seconds": 10.0, "clock": lambda: datetime.now(UTC), "meters": meters}
    leading = threading.Thread(target=run_controllers, args=(Cluster(transport), stop), kwargs=settings)
    leading.start()
    yield transport
    stop.set()
    leading.join(GENEROUS_SECONDS)


def wait_until_quiet(asking: CountingTransport) -> None:
    """Until nothing is asked, and was not for two seconds: all caches are filled, those of others than the first
    server's, too."""
    deadline, before = time.monotonic() + GENEROUS_SECONDS, -1
    while len(asking.seen) != before or asking.under_way:
        assert time.monotonic() < deadline, asking.seen[-20:]
        before = len(asking.seen)
        time.sleep(2)


def wait_until_prepared(cluster: Cluster, names: list[str]) -> None:
    deadline = time.monotonic() + GENEROUS_SECONDS
    for name in names:
        while True:
            found = find_condition(cluster.read(Server, name).status.conditions, "NodePrepared")
            if found is not None and found.status == "True":
                break
            assert time.monotonic() < deadline, f"{name} is not prepared: {cluster.read(Server, name).status}"
            time.sleep(0.2)


def test_a_registered_server_costs_a_handful_of_requests_and_nothing_is_listed(
    asking: CountingTransport, cluster: Cluster, unique: str
) -> None:
    octets = f"{int(unique[1:3], 16)}.{int(unique[3:5], 16)}"
    mac = ":".join(["52", *(unique[1:][i : i + 2] for i in (0, 2, 4, 6))])
    pool = node_pool(unique, attestation="Optional", imageRef=unique)
    subnets = [subnet(cidr=f"10.{octets}.0/24", gateway=f"10.{octets}.1")]
    for body in (image(unique), pool, rack(unique, subnets=subnets)):
        cluster.apply(body, manager="tests")
    available = {"type": "Available", "status": "True", "reason": "Available", "message": "on a boot host"}
    available["lastTransitionTime"] = "2026-01-02T03:04:05Z"
    cluster.apply_status(Image, unique, {"conditions": [available, IMAGE_JUDGED]}, manager="tests")
    names = [f"{unique}-u{number:02d}" for number in range(SERVERS + 1)]

    def register(number: int) -> None:
        spec = {"rackRef": unique, "nodePoolRef": unique, "acceptance": "Accepted"}
        cluster.apply(server(names[number], bootMACAddress=f"{mac}:{number:02x}", **spec), manager="tests")

    try:
        register(0)
        wait_until_prepared(cluster, names[:1])
        wait_until_quiet(asking)
        asking.seen.clear()
        asking.met_another.clear()
        for number in range(1, SERVERS + 1):
            register(number)
        wait_until_prepared(cluster, names)
        asked, met_another = list(asking.seen), list(asking.met_another)
    finally:
        for name in names:
            cluster.delete(of(Server), name)
            cluster.delete(NODES, name)
        for kind, name in ((Rack, unique), (NodePool, unique), (Image, unique), (AddressBlock, f"10.{octets}.0")):
            cluster.delete(of(kind), name)

    kinds = ("servers", "nodes", "racks", "nodepools", "images", "maintenances", "addressblocks", "events", "leases")
    assert [path for method, path in asked if method == "GET" and path.rpartition("/")[2] in kinds] == []
    ours = [(method, path.replace(name, "NAME")) for method, path in asked for name in names[1:] if f"/{name}" in path]
    cost = Counter(ours)
    assert cost["POST", "/api/v1/nodes"] == 0, "a Node's name is not in that path"
    assert Counter(asked)["POST", "/api/v1/nodes"] == SERVERS
    # Address, order (which says Booting), record of the Node: three.
    assert cost["PATCH", "/apis/provisioner.dev/v1alpha1/servers/NAME/status"] <= 3.3 * SERVERS
    # Before an order the Node is looked for past the caches.
    assert cost["GET", "/api/v1/nodes/NAME"] <= 1.5 * SERVERS + len(met_another)
    others = {
        key: count for key, count in cost.items() if key[1].startswith("/apis/provisioner.dev") and key[0] == "GET"
    }
    assert others == {}
    blocks = sum(count for (_, path), count in Counter(asked).items() if "/addressblocks/" in path)
    assert blocks <= SERVERS, "those who wait are claimed for together"
    counts = sum(count for (_, path), count in Counter(asked).items() if f"/{unique}/status" in path)
    assert counts <= 2 * (GENEROUS_SECONDS + 1), "counts are written once a second at most"
