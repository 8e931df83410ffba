"""The executor with its threads and its own clock, on an API server in memory: pools with one server each.

Real: the controller, its workers and lanes, its workloads, HTTP to slurmrestds. Simulated: the API server, and caches
that show each write at once.
"""

from __future__ import annotations

import base64
import sys
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from provisioner.api import Image, Maintenance, NodePool, Server
from provisioner.api.machinery.codec import encode
from provisioner.api.machinery.meta import Resource
from provisioner.api.pools.pool_settings import JobSettings, SlurmJobs
from provisioner.cluster.resources import NAMESPACES, NODES, SECRETS, SLURM_SECRETS, ResourceType, of
from provisioner.jobs.cluster_workloads import ClusterWorkloads
from provisioner.maintenance.controller import build_maintenance_controllers
from provisioner.maintenance.follow import MaintenanceInformers
from tests.boot import objects
from tests.cluster.fake_cluster import FakeCluster
from tests.cluster.fake_events import FakeEvents
from tests.maintenance.chaos.fake_informer import FakeInformer

PATIENCE = 300.0
_WRITES = ("create", "replace", "apply", "patch", "patch_seen", "strategic_patch", "apply_status", "delete")


class FakeSharedCluster:
    """A FakeCluster for several threads; caches see each write before its writer does."""

    def __init__(self) -> None:
        self.inner = FakeCluster()
        self.lock = threading.RLock()
        self.caches: list[FakeInformer] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)

        def call(*arguments: Any, **more: Any) -> Any:
            with self.lock:
                try:
                    return method(*arguments, **more)
                finally:
                    if name in _WRITES:
                        for cache in self.caches:
                            cache.catch_up()

        return call

    def cache(self, type_: ResourceType) -> FakeInformer:
        made = FakeInformer(type_, lambda: dict(self.inner.stored(type_)))
        self.caches.append(made)
        return made


class LiveExecutor:
    """Pools by name, with the URL of their slurmrestd (None: without Slurm); each has one server of the same name."""

    def __init__(self, pools: Mapping[str, str | None], *, in_lanes: bool = True, workers: int = 4) -> None:
        self.cluster, self.events = FakeSharedCluster(), FakeEvents()
        kinds = {"servers": of(Server), "pools": of(NodePool), "images": of(Image), "maintenances": of(Maintenance)}
        caches = {name: self.cluster.cache(type_) for name, type_ in (kinds | {"nodes": NODES}).items()}
        self._create_all(pools)
        client: Any = self.cluster
        self.workloads = ClusterWorkloads(client, self.events, now=lambda: datetime.now(UTC), in_lanes=in_lanes)
        (self._controller,) = build_maintenance_controllers(
            client,
            MaintenanceInformers(**caches),  # type: ignore[arg-type]
            self.workloads,
            self.events,
            workers=workers,
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._controller.run, args=(self._stop,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop it, as the end of a leadership does."""
        self._stop.set()
        self._thread.join(PATIENCE)

    def ask_to_drain(self, server: str) -> None:
        requestor = {"name": "tester", "action": "Drain", "policy": "WhenIdle", "reason": "test"}
        body = {
            "apiVersion": "provisioner.dev/v1alpha1",
            "kind": "Maintenance",
            "metadata": {"name": f"{server}-1", "creationTimestamp": None},
            "spec": {"serverRef": server, "requestors": [requestor]},
        }
        self.cluster.create(of(Maintenance), body)

    def look_again(self, server: str) -> None:
        """Reconcile it now, and not when its pause is over."""
        self._controller.queue.add(server)

    def phase(self, server: str) -> str | None:
        return self.cluster.read(Maintenance, f"{server}-1").status.phase

    def blockers(self, server: str) -> dict[str, str]:
        """Message by kind."""
        return {b.kind: b.message for b in self.cluster.read(Maintenance, f"{server}-1").status.blockers}

    def calls_under_way(self) -> int:
        """To slurmrestds, by whichever thread."""
        return sum(lane.calls for lane in self.workloads.slurm_bulkhead.lanes().values())

    def blocked_workers(self) -> list[str]:
        """Those of the executor's shared workers that wait for a slurmrestd now."""
        frames = sys._current_frames()
        workers = [t for t in threading.enumerate() if t.name.startswith("maintenance-") and t.ident in frames]
        return [t.name for t in workers if t.ident is not None and _waits_for_slurm(frames[t.ident])]

    def wait_until(self, what: Callable[[], Any], why: str) -> float:
        """Seconds that it took."""
        began = time.monotonic()
        while not what():
            assert time.monotonic() - began < PATIENCE, f"waited in vain: {why}"
            time.sleep(0.01)
        return time.monotonic() - began

    def _create_all(self, pools: Mapping[str, str | None]) -> None:
        self._create(objects.image())
        self.cluster.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SLURM_SECRETS}})
        data = {key: base64.b64encode(value.encode()).decode() for key, value in (("username", "root"), ("token", "t"))}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "slurm", "namespace": SLURM_SECRETS}}
        self.cluster.create(SECRETS, {**secret, "data": data})
        for number, (name, url) in enumerate(pools.items()):
            slurm = SlurmJobs(url=url, credentials_name="slurm") if url is not None else None
            self._create(objects.pool(name, jobs=JobSettings(slurm=slurm)))
            mac = f"52:54:00:00:{number >> 8:02x}:{number & 255:02x}"
            self._create(objects.server(name, node_pool_ref=name, boot_mac_address=mac))
            self.cluster.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
            boot = {"nodeInfo": {"bootID": f"00000000-0000-4000-8000-{number:012}"}}
            ready = [{"type": "Ready", "status": "True"}]
            self.cluster.strategic_patch(NODES, name, {"status": {**boot, "conditions": ready}}, subresource="status")

    def _create(self, resource: Resource) -> None:
        body = encode(resource)
        body["metadata"].pop("uid", None)
        status = body.pop("status", None)
        self.cluster.create(of(type(resource)), body)
        if status:
            self.cluster.apply_status(type(resource), resource.name, status, manager="tests")


def _waits_for_slurm(frame: Any) -> bool:
    files: list[str] = []
    while frame is not None:
        files.append(frame.f_code.co_filename)
        frame = frame.f_back
    return any(file.endswith("jobs/slurm/rest.py") for file in files)
