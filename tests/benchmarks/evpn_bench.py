"""From a change to enforced on all DPUs of a VPC: routes by the API server, and by FRR's bgpd (EVPN).

`python -m tests.benchmarks.evpn_bench --dpus 5 10 20`. So many DPUs in network namespaces, all in one VPC, each with a
host. One of them gets a further address, and the time counts until a dump of every DPU's kernel has shown it. By the
API server: every DPU's DPUNetwork is written anew, as the controllers do, with 8 connections. By EVPN: that of the one
DPU; it announces the address once it has enforced it, and a reflector hands it on. The same agents, watches and
kernels; they take turns within one run. All agents are threads of one process, and share two processors with the API
server and all bgpds: only the two columns beside each other can be compared.

Not measured: the controllers' compiling; DPUs with processors of their own; reflectors of more than some dozen clients.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

from lab.binaries.obtain import find_binaries
from lab.control_plane.kubelet_files import join_as
from lab.control_plane.plane import ControlPlane
from provisioner.api.machinery.codec import to_json
from provisioner.api.network.dpu_network import DPUEvpn, DPUNetworkSpec, RemotePrefixes
from provisioner.cluster.client import Cluster
from provisioner.network.agent.dhcp.served import ServedPort
from provisioner.network.agent.exchanging import ASK_SECONDS, ExchangingKernel
from provisioner.network.agent.follow import COLLECTION, Agent
from provisioner.network.agent.result import Enforced
from provisioner.network.control.turns import AHEAD_SECONDS, SECONDS_A_DPU
from provisioner.node.api_server import OwnObject, read_access
from provisioner.node.watch import ObjectWatch
from tests.benchmarks.record import Goal, begin, spread
from tests.conftest import install
from tests.network.agent.rack import DPU, rack
from tests.network.agent.specs import BLUE, port, spec, vpc
from tests.network.evpn.fabric import FABRIC, Member, evpn_fabric
from tests.people import bind
from tests.tools import CACHE

GOALS: Final[dict[str, Goal]] = {}
LIMIT_SECONDS: Final = 60.0
CONNECTIONS: Final = 8
SPACE: Final = ("10.1.0.0/16", "172.16.0.0/12")
CALCULATED: Final = (20, 100, 1000, 4000)


@dataclass
class Result:
    """One number of DPUs. Seconds until the last DPU, of each repetition."""

    dpus: int
    by_api: list[float] = field(default_factory=list)
    by_evpn: list[float] = field(default_factory=list)
    api_writes: int = 0
    evpn_writes: int = 0
    api_bytes: int = 0
    evpn_bytes: int = 0
    bgpd_mib: float = 0.0
    reflector_mib: float = 0.0


class Timed:
    """The kernel of a DPU; notes since when a dump of it has shown a prefix, of its own or of another DPU."""

    def __init__(self, dpu: DPU) -> None:
        self._dpu = dpu
        self._lock = threading.Lock()
        self._known: dict[str, float] = {}

    def enforce(self, wanted: DPUNetworkSpec) -> Enforced:
        enforced = self._dpu.enforce(wanted)
        if enforced.agrees:
            remote = {prefix for each in wanted.vpcs for one in each.remotes for prefix in one.prefixes}
            own = {f"{each.addresses[0]}/32" for each in wanted.ports} | {p for e in wanted.ports for p in e.prefixes}
            now = time.monotonic()
            with self._lock:
                self._known = {prefix: self._known.get(prefix, now) for prefix in remote | own}
        return enforced

    def since(self, prefix: str) -> float | None:
        with self._lock:
            return self._known.get(prefix)

    def release(self) -> Enforced:
        return self._dpu.release()

    def isolate_unless_enforced(self) -> bool:
        return True

    def served(self) -> tuple[ServedPort, ...]:
        return ()

    def boot(self) -> None:
        return None


class Fleet:
    """DPUs with their agents. `members`: their bgpds, where routes go by EVPN."""

    def __init__(self, cluster: Cluster, plane: ControlPlane, folder: Path, dpus: Sequence[DPU], prefix: str) -> None:
        self.cluster, self.plane, self.folder, self.dpus = cluster, plane, folder, dpus
        self.names = [f"{prefix}-{number}" for number in range(len(dpus))]
        self.kernels: list[Timed] = []
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._watches: list[ObjectWatch] = []

    def start(self, members: Sequence[Member] | None) -> None:
        for number, (name, dpu) in enumerate(zip(self.names, self.dpus, strict=True)):
            root = self.folder / name
            join_as(root, self.plane, name, name)
            bind(self.cluster, "provisioner-bench-dpu", f"system:node:{name}")
            kernel = Timed(dpu)
            self.kernels.append(kernel)
            self._start_agent(str(root), kernel, members[number] if members else None)

    def _start_agent(self, root: str, kernel: Timed, member: Member | None) -> None:
        def own() -> OwnObject:
            access = read_access(root)
            return OwnObject(access, COLLECTION, access.node)

        exchanging = ExchangingKernel(kernel, member.daemon.directory) if member is not None else None
        agent = Agent(exchanging or kernel, lambda change: own().patch(change, subresource="status"), lambda _: None)
        watch = ObjectWatch(own, agent.take, lambda _: None, "DPUNetwork")
        self._watches.append(watch)
        watch.start()
        self._run(lambda: agent.run(self._stop))
        if exchanging is not None:
            self._run(lambda: exchanging.watch(agent.changed.set, self._stop))

    def _run(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        self._threads.append(thread)

    def stop(self) -> None:
        self._stop.set()
        for watch in self._watches:
            watch.stop()
        for thread in self._threads:
            thread.join(30)

    def tell(self, specs: Iterable[tuple[int, DPUNetworkSpec]]) -> int:
        """Write DPUNetworks with `CONNECTIONS` at once; how many bytes."""

        def written(each: tuple[int, DPUNetworkSpec]) -> int:
            number, told = each
            body = {"apiVersion": "provisioner.dev/v1alpha1", "kind": "DPUNetwork"}
            body |= {"metadata": {"name": self.names[number]}, "spec": to_json(told)}  # type: ignore[dict-item]
            self.cluster.apply(body, manager="bench")
            return len(str(body))

        with ThreadPoolExecutor(CONNECTIONS) as pool:
            return sum(pool.map(written, specs))

    def wait(self, holds: Callable[[Timed], bool], what: str) -> None:
        deadline = time.monotonic() + LIMIT_SECONDS
        while not all(holds(each) for each in self.kernels):
            if time.monotonic() > deadline:
                left = [n for n, each in zip(self.names, self.kernels, strict=True) if not holds(each)]
                sys.exit(f"evpn_bench: {what}: not within {LIMIT_SECONDS:.0f} s on {left}")
            time.sleep(0.02)

    def seconds_until_all_have(self, prefix: str, began: float) -> float:
        self.wait(lambda each: each.since(prefix) is not None, f"all have {prefix}")
        return max(found - began for each in self.kernels if (found := each.since(prefix)) is not None)


def vtep(number: int) -> str:
    return str(IPv4Address("192.0.2.1") + number)


def address(number: int) -> str:
    return f"10.1.{number // 100}.{2 * (number % 100) + 3}"


def extra(repetition: int) -> str:
    return f"172.16.{repetition}.0/24"


def told(number: int, dpus: int, prefixes: tuple[str, ...], *, with_remotes: bool) -> DPUNetworkSpec:
    """`prefixes`: what is behind the first DPU's host beside its address."""
    others = [each for each in range(dpus) if each != number]
    network = vpc(BLUE, members=[vtep(each) for each in others])
    if with_remotes:
        behind = tuple(
            RemotePrefixes(vtep=vtep(each), prefixes=(f"{address(each)}/32", *(prefixes if each == 0 else ())))
            for each in others
        )
        network = replace(network, remotes=behind)
    evpn = None
    if not with_remotes:
        network, evpn = replace(network, space=SPACE), DPUEvpn(asn=FABRIC.asn, reflectors=FABRIC.reflectors)
    own = port(address(number), vtep=vtep(number), prefixes=prefixes if number == 0 else ())
    return replace(spec([network], [own], vtep=vtep(number)), evpn=evpn)


def measure(result: Result, repetitions: int, cluster: Cluster, plane: ControlPlane, folder: Path) -> None:
    numbers = range(result.dpus)
    with rack() as ours, rack() as theirs, evpn_fabric(theirs, made(folder / f"frr-{result.dpus}")) as fabric:
        by_api = Fleet(cluster, plane, folder, [ours.dpu(vtep(each)) for each in numbers], f"api-{result.dpus}")
        members = [fabric.member(vtep(each)) for each in numbers]
        dpus = [each.dpu for each in members]
        by_evpn = Fleet(cluster, plane, folder, dpus, f"evpn-{result.dpus}")
        fabric.tell_reflector({vtep(each): [BLUE] for each in numbers})
        try:
            for fleet, with_remotes in ((by_api, True), (by_evpn, False)):
                fleet.tell((each, told(each, result.dpus, (), with_remotes=with_remotes)) for each in numbers)
                fleet.start(members if fleet is by_evpn else None)
                for each in numbers:
                    fleet.wait(lambda kernel, e=each: kernel.since(f"{address(e)}/32") is not None, "the beginning")
            for repetition in range(repetitions):
                prefixes = tuple(extra(each) for each in range(repetition + 1))
                began = time.monotonic()
                result.api_bytes = by_api.tell((n, told(n, result.dpus, prefixes, with_remotes=True)) for n in numbers)
                result.by_api.append(by_api.seconds_until_all_have(extra(repetition), began))
                began = time.monotonic()
                result.evpn_bytes = by_evpn.tell([(0, told(0, result.dpus, prefixes, with_remotes=False))])
                result.by_evpn.append(by_evpn.seconds_until_all_have(extra(repetition), began))
            result.api_writes, result.evpn_writes = result.dpus, 1
            result.bgpd_mib = statistics.median(memory_mib(each.daemon.process.pid) for each in members)
            result.reflector_mib = memory_mib(fabric.reflector.process.pid)
        finally:
            by_api.stop()
            by_evpn.stop()


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def memory_mib(pid: int) -> float:
    """Of the process in memory now; nsenter has become bgpd."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) / 1024


def table(results: Sequence[Result]) -> str:
    rows = [
        "## Routes by EVPN (FRR's bgpd), against routes by the API server",
        "",
        "One VPC with a host behind each of so many DPUs in network namespaces; one DPU gets a further prefix. Seconds "
        "until a dump of the last DPU's kernel has shown it: median (least to most)",
        "of repetitions that take turns. API server, all agents and all bgpds share the processors. Writes and bytes: "
        "of the DPUNetworks that this change makes. Compiling is in neither.",
        f"An agent asks its bgpd each {ASK_SECONDS:g} s.",
        "",
        "| DPUs | by the API server: s | by EVPN: s | writes | kB written | bgpd: MiB | reflector: MiB |",
        "|" + "---|" * 7,
    ]
    rows += [
        f"| {each.dpus} | {spread(each.by_api, '.2f')} | {spread(each.by_evpn, '.2f')} "
        f"| {each.api_writes} : {each.evpn_writes} "
        f"| {each.api_bytes / 1000:.1f} : {each.evpn_bytes / 1000:.1f} | {each.bgpd_mib:.0f} "
        f"| {each.reflector_mib:.0f} |"
        for each in results
    ]
    return "\n".join([*rows, *calculated()])


def calculated() -> list[str]:
    """What of the DPUNetworks of larger VPCs can be known without having them: their JSON is made, and counted."""
    rows = [
        "",
        "Calculated, not measured: DPUNetworks that are written, and MB of JSON, when a prefix comes behind a DPU of "
        "a VPC with one host a DPU, and when a DPU comes into that VPC (its `members`",
        "are on every DPU of it, by EVPN as well). Seconds: how long the controllers make a tenant wait after so many "
        f"writes ({SECONDS_A_DPU:g} s a DPU, of which {AHEAD_SECONDS:g} s are let pass).",
        "",
        "| DPUs | a prefix, by the API server | by EVPN | a DPU, by the API server | by EVPN | wait after it: s |",
        "|" + "---|" * 6,
    ]
    for dpus in CALCULATED:
        kb = [len(json.dumps(to_json(told(0, dpus, (), with_remotes=each)))) / 1000 for each in (True, False)]
        waits = max(0.0, dpus * SECONDS_A_DPU - AHEAD_SECONDS)
        rows.append(
            f"| {dpus:,} | {dpus:,}: {dpus * kb[0] / 1000:,.2f} MB | 1: {kb[1] / 1000:.2f} MB "
            f"| {dpus:,}: {dpus * kb[0] / 1000:,.2f} MB | {dpus:,}: {dpus * kb[1] / 1000:,.2f} MB | {waits:.0f} |"
        )
    return rows


@contextmanager
def control_plane(folder: Path) -> Iterator[tuple[ControlPlane, Cluster]]:
    binaries = find_binaries(assets=None, cache=CACHE, allow_download=False, allow_build=False)
    with ControlPlane(folder / "plane", binaries) as plane:
        cluster = Cluster.connect(plane.kubeconfig, user_agent="evpn-bench")
        install(cluster)
        rules = [
            {"apiGroups": ["provisioner.dev"], "resources": ["dpunetworks"], "verbs": ["get", "list", "watch"]},
            {"apiGroups": ["provisioner.dev"], "resources": ["dpunetworks/status"], "verbs": ["patch"]},
        ]
        role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": rules}
        cluster.apply(role | {"metadata": {"name": "provisioner-bench-dpu"}}, manager="bench")
        yield plane, cluster


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the table; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--dpus", type=int, nargs="+", default=[5, 10, 20])
    options, _ = parser.parse_known_args(arguments)
    run = begin("evpn")
    results = [Result(each) for each in options.dpus]
    with tempfile.TemporaryDirectory(prefix="evpn-bench-") as name, control_plane(Path(name)) as (plane, cluster):
        for each in results:
            measure(each, options.repetitions, cluster, plane, Path(name))
    return run.finish(table(results), [], options.repetitions)


if __name__ == "__main__":
    sys.exit(main())
