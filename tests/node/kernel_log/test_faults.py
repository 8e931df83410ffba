"""What the agent keeps of the kernel log's faults: each once, counted, within bounds, from one reader of the log."""

from __future__ import annotations

import json
import time
import tracemalloc
from pathlib import Path

import pytest

from provisioner.api.machinery.codec import from_json, to_json
from provisioner.api.nodes.facts import ObservedFault
from provisioner.node.machine.gpus.kernel_log import KernelLog
from provisioner.node.machine.kernel_log.faults import EVIDENCE_LENGTH, MOST_FAULTS, FaultLog
from provisioner.node.machine.kernel_log.records import MOST_RECORDS, KernelRecords
from tests.node.kernel_log.corpus import FAULTS, HARMLESS

MEMORY = "EDAC MC0: 1 CE memory read error on {} (channel:0 slot:0 page:0x2e7f1 offset:0x40 grain:32)"
BUS = "pcieport 0000:{:02x}:01.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)"


class Log:
    """A kernel log that grows."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "kmsg"
        self.path.touch()
        self.records = KernelRecords(str(self.path), wall_clock=lambda: time.clock_gettime(time.CLOCK_MONOTONIC))
        self.faults = FaultLog(self.records)

    def say(self, *lines: str) -> None:
        with self.path.open("a") as file:
            for line in lines:
                file.write(f"4,100,86400500000,-;{line}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:80:01.0\n")
        self.faults.look()


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def test_a_fault_is_kept_once_with_its_count_and_its_first_line(log: Log) -> None:
    log.say(MEMORY.format("DIMM_A1"), MEMORY.format("DIMM_A1"), MEMORY.format("DIMM_B2"))
    log.say(MEMORY.format("DIMM_A1"))
    first, second = log.faults.faults
    assert first == {
        "source": "KernelLog",
        "component": "Memory",
        "device": "DIMM_A1",
        "code": "CorrectedMemoryError",
        "severity": "Info",
        "count": 3,
        "evidence": MEMORY.format("DIMM_A1"),
        "time": "1970-01-02T00:00:00Z",
    }
    assert (second["device"], second["count"]) == ("DIMM_B2", 1)
    assert to_json(from_json(ObservedFault, first)) == first, "as the controllers would write it"


def test_gpus_and_faults_share_one_reader(log: Log) -> None:
    xids = KernelLog(str(log.path), log.records)
    log.say("NVRM: Xid (PCI:0000:1b:00): 79, pid=1, GPU has fallen off the bus.", FAULTS[0][0])
    xids.look()
    assert list(xids.xids) == [("0000:1b:00.0", 79)]
    assert [each["code"] for each in log.faults.faults] == [FAULTS[0][2]]


def test_a_log_that_cannot_be_read_is_said_and_read_once_it_is_there(tmp_path: Path) -> None:
    records = KernelRecords(str(tmp_path / "kmsg"))
    faults = FaultLog(records)
    faults.look()
    assert (faults.is_readable, faults.faults) == (False, [])
    (tmp_path / "kmsg").write_text(f"4,1,1,-;{FAULTS[0][0]}\n")
    faults.look()
    assert (faults.is_readable, len(faults.faults)) == (True, 1)


def test_evidence_is_one_short_printable_line(log: Log) -> None:
    log.say("EXT4-fs error (device sda1): ext4_find_entry:1: comm \x1b[31m\u202e" + "x" * 500)
    (fault,) = log.faults.faults
    assert len(fault["evidence"]) <= EVIDENCE_LENGTH
    assert fault["evidence"].isprintable()
    assert fault["evidence"].startswith("EXT4-fs error (device sda1): ext4_find_entry:1: comm")


def test_many_devices_with_one_fault_leave_room_for_another_fault(log: Log) -> None:
    log.say(*(BUS.format(number) for number in range(MOST_FAULTS + 8)))
    assert (len(log.faults.faults), log.faults.left_out) == (MOST_FAULTS, 8)
    log.say("kernel BUG at mm/slub.c:305!")
    assert log.faults.faults[-1]["code"] == "KernelBug"
    assert len(log.faults.faults) == MOST_FAULTS


def test_a_mild_fault_does_not_push_out_a_severe_one_and_a_severe_one_does_a_mild_one(log: Log) -> None:
    severe = "pcieport 0000:{:02x}:01.0: pciehp: Slot(1): Link Down"
    log.say(BUS.format(0), *(severe.format(number) for number in range(MOST_FAULTS - 1)))
    log.say(BUS.format(1))
    assert [each["code"] for each in log.faults.faults].count("LinkDown") == MOST_FAULTS - 1
    log.say(severe.format(200))
    assert {each["code"] for each in log.faults.faults} == {"LinkDown"}


def test_a_storm_costs_bounded_time_and_memory(log: Log) -> None:
    storm = [each[0] for each in FAULTS] + list(HARMLESS) + [MEMORY.format(f"DIMM_{n}") for n in range(200)]
    lines = "".join(f"4,{n},{n},-;{storm[n % len(storm)]}\n" for n in range(2 * MOST_RECORDS))
    log.path.write_text(lines)
    tracemalloc.start()
    began = time.process_time()
    log.faults.look()
    spent = time.process_time() - began
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(log.faults.faults) == MOST_FAULTS
    assert peak < 1 << 20
    assert spent < 60.0, "tracing makes it many times slower"
    assert len(json.dumps(log.faults.faults)) < 12_000


def test_a_look_reads_so_many_records_and_the_next_one_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kmsg"
    line = f"4,1,1,-;{MEMORY.format('DIMM_A1')}\n".encode()
    path.write_bytes(line * 600)
    monkeypatch.setattr("provisioner.node.machine.kernel_log.records.MOST_RECORDS", 2)
    log_records, taken = KernelRecords(str(path)), []
    log_records.add(lambda text, moment: taken.append(text))
    log_records.look()
    assert 0 < len(taken) < 600, "two reads of a file, which gives several records at a time"
    for _ in range(20):
        log_records.look()
    assert len(taken) == 600, "each once"


def test_what_never_ends_a_line_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    path.write_bytes(b"x" * (1 << 20) + f"\n4,1,1,-;{FAULTS[0][0]}\n".encode())
    records = KernelRecords(str(path))
    faults = FaultLog(records)
    faults.look()
    assert len(records._rest) <= 8192
    assert [each["code"] for each in faults.faults] == [FAULTS[0][2]]
