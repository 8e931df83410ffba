"""Tenants on many DPUs: from an attachment to its rules in a kernel, and what the API server is asked for that.

`python -m tests.benchmarks.vpc_bench --dpus 250 500 1000`. For each size a fresh etcd and API server, and `provisioner
controller --controllers network` as it is shipped, under its own account and policies. VPCs of 100 servers, so that
each DPU has a route to 99 others, whatever the size. First all tenants move in at once: until the last attachment is
Ready, beside the least that the bare API server takes in the same run, with 8 connections, for what has to be written:
two claims, a DPUNetwork with all its routes, its acknowledgement and the status of the attachment, once each. Then, in
a fleet at rest, one server after another is attached to a VPC of 100 and detached again.

Real: two DPUs in network namespaces with their agents, on which the single attachments are made; Ready is what such an
agent's dump of its kernel led to. Simulated: all other DPUs, by threads which acknowledge what they see by one watch
together; a real fleet has a watch of one object for each DPU.
"""

from __future__ import annotations

import argparse
import queue
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from lab.binaries.obtain import Binaries, find_binaries
from lab.control_plane.kubelet_files import join_as
from lab.control_plane.plane import ControlPlane
from provisioner.api import DPUNetwork, NetworkClaim, VPCAttachment
from provisioner.api.machinery.codec import decode
from provisioner.api.machinery.conditions import find_condition
from provisioner.api.machinery.errors import ProvisionerError
from provisioner.api.machinery.wording import quantity
from provisioner.cluster.client import Cluster
from provisioner.cluster.informer import Informer
from provisioner.cluster.resources import NAMESPACES, of
from provisioner.network.agent.follow import follow
from tests.api.objects import API
from tests.benchmarks.bare_writes import CONNECTIONS, seconds_of_writes
from tests.benchmarks.processor_time import seconds_of
from tests.benchmarks.record import Check, Goal, begin, say, spread
from tests.benchmarks.scale_bench import column, peak_mib
from tests.conftest import install, may_begin
from tests.network.agent.rack import Rack, rack
from tests.network.control import objects
from tests.network.control.test_with_real_agents import InNamespace
from tests.people import kubeconfig_of, of_account, until
from tests.tools import CACHE

MEMBERS: Final = 100
"""Servers of a VPC."""
REAL: Final = 2
"""DPUs with agents of their own."""
IDLE_SECONDS: Final = 30
SAMPLE: Final = 200
"""Writes of each sort that the bound is measured with."""
COUNTED: Final = frozenset(("dpunetworks", "networkclaims", "vpcs", "vpcattachments", "networkpools", "servers"))
GOALS: Final = {"attached": Goal("s until a single server is attached", 1.0)}

Object = dict[str, Any]


@dataclass
class Result:
    """One size. Seconds, MiB, per cent of a core; requests by verb and resource."""

    dpus: int
    moved_in: float = 0.0
    bound: float = 0.0
    moving: Counter[tuple[str, str]] = field(default_factory=Counter)
    attach: list[float] = field(default_factory=list)
    attaching: Counter[tuple[str, str]] = field(default_factory=Counter)
    memory_mib: float = 0.0
    idle_percent: float = 0.0
    largest_bytes: int = 0

    @property
    def ratio(self) -> float:
        return self.moved_in / self.bound


class FakeDPUs:
    """The agents of all DPUs but the real ones: each acknowledges what it is told, and has no kernel."""

    def __init__(self, kubeconfig: Path, real: Sequence[str], stop: threading.Event) -> None:
        self._kubeconfig, self._real, self._stop = kubeconfig, set(real), stop
        self._told: queue.Queue[Mapping[str, Any]] = queue.Queue()
        self._networks = Informer(Cluster.connect(kubeconfig, user_agent="dpus"), of(DPUNetwork))
        self.errors: list[str] = []

    def start(self) -> None:
        self._networks.subscribe(self._changed)
        self._networks.start(self._stop)
        for number in range(6):
            threading.Thread(target=self._work, name=f"dpus-{number}", daemon=True).start()

    def largest(self) -> int:
        """Bytes of the largest spec, as JSON with short separators about what is sent."""
        return max((len(repr(body.get("spec"))) for body in self._networks.items()), default=0)

    def _changed(self, name: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> None:
        if new is None or name in self._real:
            return
        if (new.get("status") or {}).get("observedGeneration") != new["metadata"]["generation"]:
            self._told.put(new)

    def _work(self) -> None:
        cluster = Cluster.connect(self._kubeconfig, user_agent="dpus")
        while not self._stop.is_set():
            try:
                body = self._told.get(timeout=1.0)
            except queue.Empty:
                continue
            try:
                acknowledge(cluster, self._networks.get(body["metadata"]["name"]) or body)
            except ProvisionerError as error:  # the bench says so, and fails by what does not come
                self.errors.append(f"{body['metadata']['name']}: {error}")


def acknowledge(cluster: Cluster, body: Mapping[str, Any]) -> None:
    """As an agent does, once its kernel agrees."""
    spec = body["spec"]
    status = {
        "observedGeneration": body["metadata"]["generation"],
        "vnis": [each["vni"] for each in spec.get("vpcs") or ()],
        "ports": [{"function": port["function"], "state": port["state"]} for port in spec.get("ports") or ()],
    }
    cluster.apply_status(DPUNetwork, body["metadata"]["name"], status, manager="provisioner-network-agent")


class Readiness:
    """When each attachment was seen to be Ready, and whether all are."""

    def __init__(self, kubeconfig: Path, stop: threading.Event) -> None:
        self._attachments = Informer(Cluster.connect(kubeconfig, user_agent="vpc-bench"), of(VPCAttachment))
        self._changed = threading.Condition()
        self._ready: dict[str, float] = {}
        self._attachments.subscribe(self._look)
        self._attachments.start(stop)

    def _look(self, key: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> None:
        found = find_condition(decode(VPCAttachment, new).status.conditions, "Ready") if new is not None else None
        with self._changed:
            if found is None or found.status != "True":
                self._ready.pop(key, None)
            else:
                self._ready.setdefault(key, time.monotonic())
            self._changed.notify_all()

    def when(self, wanted: int, key: str | None, limit_seconds: float) -> float:
        """When the last of `wanted` attachments, or that of `key`, became Ready."""
        with self._changed:
            done = self._changed.wait_for(
                lambda: key in self._ready if key is not None else len(self._ready) >= wanted, limit_seconds
            )
            if not done:
                sys.exit(f"vpc_bench: {len(self._ready)} of {wanted} ({key}) are Ready after {limit_seconds:.0f} s")
            return self._ready[key] if key is not None else max(self._ready.values())


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the table; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dpus", type=int, nargs="+", default=[250, 500, 1000])
    parser.add_argument("--attachments", type=int, default=20, help="single ones, in the fleet at rest")
    parser.add_argument("--limit-seconds", type=float, default=900, help="until all tenants have moved in")
    parser.add_argument("--repetitions", type=int, default=3)
    options, _ = parser.parse_known_args(arguments)
    run = begin("vpc")
    results: dict[int, list[Result]] = {dpus: [] for dpus in options.dpus}
    for _ in range(options.repetitions):
        for dpus, found in results.items():
            with tempfile.TemporaryDirectory(prefix="vpc-bench-") as folder, rack() as network:
                found.append(measure(dpus, network, Path(folder), options))
    return run.finish(table(results), check_goals(results), options.repetitions)


def measure(dpus: int, network: Rack, folder: Path, options: argparse.Namespace) -> Result:
    binaries = find_binaries(assets=None, cache=CACHE, allow_download=False, allow_build=False)
    stop = threading.Event()
    with ControlPlane(folder / "plane", binaries) as plane:
        cluster = Cluster.connect(plane.kubeconfig, user_agent="vpc-bench")
        install(cluster)
        cluster.apply(objects.pool(10001, 20000), manager="bench")
        for number in range(dpus // MEMBERS + 1):
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": tenant(number)}}
            cluster.create(NAMESPACES, namespace)
        result = Result(dpus)
        seconds_of_writes(plane.kubeconfig, list(machines(dpus)), lambda client, body: client.apply(body, manager="b"))
        account = kubeconfig_of(plane, folder, of_account("network"))
        until(lambda: may_begin(Cluster.connect(account)))
        real = [f"s{number}-d" for number in range(REAL)]
        fakes, readiness = FakeDPUs(plane.kubeconfig, real, stop), Readiness(plane.kubeconfig, stop)
        fakes.start()
        try:
            with controller(account, folder) as leader:
                until(lambda: len(cluster.list(of(DPUNetwork)).items) == dpus)
                for number, name in enumerate(real):
                    start_agent(plane, network, folder / name, number, name, stop)
                move_in(result, plane, binaries, readiness, options.limit_seconds)
                rest(plane, binaries)
                one_by_one(result, cluster, plane, binaries, readiness, options.attachments)
                rest(plane, binaries)
                began, used = time.monotonic(), seconds_of(leader.pid)
                time.sleep(IDLE_SECONDS)
                result.idle_percent = 100 * (seconds_of(leader.pid) - used) / (time.monotonic() - began)
                result.memory_mib = peak_mib(leader.pid)
                result.largest_bytes = fakes.largest()
            result.bound = bare_seconds(plane, cluster) * dpus / SAMPLE
        finally:
            stop.set()
        if fakes.errors:
            say(f"{quantity(len(fakes.errors), 'error')} of fake DPUs, the first: {fakes.errors[0]}")
    say(str(result))
    return result


def tenant(number: int) -> str:
    return f"tenant-{number}"


def machines(dpus: int) -> Iterator[Object]:
    """Servers, by tenants of MEMBERS, and their DPUs, the first ones on the underlay of the namespaces."""
    for number in range(dpus):
        vtep = {"vtepAddress": vtep_of(number)} if number < REAL else {}
        yield objects.tenants_server(f"s{number}-s", tenant(number // MEMBERS), number)
        yield objects.card(f"s{number}-d", f"s{number}-s", number, **vtep)


def vtep_of(number: int) -> str:
    """Of a DPU with an agent of its own."""
    return f"192.0.2.{1 + number}"


def start_agent(plane: ControlPlane, network: Rack, root: Path, number: int, name: str, stop: threading.Event) -> None:
    """With its DPU's certificate, on the kernel of a DPU in a network namespace."""
    join_as(root, plane, name, name)
    dpu = network.dpu(vtep_of(number))
    kernel = InNamespace(dpu, dpu.another())
    threading.Thread(target=follow, args=(kernel, str(root), lambda _: None, stop), daemon=True).start()


def move_in(
    result: Result, plane: ControlPlane, binaries: Binaries, readiness: Readiness, limit_seconds: float
) -> None:
    """All tenants at once: their VPCs, and every server attached."""
    before = calls(plane, binaries)
    began = time.monotonic()
    made: list[Object] = [
        objects.vpc(tenant(number), cidrs=["10.1.0.0/22"]) for number in range((result.dpus - 1) // MEMBERS + 1)
    ]
    made += [objects.attachment(tenant(n // MEMBERS), f"a{n}", f"s{n}-s") for n in range(result.dpus)]
    seconds_of_writes(plane.kubeconfig, made, lambda client, body: client.apply(body, manager="tenant"))
    result.moved_in = readiness.when(result.dpus, None, limit_seconds) - began
    rest(plane, binaries)
    result.moving = calls(plane, binaries)
    result.moving.subtract(before)


def one_by_one(
    result: Result, cluster: Cluster, plane: ControlPlane, binaries: Binaries, readiness: Readiness, count: int
) -> None:
    """Attach and detach a server whose DPU is real; what is counted is the attaching and the detaching of each."""
    before = calls(plane, binaries)
    for number in range(count):
        which = number % REAL
        name = f"a{which}"
        cluster.delete(of(VPCAttachment), name, namespace=tenant(0))
        until(lambda name=name: cluster.find(of(VPCAttachment), name, namespace=tenant(0)) is None)  # type: ignore[misc]
        rest(plane, binaries)
        began = time.monotonic()
        cluster.apply(objects.attachment(tenant(0), name, f"s{which}-s"), manager="tenant")
        result.attach.append(readiness.when(1, f"{tenant(0)}/{name}", 60) - began)
        rest(plane, binaries)
    result.attaching = calls(plane, binaries)
    result.attaching.subtract(before)


def bare_seconds(plane: ControlPlane, cluster: Cluster) -> float:
    """What the bare API server takes to write all that SAMPLE attachments need at least, each once."""
    network = cluster.get(of(DPUNetwork), "s0-d")
    seen = cluster.get(of(VPCAttachment), "a0", namespace=tenant(0))

    def body(number: int) -> Object:
        named = {"apiVersion": API, "kind": "DPUNetwork", "metadata": {"name": f"bound-{number}"}}
        return named | {"spec": network["spec"]}

    def claim(client: Cluster, number: int) -> None:
        vni = str(100_000 + number)
        client.create(of(NetworkClaim), objects.claim(f"vni-{vni}", "VNI", vni, tenant(0), "bound"))

    def status(client: Cluster, number: int) -> None:
        said = {key: value for key, value in seen["status"].items() if key != "conditions"}
        client.apply_status(VPCAttachment, f"bound-{number}", said, manager="bound", namespace=tenant(0))

    numbers = range(SAMPLE)
    total = seconds_of_writes(plane.kubeconfig, range(2 * SAMPLE), claim)
    total += seconds_of_writes(plane.kubeconfig, numbers, lambda client, n: client.apply(body(n), manager="bound"))
    written = {n: cluster.get(of(DPUNetwork), f"bound-{n}") for n in numbers}
    total += seconds_of_writes(plane.kubeconfig, numbers, lambda client, n: acknowledge(client, written[n]))
    for n in numbers:
        cluster.apply(objects.attachment(tenant(0), f"bound-{n}", f"bound-{n}"), manager="bound")
    return total + seconds_of_writes(plane.kubeconfig, numbers, status)


@contextmanager
def controller(kubeconfig: Path, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`provisioner controller` with the controllers of tenant networks, as it is shipped."""
    command = [sys.executable, "-m", "provisioner.cli", "controller", "--controllers", "network"]
    log: IO[str] = (folder / "controller.log").open("w")
    process = subprocess.Popen(
        [*command, "--kubeconfig", str(kubeconfig), "--boot-url", "http://10.80.0.1"], stdout=log, stderr=log
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        log.close()


def calls(plane: ControlPlane, binaries: Binaries) -> Counter[tuple[str, str]]:
    """Requests about tenant networks so far, by verb and resource, from apiserver_request_total."""
    found: Counter[tuple[str, str]] = Counter()
    command = [binaries.kubectl, f"--kubeconfig={plane.kubeconfig}", "get", "--raw", "/metrics"]
    for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines():
        if line.startswith("apiserver_request_total{"):
            labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
            if labels["resource"] in COUNTED and labels["verb"] not in ("WATCH", "CONNECT", "LIST"):
                what = labels["resource"] + (f"/{labels['subresource']}" if labels["subresource"] else "")
                found[labels["verb"], what] += int(float(line.rpartition(" ")[2]))
    return found


def rest(plane: ControlPlane, binaries: Binaries, still_seconds: float = 1.5, limit_seconds: float = 120) -> None:
    """Wait until nothing was asked for so long."""
    deadline, before, since = time.monotonic() + limit_seconds, -1, time.monotonic()
    while time.monotonic() < deadline:
        asked = calls(plane, binaries).total()
        if asked != before:
            before, since = asked, time.monotonic()
        elif time.monotonic() - since > still_seconds:
            return
        time.sleep(0.5)


def check_goals(results: Mapping[int, Sequence[Result]]) -> list[Check]:
    return [
        GOALS["attached"].check(f"{dpus:,} DPUs", [s for one in found for s in one.attach])
        for dpus, found in results.items()
    ]


def table(results: Mapping[int, Sequence[Result]]) -> str:
    rows = [
        "## Tenants on many DPUs",
        "",
        f"VPCs of {MEMBERS} servers, each with a DPU: {MEMBERS - 1} routes to others on every one. `provisioner "
        "controller --controllers network` as it is shipped, a real API server and etcd. Moving in: all attachments at",
        "once, until the last is Ready; the bound: two claims, a DPUNetwork of full size, its acknowledgement and the "
        f"attachment's status, each once a server, by {CONNECTIONS} connections in the same run. Attached: one server,",
        "in a fleet at rest, until its DPU's kernel agrees. Median (least to most). Requests: all about tenant "
        "networks but watches, agents' among them; of attaching one: detaching it among them; both rewrite the "
        f"DPUNetworks of the {MEMBERS - 1} others.",
        f"Real: {REAL} DPUs in network namespaces, on which the single ones are attached. All others are "
        "simulated: threads acknowledge their DPUNetworks, by one watch together and without a kernel.",
        "",
        "| DPUs | moving in: s | the bound: s | ratio | requests a server | attached: s "
        "| requests to attach and detach one | controllers: MiB at most | idle: % of a core | largest DPUNetwork |",
        "|" + "---|" * 10,
    ]
    for dpus, found in results.items():
        cells = [spread(column(found, what)) for what in ("moved_in", "bound")] + [
            spread(column(found, "ratio"), ".2f")
        ]
        cells.append(spread([one.moving.total() / dpus for one in found]))
        cells.append(spread([s for one in found for s in one.attach], ".2f"))
        cells.append(spread([one.attaching.total() / len(one.attach) for one in found], ".0f"))
        cells += [spread(column(found, "memory_mib"), ".0f"), spread(column(found, "idle_percent"))]
        rows.append(f"| {dpus:,} | {' | '.join(cells)} | {max(column(found, 'largest_bytes')) / 1000:.1f} kB |")
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main())
