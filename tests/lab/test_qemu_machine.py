"""One real QEMU: what happens when it cannot start, is switched off, or says too much."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from lab.machine.machine import NETWORK_BOOT, MachineFiles, MachineSpec
from lab.machine.qemu import QemuMachine, trim_log
from lab.network import LabNetwork, tap_name
from lab.tools import Tools
from provisioner.api.machinery.errors import Retryable
from provisioner.api.machinery.values import parse_mac
from tests.lab.test_lost_timer import LOST
from tests.tools import is_running


@pytest.fixture
def launcher() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(max_workers=1) as made:
        yield made


def runs(pid: int, program: bytes) -> bool:
    return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].endswith(program)


class InNamespace(Tools):
    """The tools, in a lab's network; the BMC process is there as a whole, a test is not."""

    network: LabNetwork

    def command(self, argv, binds=()):  # type: ignore[no-untyped-def]
        return self.network.command(super().command(argv, binds))


@pytest.fixture
def machine(
    network: LabNetwork, tools: Tools, launcher: ThreadPoolExecutor, short_directory: Path
) -> Iterator[QemuMachine]:
    inside = InNamespace(tools.root)
    object.__setattr__(inside, "network", network)
    made = QemuMachine(
        MachineSpec(
            name="r01-u01",
            firmware="UEFI",
            mac=parse_mac("52:54:00:00:00:01"),
            uuid="3b5d4f1e-0a5e-4a59-8a0e-000000000001",
            serial="LAB1",
            memory_mib=128,
            cpus=1,
        ),
        MachineFiles(directory=short_directory / "r01-u01"),
        tools=inside,
        tap=tap_name("r01-u01"),
        accelerator="tcg",
        launcher=launcher,
    )
    yield made
    made.power_off()


def test_a_machine_is_on_until_it_is_off_and_can_be_on_again(machine: QemuMachine, network: LabNetwork) -> None:
    network.create(taps=[tap_name("r01-u01")])
    assert not machine.running
    for _ in range(2):
        machine.power_on(NETWORK_BOOT)
        first = machine.pid
        assert machine.running
        machine.power_on(NETWORK_BOOT)
        assert machine.pid == first, "a machine that is on stays as it is"
        (tpm,) = (pid for pid in network.process_ids() if runs(pid, b"swtpm"))
        machine.power_off()
        assert (machine.running, machine.pid) == (False, None)
        assert not is_running(tpm), "its TPM ends with it"
    machine.power_off()
    machine.press_power_button()


def test_a_machine_that_cannot_start_says_why_in_qemus_words(machine: QemuMachine, network: LabNetwork) -> None:
    network.create()
    machine._spec = replace(machine._spec, memory_mib=1 << 40)
    with pytest.raises(Retryable, match=r"r01-u01 did not start.*cannot set up guest memory"):
        machine.power_on(NETWORK_BOOT)
    assert not machine.running
    assert not network.process_ids(), "nor is its TPM left"


def test_a_qemu_that_crashed_takes_its_tpm_along_and_starts_again(machine: QemuMachine, network: LabNetwork) -> None:
    network.create(taps=[tap_name("r01-u01")])
    machine.power_on(NETWORK_BOOT)
    assert machine.pid is not None
    os.kill(machine.pid, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while network.process_ids():
        assert time.monotonic() < deadline, "something is left"
        time.sleep(0.05)
    machine.power_on(NETWORK_BOOT)
    assert machine.running


def test_a_machine_that_lost_its_timer_is_reset_once(
    machine: QemuMachine, network: LabNetwork, short_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network.create(taps=[tap_name("r01-u01")])
    resets: list[None] = []
    press = machine.press_reset_button
    monkeypatch.setattr(machine, "press_reset_button", lambda: resets.append(press()))
    machine.power_on(NETWORK_BOOT)
    log, deadline = short_directory / "r01-u01" / "console.log", time.monotonic() + 60
    while not resets:
        with log.open("a") as console:
            console.write(f"\n{LOST}\n")
        assert time.monotonic() < deadline, "nobody noticed"
        time.sleep(0.05)
    time.sleep(1)  # the lines that were written after the first one
    assert len(resets) == 1
    assert machine.running


def test_a_console_that_says_too_much_keeps_its_end(tmp_path: Path) -> None:
    log = tmp_path / "console.log"
    writer = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for line in range(30):
        os.write(writer, b"%09d\n" % line)
        trim_log(log, 100)
    os.close(writer)
    kept = (tmp_path / "console.log.1").read_text() + log.read_text()
    assert kept.endswith("000000029\n")
    assert len(kept) <= 220
    assert "\0" not in kept
