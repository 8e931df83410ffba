"""An agent whose spec speaks of EVPN: what is heard is enforced, what passes is announced, what was held stays."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from provisioner.api.network.dpu_network import DPUEvpn, DPUNetworkSpec
from provisioner.network.agent import held_routes
from provisioner.network.agent.exchanging import ASK_SECONDS, AWAIT_SECONDS, LINGER_SECONDS, ExchangingKernel
from provisioner.network.agent.follow import SAY_OF_ROUTES_SECONDS
from provisioner.network.agent.held_routes import HeldRoutes
from provisioner.network.agent.result import Enforced, Exchanged
from provisioner.network.evpn.configuration import Configuration
from provisioner.network.evpn.identity import vpc_mac
from provisioner.network.evpn.learn import EvpnRoute
from provisioner.network.evpn.vty import BgpdFailed, BgpdMissing
from tests.network.agent.specs import BLUE, TWO, port, spec, vpc
from tests.network.agent.test_follow import AGREES, Dpu, FakeKernel
from tests.network.evpn.test_learn import ESTABLISHED, said

THEIRS, MORE = EvpnRoute(BLUE, "10.1.0.5/32", TWO), EvpnRoute(BLUE, "10.1.0.7/32", TWO)
BY_API_SERVER = spec([vpc(remotes={TWO: ["10.1.0.5/32"]})], [port("10.1.0.3")])
EVPN = DPUEvpn(asn=64512, reflectors=("192.0.2.250",))
BY_EVPN = replace(BY_API_SERVER, evpn=EVPN, vpcs=(replace(BY_API_SERVER.vpcs[0], remotes=(), space=("10.1.0.0/16",)),))


@dataclass
class FakeBgpd:
    """Announces what it is told, and has heard `heard`."""

    heard: list[EvpnRoute] = field(default_factory=list)
    sessions_: Mapping[str, Any] = field(default_factory=lambda: ESTABLISHED)
    configuration: Configuration = field(default_factory=dict)
    fault: BgpdFailed | None = None
    is_deaf: bool = False
    is_flooded: bool = False
    applied: int = 0

    def apply(self, wanted: Configuration) -> int:
        self._fail()
        self.applied += 1
        told = int(wanted != self.configuration)
        self.configuration = wanted
        return told

    def routes(self) -> dict[str, Any]:
        self._fail()
        if self.is_flooded:
            raise BgpdFailed("timed out")
        found: dict[str, Any] = {}
        for each in self.heard:
            found.update(said(each))
        own = [line for lines in self.configuration.values() for line in lines if line.startswith("network ")]
        for line in own if not self.is_deaf else ():
            mac = {"string": f"Rmac:{vpc_mac(BLUE)}"}
            found.update(said(EvpnRoute(BLUE, line.split()[1], "192.0.2.1"), peerId="(unspec)", extendedCommunity=mac))
        return found

    def sessions(self) -> Mapping[str, Any]:
        self._fail()
        return self.sessions_

    def _fail(self) -> None:
        if self.fault is not None:
            raise self.fault


class Machine:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kernel, self.bgpd, self.now = FakeKernel(), FakeBgpd(), 1_800_000_000.0
        self.restart()

    def restart(self) -> None:
        """The agent; bgpd runs on."""
        self.agent = ExchangingKernel(self.kernel, self.folder, lambda: self.now)
        self.agent._bgpd = self.bgpd  # type: ignore[assignment]

    def enforce(self, wanted: DPUNetworkSpec) -> Enforced:
        return self.agent.enforce(wanted)

    @property
    def remotes(self) -> dict[str, tuple[str, ...]]:
        """Of the spec that was enforced last."""
        last = self.kernel.asked[-1]
        assert last is not None
        return {each.vtep: each.prefixes for each in last.vpcs[0].remotes}

    @property
    def announced(self) -> list[str]:
        lines = (line for lines in self.bgpd.configuration.values() for line in lines)
        return [line.split()[1] for line in lines if line.startswith("network ")]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def reason(enforced: Enforced) -> str:
    assert enforced.exchanged is not None
    assert enforced.exchanged.message
    return enforced.exchanged.reason


def test_what_is_heard_is_enforced_and_what_passes_is_announced(machine: Machine) -> None:
    machine.bgpd.heard = [THEIRS]
    enforced = machine.enforce(BY_EVPN)
    assert machine.remotes == {TWO: ("10.1.0.5/32",)}
    assert machine.announced == ["10.1.0.3/32"]
    assert (enforced.agrees, reason(enforced)) == (True, "Exchanged")


def test_what_does_not_pass_is_not_announced(machine: Machine) -> None:
    machine.kernel.answer = replace(AGREES, ports=())
    machine.enforce(BY_EVPN)
    assert machine.announced == []


def test_where_the_spec_does_not_speak_of_it_no_bgpd_is_asked_for(machine: Machine) -> None:
    machine.bgpd.fault = BgpdMissing("no bgpd")
    for _ in range(2):
        assert machine.enforce(BY_API_SERVER) == AGREES
        machine.now += LINGER_SECONDS + 1
    assert list(machine.folder.iterdir()) == []


@pytest.mark.parametrize("fault", [BgpdMissing("no bgpd"), BgpdFailed("refused")])
def test_without_bgpd_the_last_routes_stay_and_nothing_is_acknowledged(machine: Machine, fault: BgpdFailed) -> None:
    machine.bgpd.heard = [THEIRS]
    machine.enforce(BY_EVPN)
    machine.bgpd.fault = fault
    for _ in range(2):
        enforced = machine.enforce(BY_EVPN)
        assert machine.remotes == {TWO: ("10.1.0.5/32",)}
        assert (enforced.agrees, enforced.holds, reason(enforced)) == (False, False, type(fault).__name__)
        machine.restart()


def test_bgpd_that_announces_something_else_than_it_was_told_is_not_acknowledged(machine: Machine) -> None:
    machine.bgpd.is_deaf = True
    enforced = machine.enforce(BY_EVPN)
    assert (enforced.agrees, enforced.holds, reason(enforced)) == (False, False, "BgpdFailed")


def test_of_a_spec_that_cannot_be_read_nothing_is_acknowledged_and_nothing_raised(machine: Machine) -> None:
    strange = replace(BY_EVPN, vpcs=(replace(BY_EVPN.vpcs[0], space=("nowhere",)),))
    machine.bgpd.heard = [THEIRS]
    enforced = machine.enforce(strange)
    assert (enforced.holds, reason(enforced)) == (False, "SpecUnreadable")
    assert machine.kernel.asked == [strange]


def test_no_reflector_and_a_route_that_is_refused_are_told_and_keep_nothing_from_being_acknowledged(
    machine: Machine,
) -> None:
    """Else whoever announces nonsense would hold up every other DPU of the VPC."""
    machine.bgpd.sessions_ = {"peers": {}}
    enforced = machine.enforce(BY_EVPN)
    assert (enforced.agrees, reason(enforced)) == (True, "NoReflector")
    machine.bgpd.sessions_ = ESTABLISHED
    machine.bgpd.heard = [EvpnRoute(BLUE, "10.9.0.5/32", TWO)]
    enforced = machine.enforce(BY_EVPN)
    assert (enforced.agrees, reason(enforced)) == (True, "RoutesRefused")
    assert enforced.exchanged is not None
    assert "OutsideVPC" in enforced.exchanged.message
    assert machine.remotes == {}


def test_what_the_api_server_had_told_stays_until_it_is_announced(machine: Machine) -> None:
    machine.enforce(BY_API_SERVER)
    for _ in range(2):
        machine.enforce(BY_EVPN)
        assert machine.remotes == {TWO: ("10.1.0.5/32",)}
        machine.now += AWAIT_SECONDS / 3
    machine.restart()
    machine.enforce(BY_EVPN)
    assert machine.remotes == {TWO: ("10.1.0.5/32",)}, "over a restart"
    machine.bgpd.heard = [THEIRS]
    machine.enforce(BY_EVPN)
    machine.bgpd.heard = [MORE]
    machine.enforce(BY_EVPN)
    assert machine.remotes == {TWO: ("10.1.0.7/32",)}, "announced, and then not any more"


def test_what_nobody_ever_announces_goes_in_the_end(machine: Machine) -> None:
    machine.enforce(BY_API_SERVER)
    machine.bgpd.heard = [MORE]
    machine.enforce(BY_EVPN)
    assert machine.remotes == {TWO: ("10.1.0.5/32", "10.1.0.7/32")}
    machine.now += AWAIT_SECONDS + 1
    machine.enforce(BY_EVPN)
    assert machine.remotes == {TWO: ("10.1.0.7/32",)}


def test_bgpd_announces_for_a_while_after_the_spec_does_not_speak_of_it_any_more(machine: Machine) -> None:
    machine.enforce(BY_EVPN)
    machine.enforce(BY_API_SERVER)
    assert machine.announced == ["10.1.0.3/32"]
    machine.now += LINGER_SECONDS
    assert machine.enforce(BY_API_SERVER).exchanged is None
    assert (machine.bgpd.configuration, list(machine.folder.iterdir())) == ({}, [])


def test_a_configuration_that_an_agent_before_has_left_is_taken_away(machine: Machine) -> None:
    machine.enforce(BY_EVPN)
    machine.restart()
    machine.enforce(BY_API_SERVER)
    machine.now += LINGER_SECONDS
    machine.bgpd.fault = BgpdFailed("refused")
    assert reason(machine.enforce(BY_API_SERVER)) == "BgpdFailed"
    machine.bgpd.fault = None
    machine.enforce(BY_API_SERVER)
    assert machine.bgpd.configuration == {}


def test_a_dpu_that_is_released_announces_nothing_at_once(machine: Machine) -> None:
    machine.enforce(BY_EVPN)
    machine.agent.release()
    assert (machine.bgpd.configuration, list(machine.folder.iterdir())) == ({}, [])


def test_what_is_held_is_read_as_it_was_written_and_of_anything_else_nothing(tmp_path: Path) -> None:
    path, kept = tmp_path / "below" / "held", HeldRoutes(frozenset({THEIRS}), frozenset({THEIRS}), 7.5)
    assert held_routes.read(path) == HeldRoutes()
    held_routes.write(path, kept)
    assert held_routes.read(path) == kept
    for strange in ("", "[]", "{", '{"held": [[1, "x", "y"]], "awaited": [], "until": 0}', '{"held": 7}', "[" * 99999):
        path.write_text(strange)
        assert held_routes.read(path) == HeldRoutes()


def test_news_of_bgpd_are_noticed_between_looks(machine: Machine) -> None:
    machine.enforce(BY_EVPN)
    changed, stop = threading.Event(), threading.Event()
    watching = threading.Thread(target=machine.agent.watch, args=(changed.set, stop))
    watching.start()
    try:
        assert not changed.wait(0.8), "nothing is new"
        machine.bgpd.heard = [THEIRS]
        assert changed.wait(180)
    finally:
        stop.set()
        watching.join()


def test_it_is_told_in_a_condition_of_its_own_and_only_where_routes_are_exchanged() -> None:
    dpu = Dpu()
    dpu.kernel.answer = replace(AGREES, exchanged=Exchanged(False, "NoReflector", "none answers"))
    dpu.sees(7)
    dpu.agent.look()
    assert [(each["type"], each["status"]) for each in dpu.status["conditions"]] == [
        ("Applied", "True"),
        ("RoutesExchanged", "False"),
    ]
    dpu.kernel.answer = AGREES
    dpu.agent.look()
    assert [each["type"] for each in dpu.status["conditions"]] == ["Applied"]


def test_what_does_not_pass_any_more_is_withdrawn_though_what_was_heard_cannot_be_kept(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.enforce(BY_EVPN)

    def full(path: Path, routes: HeldRoutes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("provisioner.network.agent.exchanging.write", full)
    machine.bgpd.heard = [THEIRS]
    machine.kernel.answer = replace(AGREES, ports=())
    enforced = machine.enforce(BY_EVPN)
    assert machine.announced == []
    assert (enforced.holds, reason(enforced)) == (False, "RoutesNotKept")


def test_a_release_that_left_routes_announced_says_so(machine: Machine) -> None:
    machine.enforce(BY_EVPN)
    machine.bgpd.fault = BgpdFailed("refused")
    released = machine.agent.release()
    assert (released.agrees, reason(released)) == (False, "BgpdFailed")
    assert machine.announced == ["10.1.0.3/32"]
    machine.bgpd.fault = None
    assert machine.agent.release().agrees
    assert machine.announced == []


def test_a_dpu_that_comes_back_after_such_a_release_is_told_of_news_and_lingers_as_ever(machine: Machine) -> None:
    machine.enforce(BY_EVPN)
    machine.bgpd.fault = BgpdFailed("refused")
    machine.agent.release()
    machine.bgpd.fault = None
    machine.enforce(BY_EVPN)
    changed, stop = threading.Event(), threading.Event()
    machine.bgpd.heard = [THEIRS]
    watching = threading.Thread(target=machine.agent.watch, args=(changed.set, stop))
    watching.start()
    try:
        assert changed.wait(180)
    finally:
        stop.set()
        watching.join()
    machine.now += 2 * LINGER_SECONDS
    machine.enforce(BY_EVPN)
    machine.enforce(BY_API_SERVER)
    assert machine.announced == ["10.1.0.3/32"]


def test_who_announces_something_else_all_the_time_does_not_have_every_other_dpu_write_all_the_time() -> None:
    dpu = Dpu()
    dpu.sees(7)
    for number in range(120):
        dpu.kernel.answer = replace(AGREES, exchanged=Exchanged(number % 3 == 0, "RoutesRefused", f"10.9.0.{number}"))
        dpu.agent.look()
        dpu.sees(7)
        dpu.now += ASK_SECONDS
    assert dpu.writes <= 1 + 120 * ASK_SECONDS / SAY_OF_ROUTES_SECONDS
    dpu.now += SAY_OF_ROUTES_SECONDS
    dpu.agent.look()
    assert dpu.status["conditions"][1]["message"] == "10.9.0.119", "the last word is told"
    dpu.kernel.answer = replace(AGREES, exchanged=Exchanged(True, "Exchanged", "all is well"))
    dpu.sees(8)
    dpu.agent.look()
    assert (dpu.status["observedGeneration"], dpu.status["conditions"][1]["reason"]) == (8, "Exchanged")


def test_what_does_not_pass_any_more_is_withdrawn_though_bgpd_has_heard_too_much_to_say_it_in_time(
    machine: Machine,
) -> None:
    """Else the DPU to which an address has moved is not believed, as long as somebody announces too much."""
    machine.bgpd.heard = [THEIRS]
    machine.enforce(BY_EVPN)
    machine.bgpd.is_flooded = True
    machine.kernel.answer = replace(AGREES, ports=())
    enforced = machine.enforce(BY_EVPN)
    assert machine.announced == []
    assert machine.remotes == {TWO: ("10.1.0.5/32",)}
    assert (enforced.holds, reason(enforced)) == (False, "BgpdFailed")
    before = machine.bgpd.applied
    machine.enforce(BY_EVPN)
    assert machine.bgpd.applied == before, "one that hangs is not waited for twice at every look"
