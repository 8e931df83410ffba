"""IpmiPower against OpenIPMI's ipmi_sim, over fake machines."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.machine.machine import BootPlan
from provisioner.api.machinery.values import Secret
from provisioner.outbound.deadline import TooSlow, bounded_call
from provisioner.power.bmc.ipmi import PORT, IpmiPower
from provisioner.power.bmc.ipmi_processes import IDLE_PROCESSES, IpmiNoAnswer, IpmiProcesses, _Process
from provisioner.power.bmc.power_controller import BmcAccess, BmcRefused, BmcUnreachable, host_and_port
from tests.power.ipmi_sim import PASSWORD, SESSIONS, IpmiSim, ipmi_sim

PXE = BootPlan(source="Pxe")
PATIENCE_SECONDS = 120.0


@pytest.fixture
def processes() -> Iterator[IpmiProcesses]:
    made = IpmiProcesses()
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def sim(tmp_path: Path) -> Iterator[IpmiSim]:
    with ipmi_sim(tmp_path / "bmc") as made:
        yield made


def test_a_server_is_switched_on_from_the_network_reset_asked_to_shut_down_and_cut(
    sim: IpmiSim, processes: IpmiProcesses
) -> None:
    power = IpmiPower(sim.access, processes)
    assert power.get_power_state() == "Off"
    power.set_boot_override("Pxe")
    power.power_on()
    assert (power.get_power_state(), sim.machine.boots) == ("On", [PXE])
    power.reset()
    assert len(sim.machine.boots) == 2
    sim.machine.hangs = True
    power.power_off(force=False)
    assert (power.get_power_state(), sim.machine.button_presses) == ("On", 1)
    power.power_off(force=True)
    assert power.get_power_state() == "Off"
    assert sim.said == ["boot pxe", "power 1", "reset 1", "shutdown 1", "power 0"]


def test_sessions_are_closed_a_bmc_has_few(sim: IpmiSim, processes: IpmiProcesses) -> None:
    power = IpmiPower(sim.access, processes)
    assert [power.get_power_state() for _ in range(SESSIONS * 4)] == ["Off"] * SESSIONS * 4


@pytest.mark.parametrize("changes", [{"password": Secret("guess")}, {"username": "root"}])
def test_wrong_credentials_are_refused_in_words_that_do_not_hold_them(
    sim: IpmiSim, processes: IpmiProcesses, changes: dict[str, Any]
) -> None:
    with pytest.raises(BmcRefused) as caught:
        IpmiPower(replace(sim.access, **changes), processes).get_power_state()
    assert caught.value.reason == "CredentialsRefused"
    assert "Secret provisioner-system/ipmi" in str(caught.value)
    assert "guess" not in str(caught.value)
    assert PASSWORD not in str(caught.value)
    assert IpmiPower(sim.access, processes).get_power_state() == "Off", "and the next one is let in"


def test_credentials_that_ipmi_cannot_carry_are_not_sent(processes: IpmiProcesses) -> None:
    access = BmcAccess(
        address="ipmi://192.0.2.1",
        username="administrator-of-all",
        password=Secret("x" * 21),
        credentials_name="provisioner-system/long",
        protocol="IPMI",
    )
    with pytest.raises(BmcRefused, match="20 bytes, of at most 16, and the password 21, of at most 20") as caught:
        IpmiPower(access, processes).get_power_state()
    assert caught.value.reason == "CredentialsUnusable"


def test_a_bmc_that_is_silent_is_unreachable_in_time(processes: IpmiProcesses, sim: IpmiSim) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        access = replace(sim.access, address=f"127.0.0.1:{silent.getsockname()[1]}")
        assert IpmiPower(sim.access, processes).get_power_state() == "Off"  # a process has begun
        with pytest.raises(BmcUnreachable, match="does not answer"):  # it gave up by itself, before it was given up
            IpmiPower(access, processes, call_seconds=PATIENCE_SECONDS).get_power_state()
        with pytest.raises(BmcUnreachable, match="no answer in time"):
            IpmiPower(access, processes, call_seconds=0.5).get_power_state()
    assert IpmiPower(sim.access, processes).get_power_state() == "Off"


def test_a_name_that_nobody_knows_is_unreachable(processes: IpmiProcesses, sim: IpmiSim) -> None:
    access = replace(sim.access, address="ipmi://bmc.invalid")
    with pytest.raises(BmcUnreachable, match=r"ipmi://bmc\.invalid does not answer"):
        IpmiPower(access, processes).get_power_state()


def test_a_reset_is_sent_once_though_its_answer_takes_long(sim: IpmiSim, processes: IpmiProcesses) -> None:
    power = IpmiPower(sim.access, processes)
    power.power_on()
    sim.delay_seconds = 3.0
    power.reset()
    assert sim.said == ["power 1", "reset 1"]


def test_many_bmcs_at_once_by_many_threads_do_not_get_into_each_others_way(
    tmp_path: Path, processes: IpmiProcesses
) -> None:
    """Every second BMC switched on, the others not, all of them asked again and again, and one that is dead."""
    with ExitStack() as stack, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        sims = [stack.enter_context(ipmi_sim(tmp_path / str(number), f"u{number}")) for number in range(6)]
        dead = IpmiPower(
            replace(sims[0].access, address=f"127.0.0.1:{silent.getsockname()[1]}"), processes, call_seconds=3.0
        )

        def use(number: int) -> list[str]:
            power = IpmiPower(sims[number].access, processes, call_seconds=PATIENCE_SECONDS)
            if number % 2:
                power.set_boot_override("Pxe")
                power.power_on()
            return [power.get_power_state() for _ in range(10)]

        def use_dead() -> None:
            with pytest.raises(BmcUnreachable):
                dead.get_power_state()

        with ThreadPoolExecutor(len(sims) + 1) as threads:
            waiting = threads.submit(use_dead)
            seen = list(threads.map(use, range(len(sims))))
            waiting.result(timeout=PATIENCE_SECONDS)
        assert seen == [["On" if number % 2 else "Off"] * 10 for number in range(len(sims))]
        assert [sim.machine.boots for sim in sims] == [[PXE] if number % 2 else [] for number in range(len(sims))]


def test_the_password_is_in_no_process_list(sim: IpmiSim, processes: IpmiProcesses) -> None:
    power = IpmiPower(sim.access, processes)
    sim.delay_seconds = 1.0
    asking = threading.Thread(target=power.get_power_state)
    asking.start()
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (children := _children()):
            assert time.monotonic() < deadline, "it is asked by a process"
            time.sleep(0.01)
        for pid in children:
            shown = Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
            assert PASSWORD.encode() not in shown
    finally:
        asking.join()


def test_a_process_that_dies_is_replaced_and_none_is_left_at_the_end(sim: IpmiSim, processes: IpmiProcesses) -> None:
    power = IpmiPower(sim.access, processes)
    assert power.get_power_state() == "Off"
    (child,) = _children()
    os.kill(child, 9)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while processes._idle[0].lives:  # a process that is killed takes a moment to be gone with all its threads
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert power.get_power_state() == "Off"
    processes.close()
    assert _children() == []


def test_what_is_not_answered_in_time_is_told_without_the_password(processes: IpmiProcesses) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        request = {"host": "127.0.0.1", "port": silent.getsockname()[1], "username": "root", "password": "hunter2"}
        with pytest.raises(IpmiNoAnswer) as caught:
            processes.ask(request | {"commands": []}, seconds=0.5)
    assert "hunter2" not in repr(caught.value)
    assert caught.value.__cause__ is None
    assert _children() == [], "and the process that hangs is ended"


def test_a_process_that_speaks_with_a_bmc_has_a_bound_of_memory(sim: IpmiSim, processes: IpmiProcesses) -> None:
    assert IpmiPower(sim.access, processes).get_power_state() == "Off"
    (child,) = _children()
    (limit,) = [line for line in Path(f"/proc/{child}/limits").read_text().splitlines() if "address space" in line]
    assert limit.split()[3] == str(512 << 20)


def test_of_many_processes_some_are_kept(sim: IpmiSim, processes: IpmiProcesses) -> None:
    power = IpmiPower(sim.access, processes, call_seconds=PATIENCE_SECONDS)
    assert power.get_power_state() == "Off"
    spare = [_Process() for _ in range(IDLE_PROCESSES + 2)]
    processes._idle.extend(spare)
    assert power.get_power_state() == "Off"
    assert len(processes._idle) <= IDLE_PROCESSES + 2, "the one that was used was ended, not put to the others"
    assert len(_children()) == len(processes._idle)


def test_a_call_that_is_part_of_another_ends_with_it(processes: IpmiProcesses, sim: IpmiSim) -> None:
    """As a look that its queue gives less time than a call may take."""
    assert IpmiPower(sim.access, processes).get_power_state() == "Off"  # a process has begun
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        power = IpmiPower(replace(sim.access, address=f"127.0.0.1:{silent.getsockname()[1]}"), processes)
        with bounded_call("BMC", seconds=0.5), pytest.raises((BmcUnreachable, TooSlow)):
            power.get_power_state()
    assert _children() == [], "it hangs, and is ended"


class FakeProcesses(IpmiProcesses):
    """Remembers the commands, and gives the answers that it was made with."""

    def __init__(self, **answer: Any) -> None:
        super().__init__()
        self.commands: list[tuple[int, int, tuple[int, ...]]] = []
        self._answer = answer or {"answers": [{"code": 0, "data": []}]}

    def ask(self, request: dict[str, Any], *, seconds: float) -> dict[str, Any]:
        self.commands += [(one["netfn"], one["command"], one["data"]) for one in request["commands"]]
        return self._answer


@pytest.mark.parametrize(
    ("firmware", "flags"),
    [("UEFI", (5, 0xA0, 0x04, 0, 0, 0)), ("BIOS", (5, 0x80, 0x04, 0, 0, 0))],
)
def test_the_boot_flags_say_firmware_device_and_once(sim: IpmiSim, firmware: Any, flags: tuple[int, ...]) -> None:
    fake = FakeProcesses()
    IpmiPower(replace(sim.access, firmware=firmware), fake).set_boot_override("Pxe")
    assert fake.commands == [(0, 8, (3, 8)), (0, 8, flags), (0, 9, (5, 0, 0))]


@pytest.mark.parametrize("answers", [[0, 0, 0], [0, 0, 0xCC]], ids=["nothing", "a refusal"])
def test_a_bmc_that_does_not_read_its_boot_flags_back_is_believed(sim: IpmiSim, answers: list[int]) -> None:
    fake = FakeProcesses(answers=[{"code": code, "data": []} for code in answers])
    IpmiPower(sim.access, fake).set_boot_override("Pxe")
    assert [command[:2] for command in fake.commands] == [(0, 8), (0, 8), (0, 9)]


def test_boot_flags_that_are_another_device_when_they_are_read_back_are_no_success(sim: IpmiSim) -> None:
    disk = {"code": 0, "data": [1, 5, 0x80, 0x08, 0, 0, 0]}
    fake = FakeProcesses(answers=[{"code": 0, "data": []}, {"code": 0, "data": []}, disk])
    with pytest.raises(BmcRefused, match="accepted to boot by Pxe, and has device 0x2") as caught:
        IpmiPower(sim.access, fake).set_boot_override("Pxe")
    assert caught.value.reason == "NotSupported"


def test_boot_flags_that_are_refused_are_no_success(sim: IpmiSim) -> None:
    fake = FakeProcesses(answers=[{"code": 0, "data": []}, {"code": 0xC1, "data": []}])
    with pytest.raises(BmcRefused, match="completion code 0xc1"):
        IpmiPower(sim.access, fake).set_boot_override("Pxe")


def test_a_url_cannot_be_set_by_ipmi(sim: IpmiSim) -> None:
    fake = FakeProcesses()
    with pytest.raises(BmcRefused, match="bootMethod to Pxe"):
        IpmiPower(sim.access, fake).set_boot_override("UefiHttp", "http://10.80.0.1/snponly.efi")
    assert fake.commands == []


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        ({"answers": [{"code": 0xC0, "data": []}]}, BmcUnreachable, "is busy"),
        ({"answers": [{"code": 0xD5, "data": []}]}, BmcUnreachable, "power changed meanwhile"),
        ({"answers": [{"code": 0xD4, "data": []}]}, BmcRefused, "Operator or Administrator"),
        ({"answers": [{"code": 0xC1, "data": []}]}, BmcRefused, "completion code 0xc1"),
        ({"error": "Insufficient resources to create new session"}, BmcUnreachable, "is busy"),
        ({"error": "No Cipher suite match with proposed security algorithms"}, BmcRefused, "cipher suite 17 or 3"),
        ({"error": "the BMC offers IPMI 1.5 only"}, BmcRefused, "no login that is safe enough"),
        ({"error": "Session no longer connected"}, BmcUnreachable, "does not answer"),
    ],
)
def test_what_goes_wrong_is_put_into_words(
    sim: IpmiSim, answer: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        IpmiPower(sim.access, FakeProcesses(**answer)).power_on()


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("ipmi://10.90.0.11", ("10.90.0.11", 623)),
        ("ipmi://bmc.example.net:6230/", ("bmc.example.net", 6230)),
        ("10.90.0.11:6230", ("10.90.0.11", 6230)),
        ("[fd00::11]", ("fd00::11", 623)),
        ("bmc", ("bmc", 623)),
    ],
)
def test_an_address_is_a_host_and_perhaps_a_port(address: str, place: tuple[str, int]) -> None:
    assert host_and_port(address, "ipmi", PORT) == place


@pytest.mark.parametrize(
    ("address", "remedy"),
    [
        ("ipmi://fd00::12", "write it as ipmi://[fd00::12]"),
        ("fd00::12", "write it as ipmi://[fd00::12]"),
        ("https://fd00::12/redfish/v1", "write it as https://[fd00::12]"),
        ("ipmi://10.90.0.4:66666", "write it as ipmi://10.90.0.4"),
        ("https://bmc-u11.example.net:x/redfish", "write it as https://bmc-u11.example.net"),
        ("ipmi://[fd00::12]:66666", "write it as ipmi://[fd00::12]"),
        ("ipmi://[fd00::12", "write an address such as ipmi://10.90.0.11"),
        ("ipmi://", "write an address such as ipmi://10.90.0.11"),
    ],
)
def test_an_address_that_is_none_is_refused_with_itself_corrected_or_an_example(address: str, remedy: str) -> None:
    with pytest.raises(BmcRefused) as caught:
        host_and_port(address, "ipmi", PORT)
    assert (caught.value.hint, caught.value.reason) == (remedy, "AddressInvalid")


def _children() -> list[int]:
    """The processes of this one that speak IPMI."""
    listed = subprocess.run(
        ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(os.getpid())], capture_output=True, text=True, check=True
    )
    return [int(line.split()[0]) for line in listed.stdout.splitlines() if "ipmi_child.py" in line]
