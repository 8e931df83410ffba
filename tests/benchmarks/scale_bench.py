"""A fleet that is registered at once: until all servers are addressed, ordered and their Nodes prepared.

`python -m tests.benchmarks.scale_bench --servers 1000 2000`. For each size a fresh etcd and API server; `provisioner
controller` as it is shipped, under its own account and policies, and `provisioner rack register` as its own process.
The bound is what the bare API server takes, in the same run and with 8 connections, for one Server apply, three status
applies (address, order, record of the Node: three owners) and one Node create a server. Then the controller's idle load
is measured, it is killed, and the time until the next leader has addressed a server registered meanwhile.

Emulated: there is no kubelet, no BMC (the servers have none) and no controller manager, which would write about Nodes
that no kubelet ever joins.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import IO, Any, Final

from lab.binaries.obtain import Binaries, find_binaries
from lab.control_plane.plane import ControlPlane
from provisioner.api import Image, Server
from provisioner.api.machinery.conditions import find_condition
from provisioner.api.machinery.meta import parse_time
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import LEASES, NODES, of
from tests.api.objects import IMAGE_JUDGED, image, node_pool
from tests.benchmarks.bare_writes import seconds_of_writes
from tests.benchmarks.processor_time import seconds_of, seconds_of_children
from tests.benchmarks.record import Check, Goal, begin, say, spread
from tests.conftest import install, may_begin
from tests.people import CONTROLLER, kubeconfig_of, until
from tests.tools import CACHE

SAMPLE: Final = 400
"""Writes of each sort that the bound is measured with."""
PER_RACK: Final = 40
IDLE_SECONDS: Final = 30
SETTLE_SECONDS: Final = 200
"""At most: Events are written slowly, long after what they tell of."""
COUNTED: Final = frozenset(
    ("servers", "racks", "nodepools", "images", "maintenances", "addressblocks", "nodes", "events", "pods", "jobs")
)
GOALS: Final = {
    "ratio": Goal("seconds until all is prepared, to the bare API server's for the same writes", 1.5),
    "register": Goal("seconds of the registration, to the bare API server's for its applies", 1.3),
    "doubling": Goal("seconds until all is prepared, to those of half the servers", 2.2),
    "idle": Goal("controller at rest, % of a core", 2.0),
    "memory": Goal("controller's memory at most, MiB", 512),
    "addresses": Goal("s until the next leader addresses a new server", 15),
    "prepares": Goal("s until the next leader has prepared its Node", 15),
}


@dataclass
class Result:
    """One size. Seconds, MiB, per cent of a core."""

    servers: int
    rates: dict[str, float]
    register: float = 0.0
    addressed: float = 0.0
    ordered: float = 0.0
    prepared: float = 0.0
    idle_percent: float = 0.0
    memory_mib: float = 0.0
    failover: float = 0.0
    failover_addressed: float = 0.0
    calls: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    processor: dict[str, float] = field(default_factory=dict)
    """Seconds of processor time from the registration until all was prepared, by program."""

    @property
    def bound(self) -> float:
        """Seconds for the writes that are needed at least."""
        return self.servers * sum(
            count / self.rates[what] for what, count in (("apply", 1), ("status", 3), ("create", 1))
        )

    @property
    def ratio(self) -> float:
        return self.prepared / self.bound

    @property
    def to_applies(self) -> float:
        return self.register * self.rates["apply"] / self.servers


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the table; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", type=int, nargs="+", default=[1000, 2000, 5000, 10_000])
    parser.add_argument("--limit-seconds", type=float, default=720, help="of one fleet, from its registration on")
    parser.add_argument("--repetitions", type=int, default=3)
    options, _ = parser.parse_known_args(arguments)
    run = begin("scale")
    results: dict[int, list[Result]] = {servers: [] for servers in options.servers}
    for _ in range(options.repetitions):
        for servers, found in results.items():
            with tempfile.TemporaryDirectory(prefix="scale-bench-") as folder:
                found.append(measure(servers, Path(folder), options.limit_seconds))
    return run.finish(table(results), check_goals(results), options.repetitions)


def measure(servers: int, folder: Path, limit_seconds: float) -> Result:
    """One fleet on a fresh control plane."""
    binaries = find_binaries(assets=None, cache=CACHE, allow_download=False, allow_build=False)
    with ControlPlane(folder / "plane", binaries) as plane:
        os.kill(plane.pids()["kube-controller-manager"], signal.SIGTERM)
        cluster = Cluster.connect(plane.kubeconfig, user_agent="scale-bench")
        install(cluster)
        result = Result(servers, bare_rates(plane))
        say(f"{servers} servers; bare API server: {result.rates}")
        cluster.apply(node_pool(attestation="Optional"), manager="bench")
        cluster.apply(image(), manager="bench")
        available = {"type": "Available", "status": "True", "reason": "Available", "message": "on a boot host"}
        available["lastTransitionTime"] = "2026-01-02T03:04:05Z"
        cluster.apply_status(
            Image, image()["metadata"]["name"], {"conditions": [available, IMAGE_JUDGED]}, manager="bench"
        )
        account = kubeconfig_of(plane, folder, CONTROLLER)
        until(lambda: may_begin(Cluster.connect(account)))
        with controller(account, "first", folder) as leader:
            until(lambda: holder(cluster) == "first")
            before = calls(plane, binaries)
            pids = {name: plane.pids()[name] for name in ("kube-apiserver", "etcd")} | {"controller": leader.pid}
            used_before = {name: seconds_of(pid) for name, pid in pids.items()}
            register(cluster, plane, folder, result, limit_seconds)
            result.processor |= {name: seconds_of(pid) - used_before[name] for name, pid in pids.items()}
            result.calls = calls(plane, binaries)
            result.calls.subtract(before)
            settle(plane, binaries)
            began, used = time.monotonic(), seconds_of(leader.pid)
            time.sleep(IDLE_SECONDS)
            result.idle_percent = 100 * (seconds_of(leader.pid) - used) / (time.monotonic() - began)
            result.memory_mib = peak_mib(leader.pid)
            with controller(account, "second", folder):
                time.sleep(3)
                leader.kill()
                fail_over(cluster, result)
        # Once more, now that the machine was busy for a while: the bound is the mean of both.
        after = bare_rates(plane)
        result.rates = {what: 2 / (1 / rate + 1 / after[what]) for what, rate in result.rates.items()}
    say(f"{servers}: {result}")
    return result


def settle(plane: ControlPlane, binaries: Binaries, limit_seconds: float = SETTLE_SECONDS) -> None:
    """Wait until nothing is written any more."""
    deadline, before = time.monotonic() + limit_seconds, -1
    while time.monotonic() < deadline:
        written = sum(count for (_, verb, _), count in calls(plane, binaries).items() if verb not in ("GET", "LIST"))
        if written == before:
            return
        before = written
        time.sleep(10)


def bare_rates(plane: ControlPlane) -> dict[str, float]:
    """Writes a second that the API server takes with 8 connections, of each sort."""
    condition = {
        "type": "Accepted",
        "status": "True",
        "reason": "Accepted",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }
    condition["message"] = "Boots in subnet boot of Rack r01 with address 10.80.0.2"

    def body(number: int) -> dict[str, Any]:
        return {"apiVersion": "provisioner.dev/v1alpha1", "kind": "Server", "metadata": {"name": f"bound-{number}"}} | {
            "spec": spec(number) | {"rackRef": "bound", "nodePoolRef": "bound", "acceptance": "Accepted"}
        }

    def each(work: Callable[[Cluster, int], Any]) -> float:
        return SAMPLE / seconds_of_writes(plane.kubeconfig, range(SAMPLE), work)

    def status(client: Cluster, number: int) -> None:
        address = {"address": f"10.80.{number // 250}.{number % 250}", "subnetName": "boot", "conditions": [condition]}
        client.apply_status(Server, f"bound-{number}", address, manager="bound")

    def node(client: Cluster, number: int) -> None:
        client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"bound-{number}"}})

    rates = {
        "apply": each(lambda client, number: client.apply(body(number), manager="bound")),
        "status": each(status),
        "create": each(node),
    }
    each(lambda client, number: client.delete(of(Server), f"bound-{number}"))
    each(lambda client, number: client.delete(NODES, f"bound-{number}"))
    return rates


def spec(number: int) -> dict[str, Any]:
    """What a packing list says of a server."""
    mac = f"52:54:{number >> 24 & 255:02x}:{number >> 16 & 255:02x}:{number >> 8 & 255:02x}:{number & 255:02x}"
    return {"bootMACAddress": mac, "serialNumber": f"SN{number:08d}", "architecture": "x86_64"}


def packing_list(servers: int) -> str:
    """Racks of 40 servers, each with a subnet of its own."""
    text = []
    for rack in range((servers + PER_RACK - 1) // PER_RACK):
        name, network = f"r{rack:03d}", f"10.{80 + rack // 256}.{rack % 256}"
        text.append(
            f"---\nrack: {{name: {name}, subnets: [{{name: boot, cidr: {network}.0/24, gateway: {network}.1}}]}}\n"
            "defaults: {nodePoolRef: gpu, acceptance: Accepted}\nservers:\n"
        )
        for number in range(rack * PER_RACK, min(servers, (rack + 1) * PER_RACK)):
            said = ", ".join(f'{key}: "{value}"' for key, value in spec(number).items())
            text.append(f"- {{name: {name}-u{number % PER_RACK:02d}, {said}}}\n")
    return "".join(text)


def register(cluster: Cluster, plane: ControlPlane, folder: Path, result: Result, limit_seconds: float) -> None:
    """Register the fleet and wait until every Node is prepared."""
    listed = folder / "fleet.yaml"
    listed.write_text(packing_list(result.servers))
    began = datetime.now().astimezone()
    with (folder / "register.log").open("w") as log:
        command = [sys.executable, "-m", "provisioner.cli", "rack", "register", str(listed)]
        before = seconds_of_children()
        subprocess.run([*command, "--kubeconfig", str(plane.kubeconfig)], check=True, stdout=log, stderr=log)
    result.processor["rack register"] = seconds_of_children() - before
    result.register = (datetime.now().astimezone() - began).total_seconds()
    say(f"registered after {result.register:.1f} s")
    # The last ones are asked for one by one: a list of all would be load that is none of ours.
    names = [f"r{number // PER_RACK:03d}-u{number % PER_RACK:02d}" for number in range(result.servers)]
    deadline = time.monotonic() + limit_seconds
    while time.monotonic() < deadline:
        waiting = next((name for name in reversed(names[-100:]) if not prepared(cluster.read(Server, name))), None)
        if waiting is None and all(prepared(server) for server in cluster.read_all(Server)):
            break
        time.sleep(2)
    else:
        sys.exit(f"scale_bench: not all {result.servers} Nodes were prepared within {limit_seconds:.0f} s")
    found = cluster.read_all(Server)
    accepted = [find_condition(server.status.conditions, "Accepted") for server in found]
    result.addressed = max(seconds(began, each.last_transition_time) for each in accepted if each is not None)
    result.ordered = max(seconds(began, server.status.order.ordered_time) for server in found if server.status.order)
    last = [find_condition(server.status.conditions, "NodePrepared") for server in found]
    result.prepared = max(seconds(began, each.last_transition_time) for each in last if each is not None)
    assert len({server.status.address for server in found}) == result.servers
    say(f"addressed {result.addressed:.1f} s, ordered {result.ordered:.1f} s, prepared {result.prepared:.1f} s")


def prepared(server: Server) -> bool:
    found = find_condition(server.status.conditions, "NodePrepared")
    return found is not None and found.status == "True"


def seconds(began: datetime, moment: str) -> float:
    return (parse_time(moment) - began).total_seconds()


def fail_over(cluster: Cluster, result: Result) -> None:
    """The leader is dead: register one server more and wait until the next leader gives it an address."""
    cluster.apply(
        {"apiVersion": "provisioner.dev/v1alpha1", "kind": "Server", "metadata": {"name": "r000-late"}}
        | {"spec": spec(1 << 24) | {"rackRef": "r000", "nodePoolRef": "gpu", "acceptance": "Accepted"}},
        manager="bench",
    )
    until(lambda: holder(cluster) == "second")
    lease = cluster.get(LEASES, "provisioner-controller", namespace="provisioner-system")
    led = parse_time(lease["spec"]["acquireTime"])
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        status = cluster.read(Server, "r000-late").status
        if status.address and not result.failover_addressed:
            result.failover_addressed = (datetime.now().astimezone() - led).total_seconds()
        if prepared(cluster.read(Server, "r000-late")):
            result.failover = (datetime.now().astimezone() - led).total_seconds()
            return
        time.sleep(0.1)
    sys.exit("scale_bench: the next leader did not act within 120 s")


@contextmanager
def controller(kubeconfig: Path, identity: str, folder: Path) -> Any:
    """`provisioner controller`, as it is shipped."""
    command = [sys.executable, "-m", "provisioner.cli", "controller", "--kubeconfig", str(kubeconfig)]
    log: IO[str] = (folder / f"{identity}.log").open("w")
    process = subprocess.Popen(
        [*command, "--boot-url", "http://10.80.0.1", "--identity", identity], stdout=log, stderr=log
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


def holder(cluster: Cluster) -> str | None:
    """Who leads."""
    for lease in cluster.list(LEASES, namespace="provisioner-system").items:
        return str(lease["spec"].get("holderIdentity"))
    return None


def calls(plane: ControlPlane, binaries: Binaries) -> Counter[tuple[str, str, str]]:
    """Requests so far by component, verb and resource, from apiserver_request_total."""
    found: Counter[tuple[str, str, str]] = Counter()
    command = [binaries.kubectl, f"--kubeconfig={plane.kubeconfig}", "get", "--raw", "/metrics"]
    for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines():
        if not line.startswith("apiserver_request_total{"):
            continue
        labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
        what = labels["resource"] + (f"/{labels['subresource']}" if labels["subresource"] else "")
        if labels["resource"] in COUNTED and labels["verb"] not in ("WATCH", "CONNECT"):
            who = "register" if what in ("servers", "racks") and labels["verb"] == "APPLY" else "controller"
            found[who, labels["verb"], what] += int(float(line.rpartition(" ")[2]))
    return found


def peak_mib(pid: int) -> float:
    """The most memory that a process had."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) / 1024


def column(results: Iterable[Result], what: str) -> list[float]:
    return [float(getattr(result, what)) for result in results]


def doublings(results: Mapping[int, Sequence[Result]], servers: int) -> list[float]:
    """Seconds to those of half the servers, of each repetition; empty if these were not measured."""
    halves = results.get(servers // 2, ()) if servers % 2 == 0 else ()
    return [whole.prepared / half.prepared for whole, half in zip(results[servers], halves, strict=False)]


def check_goals(results: Mapping[int, Sequence[Result]]) -> list[Check]:
    fields = {"ratio": "ratio", "register": "to_applies", "idle": "idle_percent", "memory": "memory_mib"}
    fields |= {"addresses": "failover_addressed", "prepares": "failover"}
    checks = []
    for servers, found in results.items():
        checks += [GOALS[goal].check(f"{servers:,} servers", column(found, field)) for goal, field in fields.items()]
        if factors := doublings(results, servers):
            checks.append(GOALS["doubling"].check(f"{servers:,} servers", factors))
    return checks


def table(results: Mapping[int, Sequence[Result]]) -> str:
    rows = [
        "## A fleet that is registered at once",
        "",
        f"{os.cpu_count()} cores shared with etcd and the API server. `provisioner controller` with the",
        "shipped account and policies, `provisioner rack register` beside it, racks of 40. Seconds from the start of "
        "the registration until the last server has its address, its boot order, its prepared Node. Bound: the bare",
        "API server in the same run, before and after, by 8 connections, for one Server apply, three status applies,",
        "and one Node create each. No kubelets, no BMCs, no controller manager. Median (least to most).",
        "",
        "| servers | bare applies/s | status/s | Node creates/s | bound s | registered s (× its applies) "
        "| addressed s | ordered s | prepared s | ratio | × half of it | idle % of a core "
        "| MiB | next leader addresses, prepares after s |",
        "|" + "---|" * 14,
    ]
    for servers, found in results.items():
        rates = [spread([one.rates[what] for one in found], ".0f") for what in ("apply", "status", "create")]
        factors = doublings(results, servers)
        cells = [
            *(f"{servers:,}", *rates, spread(column(found, "bound"), ".0f")),
            f"{spread(column(found, 'register'), '.0f')} ({spread(column(found, 'to_applies'), '.2f')})",
            *(spread(column(found, what), ".0f") for what in ("addressed", "ordered", "prepared")),
            *(spread(column(found, "ratio"), ".2f"), spread(factors, ".2f") if factors else ""),
            *(spread(column(found, "idle_percent")), spread(column(found, "memory_mib"), ".0f")),
            f"{spread(column(found, 'failover_addressed'))}, {spread(column(found, 'failover'))}",
        ]
        rows.append(f"| {' | '.join(cells)} |")
    *_, (largest, last) = results.items()
    programs = list(last[0].processor)
    rows += ["", "Processor time from the registration until all was prepared, in ms a server, median:", ""]
    rows += ["| servers | " + " | ".join(programs) + " | all |", "|" + "---|" * (len(programs) + 2)]
    for servers, found in results.items():
        used = [statistics.median(1000 * one.processor[name] / servers for one in found) for name in programs]
        rows.append(f"| {servers:,} | " + " | ".join(f"{ms:.1f}" for ms in (*used, sum(used))) + " |")
    rows += ["", f"Requests a server, of {largest:,} (apiserver_request_total), of the last repetition:", ""]
    rows += ["| component | verb | resource | requests | a server |", "|---|---|---|---|---|"]
    for (who, verb, what), count in sorted(last[-1].calls.items(), key=lambda item: -item[1]):
        if count:
            rows.append(f"| {who} | {verb} | {what} | {count:,} | {count / largest:.2f} |")
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main())
