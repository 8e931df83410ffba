"""bgpd is told what is missing; what fails in the middle of that is made up for."""

from __future__ import annotations

from pathlib import Path

import pytest

from provisioner.network.evpn.bgpd import Bgpd
from provisioner.network.evpn.configuration import Configuration
from provisioner.network.evpn.reflector import ReflectorClient, reflector
from provisioner.network.evpn.speaker import Fabric
from provisioner.network.evpn.vty import BgpdFailed
from tests.network.agent.specs import BLUE, ONE, RED, TWO
from tests.network.evpn.start import render

FABRIC = Fabric(asn=64512, reflectors=("192.0.2.250",))
NOBODY: frozenset[int] = frozenset()


def clients(of_two: frozenset[int]) -> Configuration:
    both = ReflectorClient(ONE, frozenset({BLUE}), frozenset({BLUE})), ReflectorClient(TWO, of_two, of_two)
    return reflector("192.0.2.250", FABRIC, both)


class Played(Bgpd):
    """Runs with what it was told last, whole. What begins with `refuses` is not answered, once; `passes` of them are,
    before that."""

    def __init__(self) -> None:
        super().__init__(Path("nowhere"))
        self.runs: Configuration = {}
        self.wanted: Configuration = {}
        self.refuses: str | None = None
        self.passes = 0
        self.cleared: list[str] = []

    def apply(self, wanted: Configuration) -> int:
        self.wanted = wanted
        return super().apply(wanted)

    def _ask(self, *words: str) -> str:
        is_refused = self.refuses is not None and words[0].startswith(self.refuses)
        if is_refused and self.passes:
            is_refused, self.passes = False, self.passes - 1
        elif is_refused:
            self.refuses = None
        if words[0] == "configure terminal":
            self.runs = self.wanted  # also where its answer is lost
        if is_refused:
            raise BgpdFailed("not in time")
        if words[0].startswith("clear "):
            self.cleared.append(words[0].split()[4])
        return _printed(self.runs) if words[0] == "show running-config" else ""


def _printed(configuration: Configuration) -> str:
    found = []
    for section, lines in configuration.items():
        found += [" " * depth + line for depth, line in enumerate(section)]
        found += [" " * len(section) + line for line in lines]
    return "\n".join(found)


@pytest.mark.parametrize("refused", ["configure terminal", "show running-config", "clear bgp l2vpn evpn"])
def test_routes_pass_what_has_changed_though_bgpd_was_too_slow_to_be_told_so_at_once(refused: str) -> None:
    """Else a DPU that has lost a VPC keeps what it was told of it, and what it had announced stays with others."""
    bgpd = Played()
    bgpd.apply(clients(frozenset({BLUE, RED})))
    bgpd.cleared.clear()
    bgpd.refuses, bgpd.passes = refused, int(refused == "show running-config")
    with pytest.raises(BgpdFailed):
        bgpd.apply(clients(NOBODY))
    assert bgpd.cleared == []
    bgpd.apply(clients(NOBODY))
    assert bgpd.cleared == [TWO]


def test_a_neighbour_that_has_gone_is_not_asked_for_its_routes() -> None:
    bgpd = Played()
    bgpd.apply(clients(frozenset({BLUE, RED})))
    bgpd.refuses = "clear"
    with pytest.raises(BgpdFailed):
        bgpd.apply(clients(NOBODY))
    bgpd.cleared.clear()
    bgpd.apply(reflector("192.0.2.250", FABRIC, ()))
    assert bgpd.cleared == []


def test_what_has_passed_does_not_pass_again() -> None:
    bgpd = Played()
    bgpd.apply(clients(NOBODY))
    bgpd.cleared.clear()
    bgpd.apply(clients(NOBODY))
    assert bgpd.cleared == []
    assert render(bgpd.runs) == render(clients(NOBODY))
