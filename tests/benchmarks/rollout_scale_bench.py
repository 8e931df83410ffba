"""A rollout over a large pool whose servers all run jobs: what it asks, uses, and how soon it claims.

`python -m tests.benchmarks.rollout_scale_bench --servers 1000 10000`. For each size a fresh etcd and API server, and
`provisioner controller` as it is shipped, all its controllers, under its own account and policies. One server was
brought into use by it; the others are copies (`fleet/copies.py`), each with a pod that has all its GPUs. Then the
pool's imageRef changes. When the canary is through and every other server is closed and has the image staged, the
controller's idle load is measured; then jobs end one by one, and then many at once.

Simulated: the machines (agent, kubelet, join: `fleet/agents.py`), which boot in 2 s and stage at once. There is no
scheduler, no controller manager, and no heartbeat of kubelets. Counts are asserted; times go into the table.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from lab.binaries.obtain import Binaries, find_binaries
from lab.control_plane.plane import ControlPlane
from provisioner.api import Image, Maintenance, NodePool, Server
from provisioner.api.machinery.conditions import is_true
from provisioner.api.nodes.maintenance import FINAL_PHASES
from provisioner.cluster.client import Cluster
from provisioner.cluster.informer import Informer
from provisioner.cluster.resources import of
from provisioner.cluster.source import phase_of, spec_of
from tests.api.objects import IMAGE_JUDGED, image, node_pool
from tests.benchmarks.fleet.agents import BOOT_SECONDS, Agents, boot, renew_lease
from tests.benchmarks.fleet.asked import count_account, requests_of_account
from tests.benchmarks.fleet.copies import MODEL, Place, copy_model, end_job, make_jobs_namespace, make_model, make_racks
from tests.benchmarks.processor_time import seconds_of
from tests.benchmarks.record import Check, Goal, begin, say, spread
from tests.benchmarks.scale_bench import column, controller, holder, peak_mib, settle
from tests.conftest import install, may_begin
from tests.people import CONTROLLER, kubeconfig_of, of_account, until
from tests.tools import CACHE

OLD: Final = "gpu-node-9f9f9f9f9f9f"
OLD_DIGEST: Final = "sha256:" + "9f" * 32
NEW: Final = "gpu-node-cdcdcdcdcdcd"
NEW_DIGEST: Final = "sha256:" + "cd" * 32
IDLE_SECONDS: Final = 60
JOBS_PER_SECOND: Final = 1.0
GOALS: Final = {
    "requests": Goal("requests of the rollout's account, a server", 6.0),
    "memory": Goal("controller's memory at most, MiB", 512),
    "idle": Goal("controller while all wait for their jobs, % of a core", 2.0),
    "claimed": Goal("s from a job's end until its server is claimed, at worst", 2.0),
}
SHARE_AT_ONCE: Final = 0.1
STRATEGY: Final = {"canary": {"count": 1, "soakSeconds": 0}, "maxParallel": "10%", "maxUnavailable": "25%"}


@dataclass
class Result:
    """One size. Seconds, MiB, per cent of a core; requests of the rollout's account by verb and resource."""

    servers: int
    sample: int
    at_once: int
    waiting_seconds: float = 0.0
    idle_percent: float = 0.0
    memory_mib: float = 0.0
    granted: list[float] = field(default_factory=list)
    claimed: list[float] = field(default_factory=list)
    begin: Counter[tuple[str, str]] = field(default_factory=Counter)
    idle: Counter[tuple[str, str]] = field(default_factory=Counter)
    updates: Counter[tuple[str, str]] = field(default_factory=Counter)
    at_once_seconds: float = 0.0

    @property
    def claimed_at_worst(self) -> float:
        return max(self.claimed)

    @property
    def requests(self) -> float:
        """A server, from the change of the image until it runs it."""
        return sum(self.begin.values()) / self.servers + sum(self.updates.values()) / self.sample


class Watched:
    """When a server's turn came, when it was claimed, and how many wait closed or are done, by the Maintenances."""

    def __init__(self, cluster: Cluster, stop: threading.Event) -> None:
        self.granted: dict[str, float] = {}
        self.claimed: dict[str, float] = {}
        self.completed: dict[str, float] = {}
        self.closed: set[str] = set()
        self.failed: list[str] = []
        informer = Informer(cluster, of(Maintenance))
        informer.subscribe(self._changed)
        informer.start(stop)

    def _changed(self, name: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> None:
        server, phase, now = str(spec_of(new).get("serverRef")), phase_of(new), time.monotonic()
        turns = {each.get("turn") for each in spec_of(new).get("requestors") or ()}
        if "Closed" in turns:
            self.closed.add(server)
        if "Granted" in turns:
            self.granted.setdefault(server, now)
        if phase == "Claiming":
            self.claimed.setdefault(server, now)
        if phase == "Completed":
            self.completed.setdefault(server, now)
        elif phase in FINAL_PHASES:
            self.failed.append(f"{name}: {phase}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the table; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--limit-seconds", type=float, default=1500, help="of one rollout, from its begin on")
    parser.add_argument("--sample", type=int, default=100, help="jobs that end one by one")
    parser.add_argument("--at-once", type=int, default=500, help="jobs that end together after that")
    parser.add_argument("--repetitions", type=int, default=3)
    options, _ = parser.parse_known_args(arguments)
    run = begin("rollout_scale")
    results: dict[int, list[Result]] = {servers: [] for servers in options.servers}
    for _ in range(options.repetitions):
        for servers, found in results.items():
            sample, at_once = min(options.sample, servers // 4), min(options.at_once, servers // 4)
            with tempfile.TemporaryDirectory(prefix="rollout-scale-") as folder:
                found.append(measure(Result(servers, sample, at_once), Path(folder), options.limit_seconds))
    return run.finish(table(results, etcd_version()), check_goals(results), options.repetitions)


def measure(result: Result, folder: Path, limit_seconds: float) -> Result:
    """One pool on a fresh control plane."""
    binaries = find_binaries(assets=None, cache=CACHE, allow_download=False, allow_build=False)
    stop = threading.Event()
    with ControlPlane(folder / "plane", binaries) as plane:
        os.kill(plane.pids()["kube-controller-manager"], signal.SIGTERM)
        cluster = Cluster.connect(plane.kubeconfig, user_agent="rollout-scale-bench")
        install(cluster)
        count_account(cluster, of_account("rollout"))
        account = kubeconfig_of(plane, folder, CONTROLLER)
        until(lambda: may_begin(Cluster.connect(account)))
        make_fleet(cluster, plane, account, folder, result.servers)
        try:
            with controller(account, "measured", folder) as leader:
                until(lambda: holder(cluster) == "measured")
                settle(plane, binaries)
                agents = Agents(plane.kubeconfig, stop)
                agents.start()
                roll_out(cluster, plane, binaries, result, leader.pid, time.monotonic() + limit_seconds, stop)
                result.memory_mib = peak_mib(leader.pid)
                if agents.errors:
                    say(f"agents: {len(agents.errors)} errors, the first: {agents.errors[0]}")
        finally:
            stop.set()
            if keep := os.environ.get("ROLLOUT_SCALE_LOG"):
                Path(keep).write_text((folder / "measured.log").read_text())
    return result


def make_fleet(cluster: Cluster, plane: ControlPlane, account: Path, folder: Path, servers: int) -> None:
    """Images, a pool, and servers in use with its image, of which all but the first run a job."""
    publish(cluster, OLD, OLD_DIGEST)
    publish(cluster, NEW, NEW_DIGEST)
    settings = {"kexecModels": ["*"], "maxUnavailable": "10%"}
    pool = node_pool(imageRef=OLD, attestation="Optional", maintenance=settings, upgradeStrategy=STRATEGY)
    cluster.apply(pool, manager="bench")
    make_racks(cluster, servers)
    make_jobs_namespace(cluster)
    make_model(cluster)
    with controller(account, "first", folder):
        until(lambda: cluster.read(Server, MODEL.name).status.node_uid is not None)
        boot(cluster, MODEL.name, OLD_DIGEST)
        wait_until_in_use(cluster)
    seconds = copy_model(plane.kubeconfig, cluster, range(1, servers))
    say(f"{servers} servers made in {seconds:.0f} s")


def wait_until_in_use(cluster: Cluster) -> None:
    """Renew the model's Lease until its checks have passed and its image is assigned to it."""

    def in_use() -> bool:
        renew_lease(cluster, MODEL.name)
        status = cluster.read(Server, MODEL.name).status
        return status.lifecycle == "InProduction" and status.assigned_image_ref == OLD and status.boot_stage == "Ready"

    until(in_use)
    time.sleep(10)  # what is said of it last


def publish(cluster: Cluster, name: str, digest: str) -> None:
    body = image(name, digest=digest)
    cluster.apply(body, manager="bench")
    available = {"type": "Available", "status": "True", "reason": "Available", "message": "on a boot host"}
    available["lastTransitionTime"] = "2026-01-02T03:04:05Z"
    cluster.apply_status(Image, name, {"conditions": [available, IMAGE_JUDGED]}, manager="provisioner-boot")


def roll_out(
    cluster: Cluster,
    plane: ControlPlane,
    binaries: Binaries,
    result: Result,
    pid: int,
    deadline: float,
    stop: threading.Event,
) -> None:
    """Change the image; measure while all wait, while jobs end one by one, and while many end at once."""
    watched = Watched(Cluster.connect(plane.kubeconfig, user_agent="rollout-scale-bench"), stop)
    names = [Place(number).name for number in range(1, result.servers)]

    def asked() -> Counter[tuple[str, str]]:
        return requests_of_account(plane, binaries)

    def wait(what: str, holds: Callable[[], bool]) -> None:
        while not holds():
            if time.monotonic() > deadline or watched.failed:
                sys.exit(f"rollout_scale_bench: {what}: not within the limit; {watched.failed[:3]} {state(cluster)}")
            time.sleep(0.5)

    before, began = asked(), time.monotonic()
    cluster.patch(of(NodePool), "gpu", {"spec": {"imageRef": NEW}})
    wait("the canary", lambda: MODEL.name in watched.completed)
    say(f"canary after {time.monotonic() - began:.0f} s")
    wait("all wait", lambda: len(watched.closed) == len(names))
    say(f"all closed after {time.monotonic() - began:.0f} s")
    settle(plane, binaries, deadline - time.monotonic())
    result.waiting_seconds = time.monotonic() - began
    waiting = asked()
    result.begin = waiting - before
    say(f"all wait after {result.waiting_seconds:.0f} s: {state(cluster)}")

    began, used = time.monotonic(), seconds_of(pid)
    time.sleep(IDLE_SECONDS)
    result.idle_percent = 100 * (seconds_of(pid) - used) / (time.monotonic() - began)
    idle = asked()
    result.idle = idle - waiting
    say(f"idle: {result.idle_percent:.2f} % of a core, {dict(result.idle)}")

    sample = names[:: len(names) // result.sample][: result.sample]
    ended: dict[str, float] = {}
    for name in sample:
        wait("room", lambda: len(ended) - len(ended.keys() & watched.completed) < result.servers * SHARE_AT_ONCE / 2)
        ended[name] = time.monotonic()
        end_job(cluster, name)
        time.sleep(max(0.0, 1 / JOBS_PER_SECOND - (time.monotonic() - ended[name])))
    wait("the sample is updated", lambda: all(is_updated(cluster, name) for name in sample))
    settle(plane, binaries, 60)
    result.updates = asked() - idle
    result.granted = sorted(watched.granted[name] - ended[name] for name in sample)
    result.claimed = sorted(watched.claimed[name] - ended[name] for name in sample)
    say(f"claimed after {summary(result.claimed)} s, granted after {summary(result.granted)} s")
    say(f"requests a server: {result.requests:.2f}; {dict(result.begin)}, then {dict(result.updates)}")

    rest = [name for name in names if name not in ended][: result.at_once]
    began = time.monotonic()
    for name in rest:
        end_job(cluster, name)
    wait("many at once", lambda: all(name in watched.completed for name in rest))
    result.at_once_seconds = time.monotonic() - began
    say(f"{len(rest)} at once: {result.at_once_seconds:.0f} s")


def is_updated(cluster: Cluster, name: str) -> bool:
    status = cluster.read(Server, name).status
    return status.assigned_image_ref == NEW and is_true(status.conditions, "Verified")


def state(cluster: Cluster) -> str:
    status = cluster.read(NodePool, "gpu").status
    return f"{status.updated} updated, {status.updating} updating, {status.waiting} wait: " + (
        status.rollout.message if status.rollout is not None else ""
    )


def summary(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):.2f}, {max(seconds):.2f}"


def etcd_version() -> str:
    """Of the etcd that the control plane runs on."""
    etcd = find_binaries(assets=None, cache=CACHE, allow_download=False, allow_build=False).etcd
    said = subprocess.run([*etcd, "--version"], capture_output=True, text=True, check=True).stdout
    return said.splitlines()[0].replace("etcd Version:", "etcd")


def check_goals(results: Mapping[int, Sequence[Result]]) -> list[Check]:
    fields = {"requests": "requests", "memory": "memory_mib", "idle": "idle_percent", "claimed": "claimed_at_worst"}
    return [
        GOALS[goal].check(f"{servers:,} servers", column(found, field))
        for servers, found in results.items()
        for goal, field in fields.items()
    ]


def table(results: Mapping[int, Sequence[Result]], etcd: str) -> str:
    rows = [
        "## A rollout over a large pool whose servers all run jobs",
        "",
        "`provisioner controller` with the shipped account and policies, all its controllers in one process; etcd and "
        "the API server on the same machine. A pool of one",
        "server that is idle (the canary) and others with a pod that has all 8 GPUs; kexec; 10 % at once. Requests: "
        "all that the account of the rollout asked (a FlowSchema",
        "counts them), the pool's status and Events among them, from the change of imageRef until a server runs the "
        "image; what its Maintenance costs is asked by other",
        f"accounts. Idle: {IDLE_SECONDS} s while all wait for their jobs. Claimed: from the write of a pod's end until "
        "its Maintenance is seen to be Claiming; at most one job ends",
        "a second, and only while the rollout has room. Simulated: agents, kubelets and joins (a boot takes "
        f"{BOOT_SECONDS:.0f} s, an image is staged at once); no scheduler, no controller",
        "manager, no heartbeats of kubelets. MiB: the most at any moment. Median (least to most); claims: of all "
        "repetitions.",
        f"{etcd}: an etcd before 3.4.31 or 3.5.13 cannot tell the API server how far it has got, which then "
        "reads all pods out of it for each claim.",
        "",
        "| servers | requests a server | MiB | idle % of a core | requests while idle "
        "| claimed after s, of so many: median, worst | of these until its turn: median, worst "
        "| all closed and staged after s | so many at once: s |",
        "|" + "---|" * 9,
    ]
    for servers, found in results.items():
        claimed, granted = ([s for one in found for s in getattr(one, what)] for what in ("claimed", "granted"))
        idle = [sum(one.idle.values()) for one in found]
        rows.append(
            f"| {servers:,} | {spread(column(found, 'requests'), '.2f')} "
            f"| {spread(column(found, 'memory_mib'), '.0f')} "
            f"| {spread(column(found, 'idle_percent'))} | {spread(idle, '.0f')} | {len(claimed)}: {summary(claimed)} "
            f"| {summary(granted)} | {spread(column(found, 'waiting_seconds'), '.0f')} "
            f"| {found[0].at_once}: {spread(column(found, 'at_once_seconds'), '.0f')} |"
        )
    *_, (largest, repetitions) = results.items()
    last = repetitions[-1]
    rows += ["", f"Requests of the rollout's account, of {largest:,} servers, of the last repetition:", ""]
    rows += ["| verb | resource | until all wait, a server | while jobs end, an update |", "|---|---|---|---|"]
    for verb, resource in sorted(last.begin | last.updates):
        beginning, update = last.begin[verb, resource] / largest, last.updates[verb, resource] / last.sample
        rows.append(f"| {verb} | {resource} | {beginning:.3f} | {update:.2f} |")
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main())
