"""What a controller that leads a small fleet, and a boot host, answer Prometheus: by the code that answers it there."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from prometheus_client import generate_latest
from prometheus_client.core import Metric

from provisioner.boot.cache.metrics import CacheMeters, cache_families
from provisioner.boot.dhcp.responder.tally import Tally
from provisioner.boot.dhcp.workers.supervisor import WorkerStates
from provisioner.boot.host.metrics import told_of_boot_host
from provisioner.boot.metrics.inventory import InventoryMeter
from provisioner.boot.metrics.log_tail import LogTail
from provisioner.boot.metrics.meters import BootMeters, log_families
from provisioner.boot.metrics.nginx_status import Connections
from provisioner.boot.metrics.programs import health_families, nginx_families, program_families
from provisioner.cluster.controller import Controller
from provisioner.cluster.health.checks import Check, well
from provisioner.cluster.informer import Informer
from provisioner.cluster.metrics import Meters
from provisioner.cluster.process import Process
from provisioner.cluster.resources import NODES
from provisioner.join.admission.meter import JoinMeter
from provisioner.outbound.bulkhead import Bulkhead, LanePolicy
from tests.boot.test_nginx import make_certificate
from tests.cluster.fake_cluster import FakeCluster
from tests.cluster.test_metrics import NOON, FakeCache, maintenance, new_meters, pool, server
from tests.cluster.test_state_metrics import attachment, condition
from tests.tools import installed

Sample = tuple[str, dict[str, str], float]
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def samples(text: str) -> Iterator[Sample]:
    """Name, labels, value of each line."""
    for line in text.splitlines():
        if not line.startswith("#"):
            series, _, value = line.rpartition(" ")
            name, _, labels = series.partition("{")
            yield name, dict(_LABEL.findall(labels)), float(value)


def families(text: str) -> dict[str, set[str]]:
    """Of each metric, by its name as PromQL asks for it, the names of its labels."""
    found: dict[str, set[str]] = {}
    for name, labels, _ in samples(text):
        found.setdefault(name, set()).update(labels)
    return found


@cache
def certificate() -> str:
    """One that ends some day."""
    with tempfile.TemporaryDirectory() as folder:
        make_certificate(Path(folder))
        return (Path(folder) / "cert.pem").read_text()


class FleetOfTests:
    """A leader with servers, a rollout, a Maintenance, DPUs, attachments, reflectors; `live` has something happen."""

    def __init__(self) -> None:
        self.meters: Meters = new_meters()
        self.process = Process(lambda: 1.0)
        self.process.may_act()
        cluster = FakeCluster()
        cluster.ca_pem = certificate()
        self.meters.tell_of(self.process, cluster)  # type: ignore[arg-type]
        self.servers = FakeCache(*(self._server(number) for number in range(4)), self._card())
        ages = {"phase": "Waiting", "blockers": [{"kind": "Pod"}]}
        self.maintenances = FakeCache(maintenance("m-1", ages.pop("phase"), **ages), maintenance("m-2", "Draining"))
        begun = NOON - timedelta(hours=1)
        counts = {"desired": 10, "updated": 3, "updating": 1, "waiting": 4, "failed": 1, "unavailable": 3}
        self.pools = FakeCache(
            pool(
                "gpu", begun=begun, stage="Wave", waits={"Job": 3}, jobs=(40, 2, 20, 5), **counts,
                expected="2026-01-02T13:00:00Z",
            )
        )  # fmt: skip
        self.csrs = FakeCache()
        image = {"metadata": {"name": "new"}, "status": {"conditions": [condition("Available", "True", "Complete")]}}
        racks = FakeCache({"metadata": {"name": "r01"}, "status": {"conditions": []}})
        self.meters.follow(self.servers, self.maintenances, self.pools, racks, images=FakeCache(image))
        self.meters.outcomes.follow_certificates(self.csrs)
        reflectors = {"type": "EVPN", "asn": 65000, "reflectors": ["10.0.0.1"]}
        self.meters.follow_network(
            self.servers,
            FakeCache(attachment("a", "Enforced"), attachment("b", "WaitsForDPU", 5)),
            FakeCache({"metadata": {"name": "d", "generation": 1}, "spec": {"evpn": {}}, "status": {}}),
            FakeCache({"metadata": {"name": "default"}, "spec": {"routeDistribution": reflectors}, "status": {}}),
        )
        self.meters.lead()
        self.meters.leases.stand("provisioner-controller")
        self.slurm = Bulkhead("slurmrestd", LanePolicy(failures=1))
        self.meters.watch(self.slurm)
        self._controllers = [Controller("inventory-servers", lambda _key: None), Controller("boot", lambda _key: None)]
        self.meters.controllers.observe(self._controllers)
        self._informer = Informer(FakeCluster(), NODES)
        self.minute = 0

    def _server(self, number: int) -> dict[str, Any]:
        body = server(f"r01-u{number:02}", conditions=[condition("PoweredOn", "True", "On")])
        body["spec"] |= {"bmc": {"address": "https://10.90.0.11"}, "acceptance": "Accepted"}
        return body

    def _card(self) -> dict[str, Any]:
        body = server("r01-u00-dpu", conditions=[condition("Ready", "True", "NodeReady")])
        body["spec"] |= {"dpu": {}, "acceptance": "Accepted"}
        return body

    def live(self) -> None:
        """A minute in which one of each kind of thing happens."""
        self.minute += 1
        meters, stamp = self.meters, f"2026-01-02T11:{self.minute % 60:02}:0"
        order = {"id": f"o{self.minute}", "reason": "Requested", "orderedTime": f"{stamp}0Z", "attempt": 1}
        known = {"order": order, "power": {"orderID": order["id"], "orderTime": f"{stamp}1Z"}}
        checks = [{"name": "Clock", "result": "Passed"}]
        decided = {"attempt": 1, "bootID": "b", "finishedTime": f"{stamp}9Z", "checks": checks}
        late = [condition("Ready", "False", "StageTimedOut")]
        self.servers.put(server(**known, bootStage="Root", conditions=late))
        self.servers.put(server(**known, readyTime=f"{stamp}8Z"))
        self.servers.put(server(**known, readyTime=f"{stamp}8Z", verification=decided))
        self.servers.put(self._server(1))
        meters.maintenance.phase_ended("Draining", "Reboot", 42)
        meters.maintenance.wait_ended("Pod", 700)
        meters.maintenance.attempt_ended("Kexec", "Booted", 30)
        meters.maintenance.finished("Completed", "Booted", "Reboot", "WhenIdle", 500)
        meters.requests.seen("list", "servers", 200, 0.02)
        meters.outcomes.bmc_failed("BMCUnreachable")
        signer = {"signerName": "kubernetes.io/kubelet-serving"}
        self.csrs.put({"metadata": {"name": f"c{self.minute}"}, "spec": signer})
        decided = {"conditions": [condition("Approved", "True", "x")]}
        self.csrs.put({"metadata": {"name": f"c{self.minute}"}, "spec": signer, "status": decided})
        for controller in self._controllers:
            observer = controller.queue.observer
            assert observer is not None
            observer.taken(0.1)
            observer.reconciled(0.2, None)  # type: ignore[attr-defined]

    def text(self) -> str:
        with self.process.following([self._informer]), self.process.working(self._controllers):
            return generate_latest(self.meters.registry).decode()


class FakeResponder:
    """Counts what a test says."""

    def __init__(self) -> None:
        self.counted = Tally()
        self.workers = WorkerStates(2, 2, 0, 0.0)

    def tally(self) -> Tally:
        return self.counted

    def problems(self) -> dict[str, str]:
        return {}


class _Sized(SimpleNamespace):
    def __len__(self) -> int:
        return 4


class HostOfTests:
    """A boot host that answers DHCP; `live` has machines boot."""

    def __init__(self, folder: Path) -> None:
        make_certificate(folder)
        self.meters = BootMeters(folder)
        self.dhcp = FakeResponder()
        self.joins = JoinMeter(self.meters.registry)
        names = ("inventory", "scripts", "dhcp", "nginx", "tftp", "store", "web")
        health: Any = SimpleNamespace(
            readiness=tuple(Check(name, lambda: well()) for name in names),
            liveness=tuple(Check(name, lambda: well()) for name in ("threads", "watches")),
            nginx=SimpleNamespace(connections=Connections(0, 2, 5)),
        )
        programs: Any = [SimpleNamespace(name=name, pid=1, restarts=0) for name in ("nginx", "dnsmasq")]
        servers = {
            "kind": "Server",
            "has_synced": True,
            "heard_seconds": lambda: 1.0,
            "subscribe": lambda _watcher: None,
        }
        caches: Any = [_Sized(**servers)]
        self.meters.tell([InventoryMeter(caches).families])
        self.meters.tell(
            told_of_boot_host(
                renderer=SimpleNamespace(scripts=4, pending=lambda: (0, 0.0)),  # type: ignore[arg-type]
                recorder=SimpleNamespace(pending=0),  # type: ignore[arg-type]
                index=SimpleNamespace(waiting=0),  # type: ignore[arg-type]
                store=SimpleNamespace(count=lambda: (2, 0)),  # type: ignore[arg-type]
                folders={"image_store": folder, "state": folder},
                dhcp=self.dhcp,
                health=health,
                programs=programs,
                slots=64,
                certificate=folder / "cert.pem",
                tail=LogTail(folder / "none.log", lambda _line: True),
            )
        )

    def live(self) -> None:
        for name, count in {"offered": 2, "acknowledged": 2, "dropped-no-subnet": 1}.items():
            self.dhcp.counted.counters[name] += count
        self.dhcp.counted.note_wait(0.002, 4)
        self.dhcp.counted.received()[1][1] += 2
        for name in ("first_script", "kernel", "layer", "manifest"):
            self.meters.requests.count(f"{name} 200 500 0.010 -".encode())
        self.meters.api.seen("watch", "servers", 200, 0.02)

    def text(self) -> str:
        return generate_latest(self.meters.registry).decode()


def cache_of_tests(folder: Path) -> str:
    """What a rack's cache that has done nothing yet answers."""
    meters = CacheMeters()
    results = ("kept", "false", "cut", "full", "not_found", "failed")
    fetcher: Any = SimpleNamespace(counts=lambda: dict.fromkeys(results, 0), fetched_bytes=0, under_way=())
    kept: Any = SimpleNamespace(all=lambda: (), most_bytes=1, evicted=0)
    programs: Any = [SimpleNamespace(name="nginx", pid=1, restarts=0)]
    checks = [Check(name, lambda: well()) for name in ("nginx", "fetcher", "disk")]
    tail = LogTail(folder / "none.log", lambda _line: True)
    families: tuple[Callable[[], Iterable[Metric]], ...] = (
        lambda: cache_families(kept, fetcher, 0, folder),
        lambda: nginx_families(Connections(0, 0, 0), 64),
        lambda: program_families(programs),
        lambda: health_families([Check("threads", lambda: well())], checks),
        lambda: log_families(tail),
    )
    meters.tell(families)
    return generate_latest(meters.registry).decode()


def promtool(*arguments: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [installed("promtool"), *arguments]
    return subprocess.run(command, input=given, capture_output=True, text=True, check=False, timeout=180)


def history(texts: Sequence[str]) -> list[dict[str, str]]:
    """Of expositions a minute apart, promtool's input series."""
    read = [dict(line.rpartition(" ")[::2] for line in text.splitlines() if not line.startswith("#")) for text in texts]
    names = sorted({name for moment in read for name in moment})
    return [{"series": n, "values": " ".join(moment.get(n, "_") for moment in read)} for n in names]
