"""What the DPU's agent programs in a second, against ip, bridge and nft in batches; and what it costs when idle.

`python -m tests.benchmarks.network_bench`. A DPU in a network namespace with one VPC; then the VPC gets remotes: so
many addresses behind so many DPUs. Ours: the agent's `enforce`, its dumps before and after among it. The bound: the
same routes, neighbours and forwarding entries by `ip -batch` and `bridge -batch`, and the same tables by one `nft -f`,
which look at nothing before and check nothing afterwards. pyroute2: its batches in place of `ip` and `bridge`, as if
the agent had no encoder of its own for such entries. They take turns, each in a namespace that has the VPC without
remotes. Idle: processor time of an `enforce` that finds nothing to do, for one look every 5 s.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from pyroute2 import IPBatch, IPRoute

from provisioner.api.network.dpu_network import DPUNetworkSpec
from provisioner.network.agent.follow import LOOK_SECONDS
from provisioner.network.agent.model.namespaces import inside
from provisioner.network.agent.model.naming import router_address, router_mac, vxlan_name
from tests.benchmarks.processor_time import seconds_of_children
from tests.benchmarks.record import Check, Goal, begin, ratios, spread
from tests.network.agent.rack import DPU, rack
from tests.network.agent.specs import BLUE, ONE, port, spec, vpc

GOALS: Final = {
    "programs": Goal("seconds of the programs in batches, to those of the agent", 0.5, at_least=True),
    # Where it is missed, the agent needs no encoder of its own.
    "pyroute2": Goal("seconds of pyroute2's batches, to those of the agent", 1.0, at_least=True),
}
FIRST_VTEP: Final = int(IPv4Address("198.18.0.1"))
HOST: Final = ("10.1.0.3", "fd00:1::3")
BATCH_BYTES: Final = 1 << 16


@dataclass
class Result:
    """Seconds of each repetition; processor seconds of a look that finds nothing to do, nft and ip among them."""

    vteps: int
    prefixes: int
    ours: list[float] = field(default_factory=list)
    bound: list[float] = field(default_factory=list)
    idle: list[float] = field(default_factory=list)
    pyroute2: list[float] = field(default_factory=list)

    @property
    def objects(self) -> int:
        """Routes, neighbours of both families, and forwarding entries."""
        return self.vteps * self.prefixes + 3 * self.vteps


def remotes(vteps: int, prefixes: int) -> dict[str, list[str]]:
    """By DPU, addresses behind it, half of them IPv6."""
    behind = {}
    for number in range(vteps):
        first = 16 + number * prefixes
        four = [f"{IPv4Address('10.2.0.0') + 2 * (first + each)}/32" for each in range(prefixes // 2)]
        six = [f"{IPv6Address('fd00:2::') + 2 * (first + each)}/128" for each in range(prefixes - prefixes // 2)]
        behind[str(IPv4Address(FIRST_VTEP + number))] = sorted(four + six)
    return behind


def wish(behind: dict[str, list[str]]) -> DPUNetworkSpec:
    return spec([vpc(remotes=behind)], [port(*HOST)])


def routes_and_neighbours(behind: dict[str, list[str]]) -> Iterator[str]:
    device = vxlan_name(BLUE)
    for vtep, prefixes in behind.items():
        for version in (4, 6):
            mac, address = router_mac(vtep), router_address(vtep, version)
            yield f"neigh add {address} lladdr {mac} nud permanent dev {device}"
        for prefix in prefixes:
            version = 6 if ":" in prefix else 4
            via = f"via {router_address(vtep, version)} dev {device} onlink"
            yield f"-{version} route add {prefix} {via} proto static metric 64"


def forwarding_entries(behind: dict[str, list[str]]) -> Iterator[str]:
    for vtep in behind:
        yield f"fdb add {router_mac(vtep)} dev {vxlan_name(BLUE)} dst {vtep} self permanent"


def in_batches(dpu: DPU, behind: dict[str, list[str]], tables: tuple[str, str]) -> float:
    """Seconds that the three programs take."""
    domain = ["nsenter", f"--net=/run/netns/{dpu.domain(BLUE)}", "--"]
    lines = "\n".join(line for line in routes_and_neighbours(behind) if not line.startswith("-6"))
    six = "\n".join(line.removeprefix("-6 ") for line in routes_and_neighbours(behind) if line.startswith("-6"))
    lines = lines.replace("-4 ", "")
    began = time.perf_counter()
    feed([*domain, "ip", "-batch", "-"], lines)
    feed([*domain, "ip", "-6", "-batch", "-"], six)
    feed([*domain, "bridge", "-batch", "-"], "\n".join(forwarding_entries(behind)))
    load(dpu, tables)
    return time.perf_counter() - began


def by_pyroute2(dpu: DPU, behind: dict[str, list[str]], tables: tuple[str, str]) -> float:
    """Seconds that pyroute2's batches and nft take. What the kernel answers is not read."""
    began = time.perf_counter()
    with inside(dpu.domain(BLUE)), IPBatch() as batch, IPRoute() as kernel:
        device = socket.if_nametoindex(vxlan_name(BLUE))
        for vtep, prefixes in behind.items():
            mac = router_mac(vtep)
            for version in (4, 6):
                batch.neigh("add", dst=router_address(vtep, version), lladdr=mac, ifindex=device, state="permanent")
            batch.fdb("add", lladdr=mac, ifindex=device, dst=vtep)
            for prefix in prefixes:
                gateway = router_address(vtep, 6 if ":" in prefix else 4)
                batch.route("add", dst=prefix, gateway=gateway, oif=device, flags="onlink", proto="static", priority=64)
            if len(batch.batch) >= BATCH_BYTES:
                kernel.sendto(batch.batch, (0, 0))
                batch.reset()
        kernel.sendto(batch.batch, (0, 0))
    load(dpu, tables)
    return time.perf_counter() - began


def load(dpu: DPU, tables: tuple[str, str]) -> None:
    """The rulesets of the VPC's domain, and of the DPU's namespace."""
    feed(["nsenter", f"--net=/run/netns/{dpu.domain(BLUE)}", "--", "nft", "-f", "-"], f"flush ruleset\n{tables[0]}")
    feed(dpu.command("nft", "-f", "-"), f"flush ruleset\n{tables[1]}")


def feed(argv: Sequence[str], text: str) -> None:
    subprocess.run(argv, input=text + "\n", text=True, check=True, stdout=subprocess.DEVNULL)


def measure(result: Result, repetitions: int) -> None:
    behind = remotes(result.vteps, result.prefixes)
    for _ in range(repetitions):
        with rack() as network:
            dpu = network.dpu(ONE)
            assert dpu.enforce(wish({})).agrees
            began = time.perf_counter()
            enforced = dpu.enforce(wish(behind))
            result.ours.append(time.perf_counter() - began)
            assert enforced.agrees, enforced.problems
            tables = dpu.in_domain(BLUE, "nft", "list", "ruleset"), dpu.output("nft", "list", "ruleset")
            used = time.process_time() + seconds_of_children()
            assert dpu.enforce(wish(behind)).changes == 0
            result.idle.append(time.process_time() + seconds_of_children() - used)
        for others, seconds in ((in_batches, result.bound), (by_pyroute2, result.pyroute2)):
            with rack() as network:
                dpu = network.dpu(ONE)
                assert dpu.enforce(wish({})).agrees
                seconds.append(others(dpu, behind, tables))
                check = dpu.enforce(wish(behind))
                assert check.agrees
                assert check.changes <= 2, f"what others made is not what the agent wants: {check.changes} changes"


def check_goals(results: Sequence[Result]) -> list[Check]:
    return [
        GOALS[name].check(f"{each.vteps} × {each.prefixes}", ratios(others, each.ours))
        for each in results
        for name, others in (("programs", each.bound), ("pyroute2", each.pyroute2))
    ]


def table(results: Sequence[Result]) -> str:
    rows = [
        "## What a DPU's agent programs, against ip, bridge and nft in batches",
        "",
        "One VPC in a network namespace gets remotes: addresses, half of them IPv6, behind other DPUs. Ours: the "
        "agent's `enforce`, with a dump of the kernel before and one after it.",
        "The bound: `ip -batch`, `bridge -batch` and `nft -f` for the same objects, which compare and check nothing. "
        "pyroute2: its batches instead of `ip` and `bridge`. "
        "Medians (and spread), repetitions take turns. Objects: routes, neighbours, forwarding",
        f"entries. Idle: processor time, of the agent and the programs that it starts, of a look that finds nothing to "
        f"do, once in {LOOK_SECONDS:.0f} s.",
        "",
        "| DPUs × addresses | objects | ours: s | the bound: s | bound / ours | pyroute2: s | pyroute2 / ours "
        "| ours: objects/s | idle: % of a core |",
        "|" + "---|" * 9,
    ]
    for each in results:
        rate = each.objects / statistics.median(each.ours)
        idle = [100 * seconds / LOOK_SECONDS for seconds in each.idle]
        rows.append(
            f"| {each.vteps} × {each.prefixes} | {each.objects:,} | {spread(each.ours, '.2f')} "
            f"| {spread(each.bound, '.3f')} | {spread(ratios(each.bound, each.ours), '.2f')} "
            f"| {spread(each.pyroute2, '.3f')} | {spread(ratios(each.pyroute2, each.ours), '.2f')} | {rate:,.0f} "
            f"| {spread(idle)} |"
        )
    return "\n".join(rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the table; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=7)
    options, _ = parser.parse_known_args(arguments)
    run = begin("network")
    results = [Result(10, 10), Result(100, 10), Result(1000, 2), Result(100, 100)]
    for each in results:
        measure(each, options.repetitions)
    return run.finish(table(results), check_goals(results), options.repetitions)


if __name__ == "__main__":
    sys.exit(main())
