"""What is booted and asked for while versions change: images, pools, servers, and requests that do not stop."""

from __future__ import annotations

import hashlib
import threading
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from provisioner.api import Maintenance, Server
from provisioner.api.images.image import Artifact, NamedArtifact
from provisioner.api.machinery.codec import encode
from provisioner.api.machinery.schema import API_VERSION
from provisioner.cluster.client import Cluster
from provisioner.cluster.informer import Informer
from provisioner.cluster.resources import NODES, of
from tests.api.objects import node_pool, rack
from tests.boot.objects import image
from tests.people import condition

OLD_IMAGE: Final = "gpu-node-1"
NEW_IMAGE: Final = "gpu-node-2"
ROLLED: Final = ("r01-u01", "r01-u02", "r01-u03", "r01-u04")
"""In the pool whose image changes. All but the first run a job until the test ends it."""
ASKED: Final = ("r01-u11", "r01-u12", "r01-u13")
"""In the pool for whose servers reboots are asked for."""
QUIET: Final = "r01-u21"
"""Nothing is asked of it, and nothing of it may change."""
STRATEGY: Final = {"canary": {"count": 1, "soakSeconds": 0}, "maxParallel": 1, "maxUnavailable": "50%"}


def publish(cluster: Cluster, store: Path, name: str) -> str:
    """An image of four bytes a file in the store, and its Image. Returns its digest."""
    digest = hashlib.sha256(name.encode()).hexdigest()
    folder, parts = store / f"sha256-{digest}", store / "parts"
    folder.mkdir(parents=True)
    parts.mkdir(exist_ok=True)
    for file in ("manifest", "manifest.sig"):
        (folder / file).write_text("four")

    def part(file: str) -> dict[str, Any]:
        sha256 = hashlib.sha256(f"{name} {file}".encode()).hexdigest()
        (parts / f"sha256-{sha256}").write_text("four")
        return {"path": f"parts/sha256-{sha256}", "sha256": f"sha256:{sha256}", "size_bytes": 4}

    manifest = Artifact(path=f"{folder.name}/manifest", sha256=f"sha256:{digest}", size_bytes=4)
    spec: dict[str, Any] = {"manifest": manifest, "kernel": Artifact(**part("kernel")), "root": None}
    spec |= {"stage1": Artifact(**part("stage1")), "layers": (NamedArtifact(name="base", **part("base")),)}
    body = encode(image(name, available=None, digest=f"sha256:{digest}", **spec))
    body.pop("status", None)
    cluster.create(of(type(image())), body)
    return f"sha256:{digest}"


def register(cluster: Cluster) -> None:
    """A rack on loopback, and its servers in three pools."""
    subnet = {"name": "boot", "cidr": "127.80.0.0/24", "gateway": "127.80.0.1"}
    cluster.apply(rack(subnets=[subnet]), manager="tests")
    settings = {"kexecModels": ["*"], "rebootMethods": ["Kexec"], "maxUnavailable": "100%"}
    for pool, servers in (("rolled", ROLLED), ("asked", ASKED), ("quiet", (QUIET,))):
        spec = {"imageRef": OLD_IMAGE, "attestation": "Optional", "maintenance": settings}
        cluster.apply(node_pool(pool, **spec, upgradeStrategy=STRATEGY), manager="tests")
        for name in servers:
            number = int(name[-2:])
            spec = {"bootMACAddress": f"52:54:00:80:00:{number:02x}", "bootAddress": f"127.80.0.{number + 10}"}
            spec |= {"architecture": "x86_64", "rackRef": "r01", "nodePoolRef": pool, "acceptance": "Accepted"}
            body = {"apiVersion": API_VERSION, "kind": "Server", "metadata": {"name": name}, "spec": spec}
            cluster.apply(body, manager="tests")


def ask_for_reboot(cluster: Cluster, server: str, number: int) -> None:
    """By a condition on its Node, as kubectl alone can."""
    wanted = condition("provisioner.dev/RebootRequested", "WhenIdle", f"request {number}")
    cluster.strategic_patch(NODES, server, wanted, subresource="status")


class Record:
    """All that ever stood in the Servers and Maintenances, as watched: orders, joins and ends."""

    def __init__(self, cluster: Cluster, stop: threading.Event) -> None:
        self.orders: dict[str, list[str]] = defaultdict(list)
        self.joins: dict[str, list[str]] = defaultdict(list)
        self.ends: dict[str, list[str]] = defaultdict(list)
        self._servers, self._maintenances = Informer(cluster, of(Server)), Informer(cluster, of(Maintenance))
        self._servers.subscribe(self._server_changed)
        self._maintenances.subscribe(self._maintenance_changed)
        for informer in (self._servers, self._maintenances):
            informer.start(stop)

    def _server_changed(self, name: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> None:
        status = (new or {}).get("status") or {}
        for kept, value in (
            (self.orders, (status.get("order") or {}).get("id")),
            (self.joins, (status.get("join") or {}).get("orderID")),
        ):
            if value is not None and kept[name][-1:] != [value]:
                kept[name].append(value)

    def _maintenance_changed(self, name: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> None:
        phase = ((new or {}).get("status") or {}).get("phase")
        if phase in ("Completed", "Failed", "Cancelled") and self.ends[name][-1:] != [phase]:
            self.ends[name].append(phase)
