"""The machine's NUMA nodes, from sysfs below a root: their processors, cores and memory."""

from __future__ import annotations

import re
from collections.abc import Iterator

from provisioner.node.machine.sysfs.files import names_in, read_text


class NumaNode:
    """One NUMA node. `cores`: its online processors, those of one core together, in order."""

    def __init__(self, number: int, cores: tuple[tuple[int, ...], ...], memory_bytes: int) -> None:
        self.number = number
        self.cores = cores
        self.memory_bytes = memory_bytes


def numa_nodes(root: str) -> list[NumaNode]:
    """By number. A kernel without NUMA has one, of all processors and all memory; nothing if sysfs tells nothing."""
    processors = f"{root}/sys/devices/system/cpu"
    folder = f"{root}/sys/devices/system/node"
    online = read_list(f"{processors}/online")
    numbers = sorted(int(name[4:]) for name in names_in(folder) if re.fullmatch(r"node\d{1,4}", name))
    if not numbers:
        memory = memory_bytes(f"{root}/proc/meminfo", "MemTotal")
        return [NumaNode(0, _cores(processors, online), memory)] if online else []
    return [
        NumaNode(
            number,
            _cores(processors, online & read_list(f"{folder}/node{number}/cpulist")),
            memory_bytes(f"{folder}/node{number}/meminfo", "MemTotal"),
        )
        for number in numbers
    ]


def read_list(path: str) -> set[int]:
    """The numbers that a file such as `cpu/online` names."""
    return set(parse_list(read_text(path)))


def parse_list(text: str) -> Iterator[int]:
    """The numbers of a list such as `0-3,8`; what is none is passed over."""
    for part in text.strip().split(","):
        found = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", part)
        if found:
            yield from range(int(found[1]), int(found[2] or found[1]) + 1)


def _cores(folder: str, processors: set[int]) -> tuple[tuple[int, ...], ...]:
    cores = {
        tuple(sorted(read_list(f"{folder}/cpu{each}/topology/thread_siblings_list") & processors or {each}))
        for each in processors
    }
    return tuple(sorted(cores))


def memory_bytes(meminfo: str, name: str) -> int:
    """One line of /proc/meminfo, or of a NUMA node's, in bytes; 0 if it is not there."""
    found = re.search(rf"\b{name}:\s+(\d{{1,15}}) kB", read_text(meminfo))
    return int(found[1]) * 1024 if found else 0
