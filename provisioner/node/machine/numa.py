"""The machine's NUMA nodes, from sysfs below a root: their processors, cores and memory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator


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
    online = set(parse_list(_text(f"{processors}/online")))
    numbers = sorted(int(name[4:]) for name in _names(folder) if re.fullmatch(r"node\d{1,4}", name))
    if not numbers:
        memory = _memory_bytes(_text(f"{root}/proc/meminfo"))
        return [NumaNode(0, _cores(processors, online), memory)] if online else []
    return [
        NumaNode(
            number,
            _cores(processors, online & set(parse_list(_text(f"{folder}/node{number}/cpulist")))),
            _memory_bytes(_text(f"{folder}/node{number}/meminfo")),
        )
        for number in numbers
    ]


def parse_list(text: str) -> Iterator[int]:
    """The numbers of a list such as `0-3,8`; what is none is passed over."""
    for part in text.strip().split(","):
        found = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", part)
        if found:
            yield from range(int(found[1]), int(found[2] or found[1]) + 1)


def _cores(folder: str, processors: set[int]) -> tuple[tuple[int, ...], ...]:
    cores = {
        tuple(
            sorted(set(parse_list(_text(f"{folder}/cpu{each}/topology/thread_siblings_list"))) & processors or {each})
        )
        for each in processors
    }
    return tuple(sorted(cores))


def _memory_bytes(text: str) -> int:
    found = re.search(r"MemTotal:\s+(\d{1,15}) kB", text)
    return int(found[1]) * 1024 if found else 0


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - pathlib costs start-up time
    except OSError:
        return []


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return file.read(65536)
    except OSError:
        return ""
