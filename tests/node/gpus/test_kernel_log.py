"""Lines of the kernel log as NVIDIA's drivers write them, what is read of them, and what the check makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from provisioner.api.nodes.facts import GpuDriverFacts, GpuXidFacts, NodeFacts
from provisioner.api.pools.gpu_settings import GpuSettings
from provisioner.health.checks.finding import Finding
from provisioner.health.checks.gpu.errors import check_errors
from provisioner.node.machine.gpus.facts import gpu_facts
from provisioner.node.machine.gpus.kernel_log import MOST_XIDS, KernelLog


def read(tmp_path: Path, *lines: str) -> KernelLog:
    path = tmp_path / "kmsg"
    path.write_text("".join(f"4,{100 + at},{at}000000,-;{line}\n" for at, line in enumerate(lines)))
    log = KernelLog(str(path))
    log.look()
    return log


def judged(log: KernelLog, **settings: Any) -> Finding:
    driver = gpu_facts({"state": "Ready"}, log)["gpuDriver"]
    facts = NodeFacts(
        format=1,
        boot_id="b",
        image_digest="sha256:" + "0" * 64,
        time="2026-01-01T00:00:00Z",
        cpus=1,
        memory_bytes=1,
        gpu_driver=GpuDriverFacts(
            state="Ready",
            xids_unread=tuple(driver.get("xidsUnread", ())),
            xids_left_out=driver.get("xidsLeftOut"),
        ),
        gpu_xids=tuple(GpuXidFacts(**each) for each in log.xids.values()),
    )
    return check_errors(GpuSettings(**settings), facts)


@pytest.mark.parametrize(
    ("line", "address"),
    [
        ("NVRM: Xid (PCI:0000:01:00): 94, pid=4242, name=train, Ch 0000000a", "0000:01:00.0"),
        ("NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=4242, name=train, Ch 0000000a", "0000:01:00.0"),
        ("NVRM: Xid (PCI:0000:01:00 GPU-I:01 GPU-CI:00): 94, pid=4243, name=train", "0000:01:00.0"),
        ("NVRM: Xid (0000:3B:00): 94, Ch 0000000a", "0000:3b:00.0"),
        ("NVRM: GPU0 Xid (PCI:0009:01:00.0): 94, pid='<unknown>'", "0009:01:00.0"),
        ("nvidia 0000:01:00.0: Xid (PCI:00000000:01:00): 94, pid=1", "00000000:01:00.0"),
    ],
)
def test_an_xid_is_of_its_gpu_in_every_spelling(tmp_path: Path, line: str, address: str) -> None:
    log = read(tmp_path, line)
    assert list(log.xids) == [(address, 94)]
    assert judged(log).reason == "XID94"


@pytest.mark.parametrize(
    ("line", "reason", "shown"),
    [
        ("NVRM: Xid (PCI:0018:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0)", None, "Nonfatal"),
        ("NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT Fatal XC1 i0 Link 08 (0x0)", "XID149", "XID 149"),
        ("NVRM: Xid (PCI:0018:01:00): 145, something without a word for it", "XID145", "XID 145"),
        ("NVRM: Xid (PCI:0018:01:00): 79, Nonfatal, says a job of that name", "XID79", "XID 79"),
        ("nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 30 LTSSM Fault Up", "SXID20034", "20034"),
        ("nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress", None, "error 12028"),
        ("nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 10003, Host_priv_error", None, "of unknown severity"),
        (
            "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Severity 0 Engine instance 32",
            None,
            "no XID in this boot",
        ),
        (
            "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Data {0x00000021, 0x00000000}",
            None,
            "no XID in this boot",
        ),
        ("NVRM: Xid (GPU at 0000:01:00): fell off", None, "were not understood: NVRM: Xid (GPU at 0000:01:00)"),
        ("nvidia-nvswitch0: SXid on link 3", None, "were not understood"),
    ],
)
def test_what_a_line_says_of_its_severity_counts_and_nothing_is_silence(
    tmp_path: Path, line: str, reason: str | None, shown: str
) -> None:
    finding = judged(read(tmp_path, line))
    assert (finding.ok, finding.reason) == (reason is None, reason or "AsExpected")
    assert shown in finding.message


def test_a_nonfatal_error_does_not_hide_the_fatal_one_of_its_number(tmp_path: Path) -> None:
    head = "NVRM: Xid (PCI:0018:01:00): 145, RLW_RXPIPE"
    finding = judged(read(tmp_path, f"{head} Nonfatal XC0", f"{head} Fatal XC0", f"{head} Nonfatal XC0"))
    assert finding.reason == "XID145"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [({"failing_xids": (12028,)}, "SXID12028"), ({"ignored_xids": (12028, 20034)}, "AsExpected")],
)
def test_a_pool_names_errors_of_switches_as_it_does_xids(tmp_path: Path, settings: dict[str, Any], reason: str) -> None:
    lines = [
        f"nvidia-nvswitch3: SXid (PCI:0000:05:00.0): {said}" for said in ("12028, Non-fatal, x", "20034, Fatal, y")
    ]
    assert judged(read(tmp_path, *lines[: 1 if reason.startswith("SXID") else 2]), **settings).reason == reason


@pytest.mark.parametrize("name", ["Xid (1b:00): 79", "SXid (1b:00): 7"])
def test_a_process_that_is_named_like_an_xid_keeps_no_node_out_of_use(tmp_path: Path, name: str) -> None:
    finding = judged(read(tmp_path, f"{name}[4711]: segfault at 0 ip 0000 sp 0000 error 4 in nvidia[5555]"))
    assert (finding.ok, finding.message) == (True, "no XID in this boot")


def test_the_first_of_another_xid_is_not_lost_among_many(tmp_path: Path) -> None:
    crowd = [f"NVRM: Xid (PCI:0000:{at:02x}:00 GPU-I:01): 31, pid=1" for at in range(2 * MOST_XIDS)]
    log = read(tmp_path, *crowd, "NVRM: Xid (PCI:0000:07:00): 79, GPU has fallen off the bus.")
    assert len(log.xids) == MOST_XIDS
    assert judged(log).reason == "XID79"
    assert "more XIDs than are kept" in judged(log, ignored_xids=(79,)).message
