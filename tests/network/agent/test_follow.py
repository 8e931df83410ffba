"""The agent acknowledges what the kernel agrees with, keeps what it has read, and releases only what is gone."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address
from typing import Any

from provisioner.api.machinery.codec import to_json
from provisioner.api.network.dpu_network import DPUNetworkSpec, HostBoot, PortStatus
from provisioner.network.agent.boot.plane import BootingHost, ServedBoot
from provisioner.network.agent.dhcp.served import ServedPort
from provisioner.network.agent.follow import LOOK_SECONDS, SAY_AGAIN_SECONDS, Agent
from provisioner.network.agent.result import Enforced, Problem
from tests.network.agent.specs import BLUE, port, spec, vpc

AGREES = Enforced(
    agrees=True,
    problems=(),
    ports=(PortStatus(function="pf0", state="Tenant", offloaded="No"),),
    vnis=(BLUE,),
    changes=0,
    mended=False,
)
HOST = ServedPort(
    "pf0", "vpc-10001", "pf0hpf", "52:54:00:00:01:00", IPv4Address("10.1.0.3"), IPv4Address("10.1.0.2"), 1450
)
WISH = spec([vpc(BLUE)], [port("10.1.0.3")])


@dataclass
class FakeKernel:
    """What was asked of it, and answers that a test chooses."""

    answer: Enforced = AGREES
    asked: list[DPUNetworkSpec | None] = field(default_factory=list)
    faults: list[Exception] = field(default_factory=list)
    is_isolated: bool = False

    def enforce(self, spec: DPUNetworkSpec) -> Enforced:
        self.asked.append(spec)
        return self.answer

    def release(self) -> Enforced:
        self.asked.append(None)
        if self.faults:
            raise self.faults.pop()
        return self.answer

    def isolate_unless_enforced(self) -> bool:
        self.is_isolated = True
        return True

    def boot(self) -> ServedBoot | None:
        return self.answer.boot

    def served(self) -> tuple[ServedPort, ...]:
        return (HOST,) if self.answer.served else ()


class Dpu:
    """An agent with a kernel, and a DPUNetwork that takes the merge patches of its status, unless it is away."""

    def __init__(self) -> None:
        self.kernel = FakeKernel()
        self.status: dict[str, Any] = {}
        self.writes = 0
        self.is_away = False
        self.said: list[str] = []
        self.now = 1_800_000_000.0
        self.serves: list[tuple[ServedPort, ...]] = []
        self.boots: list[ServedBoot | None] = []
        self.boot_fault: str | None = None
        self.agent = Agent(
            self.kernel,
            self._write,
            self.said.append,
            lambda: self.now,
            serve=lambda ports: self.serves.append(tuple(ports)),
            serve_boot=self._serve_boot,
        )

    def _serve_boot(self, boot: ServedBoot | None) -> str | None:
        self.boots.append(boot)
        return self.boot_fault

    def _write(self, change: Mapping[str, Any]) -> None:
        if self.is_away:
            raise OSError("connection refused")
        self.writes += 1
        self.status = {**self.status, **copy.deepcopy(change["status"])}

    def sees(self, generation: int, wish: DPUNetworkSpec | Mapping[str, Any] = WISH) -> None:
        body = to_json(wish) if isinstance(wish, DPUNetworkSpec) else wish
        self.agent.take({"metadata": {"generation": generation}, "spec": body, "status": dict(self.status)})

    @property
    def applied(self) -> dict[str, Any]:
        (condition,) = self.status["conditions"]
        return dict(condition)


def test_a_generation_is_acknowledged_once_the_kernel_agrees() -> None:
    dpu = Dpu()
    dpu.sees(7)
    dpu.kernel.answer = Enforced(False, (Problem("PortMissing", "there is no pf0hpf", ("pf0",)),), (), (), 3, False)
    dpu.agent.look()
    assert "observedGeneration" not in dpu.status
    assert (dpu.applied["status"], dpu.applied["reason"], dpu.applied["message"]) == (
        "False",
        "PortMissing",
        "there is no pf0hpf",
    )
    dpu.kernel.answer = AGREES
    dpu.agent.look()
    assert (dpu.status["observedGeneration"], dpu.status["vnis"]) == (7, [BLUE])
    assert (dpu.applied["status"], dpu.applied["observedGeneration"]) == ("True", 7)


def test_a_problem_of_one_port_is_told_and_the_generation_is_acknowledged() -> None:
    """The port is isolated, and so it is said of that one; the others are as they were asked for."""
    dpu = Dpu()
    dpu.sees(7)
    missing = Problem("PortMissing", "there is no pf1hpf", ("pf1",))
    dpu.kernel.answer = Enforced(False, (missing,), AGREES.ports, (BLUE,), 3, False, holds=True)
    dpu.agent.look()
    assert dpu.status["observedGeneration"] == 7
    assert (dpu.applied["status"], dpu.applied["reason"]) == ("False", "PortMissing")


def test_an_older_acknowledgement_stays_while_a_newer_wish_does_not_hold() -> None:
    dpu = Dpu()
    dpu.sees(7)
    dpu.agent.look()
    dpu.kernel.answer = Enforced(False, (), (), (BLUE,), 0, False)
    dpu.sees(8, spec([vpc(BLUE)], []))
    dpu.agent.look()
    assert (dpu.status["observedGeneration"], dpu.applied["reason"]) == (7, "Differs")


def test_what_is_known_to_be_said_is_not_written_again() -> None:
    dpu = Dpu()
    dpu.sees(7)
    for _ in range(20):
        dpu.agent.look()
        dpu.sees(7)
        dpu.now += LOOK_SECONDS
    assert dpu.writes == 1
    assert len(dpu.kernel.asked) == 20, "the kernel is looked at all the same"


def test_what_another_wrote_over_it_is_said_again() -> None:
    dpu = Dpu()
    dpu.sees(7)
    dpu.agent.look()
    dpu.status["observedGeneration"] = 3
    dpu.sees(7)
    dpu.now += SAY_AGAIN_SECONDS
    dpu.agent.look()
    assert dpu.status["observedGeneration"] == 7


def test_without_the_api_server_what_was_read_still_holds_and_is_said_once_it_is_back() -> None:
    dpu = Dpu()
    dpu.sees(7)
    dpu.is_away = True
    for _ in range(3):
        dpu.agent.look()
        dpu.now += LOOK_SECONDS
    assert dpu.kernel.asked == [WISH] * 3
    assert "connection refused" in dpu.said[0]
    dpu.is_away = False
    dpu.agent.look()
    assert dpu.status["observedGeneration"] == 7


def test_nothing_is_done_before_anything_was_read() -> None:
    dpu = Dpu()
    dpu.agent.look()
    assert (dpu.kernel.asked, dpu.writes) == ([], 0)


def test_before_anything_was_read_every_port_is_isolated_and_a_fault_ends_nothing() -> None:
    dpu = Dpu()
    dpu.agent.take(None)
    dpu.kernel.faults = [OSError("no buffer space")]
    stop = threading.Event()
    thread = threading.Thread(target=dpu.agent.run, args=(stop,), daemon=True)
    thread.start()
    for _ in range(3600):
        if len(dpu.kernel.asked) >= 2:
            break
        dpu.agent.changed.set()
        time.sleep(0.05)
    stop.set()
    dpu.agent.changed.set()
    thread.join(180)
    assert dpu.kernel.is_isolated
    assert dpu.kernel.asked[:2] == [None, None]
    assert "no buffer space" in dpu.said[0]


def test_a_network_that_is_gone_is_released() -> None:
    dpu = Dpu()
    dpu.sees(7)
    dpu.agent.look()
    dpu.agent.take(None)
    dpu.agent.look()
    assert dpu.kernel.asked == [WISH, None]


def test_hosts_may_ask_for_their_addresses_while_their_ports_pass() -> None:
    dpu = Dpu()
    dpu.kernel.answer = replace(AGREES, served=(HOST,))
    dpu.sees(7)
    dpu.agent.look()
    dpu.sees(8, {"ports": "all of them"})
    dpu.agent.look()
    assert dpu.serves == [(HOST,)], "what cannot be read takes nothing away"
    dpu.agent.take(None)
    dpu.agent.look()
    assert dpu.serves == [(HOST,), ()]


def test_whether_its_host_can_boot_by_it_is_told_beside_what_is_enforced() -> None:
    dpu = Dpu()
    wish = DPUNetworkSpec(
        vtep_address="192.0.2.1",
        host_boot=HostBoot(server="r01-u01", function="pf0", mac_address=HOST.mac, address="10.80.0.21"),
    )
    boot = ServedBoot(BootingHost("pf0", HOST.mac, IPv4Address("10.80.0.21")), "vpc-boot")
    found = []
    for answer, fault in (
        (AGREES, None),
        (replace(AGREES, boot=boot), "the boot of the host is not served: Address already in use; trying again"),
        (replace(AGREES, boot=boot), None),
    ):
        dpu.kernel.answer, dpu.boot_fault = answer, fault
        dpu.sees(1, wish)
        dpu.agent.look()
        applied, told = dpu.status["conditions"]
        assert applied["type"] == "Applied"
        found.append((told["type"], told["status"], told["reason"]))
        assert (fault or "r01-u01") in told["message"]
    assert [each[1:] for each in found] == [("False", "NotEnforced"), ("False", "NotServed"), ("True", "Served")]
    assert {each[0] for each in found} == {"HostBootServed"}
    dpu.sees(2)
    dpu.agent.look()
    assert dpu.applied["status"] == "True", "of a host that boots by itself nothing is told"


def test_a_host_boots_by_it_as_long_as_the_kernel_has_its_plane() -> None:
    dpu = Dpu()
    boots = ServedBoot(BootingHost("pf0", HOST.mac, IPv4Address("10.80.0.21")), "vpc-boot")
    for answer in (AGREES, replace(AGREES, boot=boots), AGREES):
        dpu.kernel.answer = answer
        dpu.sees(1)
        dpu.agent.look()
    dpu.agent.take(None)
    dpu.agent.look()
    assert dpu.boots == [None, boots, None, None]


def test_an_agent_that_cannot_read_its_network_lets_hosts_ask_whom_the_one_before_it_let_pass() -> None:
    dpu = Dpu()
    dpu.kernel.answer = replace(AGREES, served=(HOST,))
    stop = threading.Event()
    stop.set()
    dpu.agent.run(stop)
    assert dpu.serves == [(HOST,)]


def test_a_network_that_cannot_be_read_releases_nothing_and_says_so() -> None:
    dpu = Dpu()
    dpu.sees(7)
    dpu.agent.look()
    dpu.sees(8, {"ports": "all of them"})
    dpu.agent.look()
    assert dpu.kernel.asked == [WISH, WISH], "what was enforced before is looked at, and mended, as ever"
    assert (dpu.applied["status"], dpu.applied["reason"]) == ("False", "NotReadable")
    assert "what was enforced before still is" in dpu.applied["message"]
    assert dpu.status["observedGeneration"] == 7


def test_what_was_mended_is_dated() -> None:
    dpu = Dpu()
    dpu.sees(7)
    dpu.kernel.answer = Enforced(True, (), AGREES.ports, (BLUE,), 2, True)
    dpu.agent.look()
    dpu.kernel.answer = AGREES
    dpu.now += 600
    dpu.agent.look()
    assert dpu.status["mendedTime"] == "2027-01-15T08:00:00.000000Z"
    assert "2 operations mended it" in dpu.said[0]


def test_a_transition_keeps_its_time_over_a_restart_of_the_agent() -> None:
    dpu = Dpu()
    dpu.sees(7)
    dpu.agent.look()
    since = dpu.applied["lastTransitionTime"]
    dpu.now += 3600
    dpu.agent = Agent(dpu.kernel, dpu._write, dpu.said.append, lambda: dpu.now)
    dpu.sees(8)
    dpu.agent.look()
    assert (dpu.applied["lastTransitionTime"], dpu.applied["observedGeneration"]) == (since, 8)
