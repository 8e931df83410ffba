"""Which lines of the kernel log are faults: those of the corpus, not their harmless twins, none by a process's name."""

from __future__ import annotations

import time

import pytest

from provisioner.node.machine.kernel_log.patterns import read_line
from tests.node.kernel_log.corpus import FAULTS, HARMLESS

NAME_LENGTH = 15
"""Of a process: TASK_COMM_LEN, without its end."""


@pytest.mark.parametrize(("line", "component", "code", "severity", "device"), FAULTS, ids=lambda text: text[:60])
def test_a_fault_is_read_with_its_device(line: str, component: str, code: str, severity: str, device: str) -> None:
    found = read_line(line.encode())
    assert found is not None
    assert (found.component, found.code, found.severity, found.device) == (component, code, severity, device)


@pytest.mark.parametrize("line", HARMLESS, ids=lambda text: text[:60] or "empty")
def test_a_harmless_line_is_no_fault(line: str) -> None:
    assert read_line(line.encode()) is None


@pytest.mark.parametrize(
    "written",
    [
        "{name}[4711]: segfault at 0 ip 00007f1c sp 00007ffd error 4 in {rest}[55d0+1000]",
        "{name}[4711]: {rest}",
        "{name}[4711] {rest}",
        "{name} invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=968",
        "{name}: page allocation failure: order:4, mode:0xdc0(GFP_KERNEL|__GFP_ZERO), nodemask=(null)",
        "{name} (4711): drop_caches: 3",
        "traps: {name}[4711] general protection fault ip:1 sp:2 error:0 in {rest}[55d0+1000]",
        "CPU: 3 PID: 4711 Comm: {name} Tainted: P           OE     6.12.0 #1",
        "Memory cgroup out of memory: Killed process 4711 ({name}) total-vm:6kB, anon-rss:6kB, file-rss:0kB",
        "process '{rest}' started with executable stack",
        'audit: type=1701 audit(1.2:3): auid=1 comm="{name}" exe="/{rest}" sig=11 res=1',
    ],
)
@pytest.mark.parametrize("line", [each[0] for each in FAULTS], ids=lambda text: text[:40])
def test_a_process_that_is_named_like_a_fault_makes_none(line: str, written: str) -> None:
    for length in range(1, NAME_LENGTH + 1):
        forged = written.format(name=line[:length], rest=line[length:].lstrip())
        assert read_line(forged.encode()) is None, forged


def test_a_line_that_counts_several_errors_stands_for_as_many_up_to_a_bound() -> None:
    line = "EDAC MC0: {} CE memory read error on DIMM_A1 (channel:0 slot:0 page:0x2e7f1 offset:0x40 grain:32)"
    counts = [found.errors for number in (0, 7, 999_999_999) if (found := read_line(line.format(number).encode()))]
    assert counts == [1, 7, 1_000_000]


@pytest.mark.parametrize(
    "line",
    [
        b"XFS (sda): Corruption of " + b"x " * 4000,
        b"INFO: task " + b"1:" * 4000,
        b"EDAC MC0: 1 CE " + b"on x (" * 1300,
        b"Memory failure: 0x1: recovery action for " + b": " * 4000,
        b"general protection fault" + b", -" * 2600,
        b"mlx5_core 0000:18:00.0: Health issue observed, " + b", severity(" * 700,
        b"{1}" * 2600,
        b"[1]" * 2600,
    ],
)
def test_a_long_line_takes_no_time(line: bytes) -> None:
    began = time.process_time()
    for _ in range(100):
        assert read_line(line) is None
    assert time.process_time() - began < 1.0, "10 ms a line would be a hundred times too much"
