"""DPUs in network namespaces whose routes go by FRR's bgpd, with a route reflector on the underlay; for one test."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from provisioner.api.network.dpu_network import DPUNetworkSpec
from provisioner.network.agent.result import Enforced
from provisioner.network.evpn.bgpd import Bgpd
from provisioner.network.evpn.configuration import Configuration
from provisioner.network.evpn.exchange import Exchange
from provisioner.network.evpn.learn import Learned
from provisioner.network.evpn.reflector import ReflectorClient, reflector
from provisioner.network.evpn.speaker import Fabric
from provisioner.network.evpn.vty import BgpdFailed
from tests.network.agent.rack import DPU, Namespace, Rack
from tests.network.agent.specs import BLUE, RED, in_spaces
from tests.network.evpn import deaf_speaker
from tests.network.evpn.start import PROGRAM, command
from tests.tools import installed

REFLECTOR = "192.0.2.250"
FABRIC = Fabric(asn=64512, reflectors=(REFLECTOR,))
WITHIN = dict.fromkeys((BLUE, RED), ("10.0.0.0/8", "172.16.0.0/12", "fd00:1::/64"))
PATIENCE_SECONDS = 180.0
BOTH = ("APIServer", "EVPN")
ROUTES = BOTH if os.environ.get("ROUTES") == "both" else BOTH[:1]
"""By what routes are distributed in tests of the whole; with ROUTES=both, as in `make soak`, by either."""


class Daemon:
    """bgpd in a namespace, with nothing configured at first."""

    def __init__(self, namespace: Namespace, directory: Path, *, listens: bool = False) -> None:
        self._namespace, self.directory, self._listens = namespace, directory, listens
        directory.mkdir()
        self.bgpd = Bgpd(directory)
        self.start()

    def start(self, configured: str = "") -> None:
        (self.directory / "bgpd.conf").write_text(configured)
        run = self._namespace.command(*command(self.directory, listens=self._listens), "-S", "-u", "root", "-g", "root")
        with (self.directory / "errors").open("a") as errors:
            self.process = subprocess.Popen(run, stdin=subprocess.DEVNULL, stderr=errors)
        try:
            wait_until(self._answers, "bgpd answers")
        except BaseException:
            self.stop()
            raise

    def _answers(self) -> bool:
        try:
            self.bgpd.running()
        except BgpdFailed:
            return False
        return True

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)


class Member:
    """A DPU with its agent and its bgpd; `spec` is what it was told: with members, without remotes."""

    def __init__(self, dpu: DPU, directory: Path) -> None:
        self.dpu = dpu
        self.daemon = Daemon(dpu, directory)
        self.exchange = Exchange(self.daemon.bgpd, FABRIC)
        self.is_stolen = False
        self.spec: DPUNetworkSpec = DPUNetworkSpec(vtep_address=dpu.vtep)

    def look(self) -> tuple[Learned, Enforced]:
        """What an agent does at each look."""
        learned = self.exchange.hear(in_spaces(self.spec, WITHIN))
        enforced = self.dpu.enforce(learned.spec)
        passing = [port.function for port in enforced.ports if port.state == "Tenant"]
        self.exchange.announce(learned.spec, passing)
        return learned, enforced

    def knows(self, vni: int) -> dict[str, str]:
        """Remote prefixes of a VPC that its kernel routes, by prefix the DPU that they lead to."""
        said = self.dpu.in_domain(vni, "ip", "-4", "route", "show", "dev", f"vx{vni}")
        words = (line.split() for line in said.splitlines())
        return {each[0]: each[each.index("via") + 1] for each in words if "via" in each}

    def announce_instead(self, wanted: Configuration) -> None:
        """What a DPU says whose root is an attacker's, and whose agent does nothing any more."""
        self.is_stolen = True
        self.daemon.bgpd.apply(wanted)


class EvpnFabric:
    def __init__(self, rack: Rack, directory: Path) -> None:
        self._rack, self._directory = rack, directory
        self.members: dict[str, Member] = {}
        self.place = rack.namespace("rr")
        rack.on_underlay(self.place, "uplink", REFLECTOR)
        self.reflector = Daemon(self.place, directory / "reflector", listens=True)

    def member(self, vtep: str, functions: Iterable[str] = ("pf0",)) -> Member:
        made = Member(self._rack.dpu(vtep, tuple(functions)), self._directory / vtep)
        self.members[vtep] = made
        return made

    def thief(self, vtep: str, vni: int, prefix: str) -> subprocess.Popen[bytes]:
        """Somebody's own program that speaks as this DPU, which the reflector lets, and never listens."""
        place = self._rack.namespace("thief")
        self._rack.on_underlay(place, "uplink", vtep)
        said = (REFLECTOR, vtep, str(FABRIC.asn), str(vni), prefix)
        made = subprocess.Popen(place.command(sys.executable, deaf_speaker.__file__, *said), stdin=subprocess.PIPE)

        def is_established() -> bool:
            peers = self.reflector.bgpd.sessions().get("peers", {})
            return bool(peers.get(vtep, {}).get("state") == "Established")

        try:
            wait_until(is_established, "the reflector has the thief's session")
        except BaseException:
            made.kill()
            raise
        assert made.stdin is not None
        with made.stdin as told:
            told.write(b"\n")
        return made

    def tell_reflector(self, clients: Mapping[str, Iterable[int]]) -> None:
        """By DPU the VPCs that it has."""
        told = (ReflectorClient(vtep, frozenset(vnis), frozenset(vnis)) for vtep, vnis in clients.items())
        self.reflector.bgpd.apply(reflector(REFLECTOR, FABRIC, told))

    def come_to(self, told: Mapping[str, DPUNetworkSpec]) -> None:
        """By DPU what it enforces in the end, as the API server would have told it; of remotes it is told none."""
        for vtep, spec in told.items():
            bare = tuple(replace(vpc, remotes=()) for vpc in spec.vpcs)
            self.members[vtep].spec = replace(spec, vpcs=bare)
        self.tell_reflector({vtep: {port.vni for port in spec.ports} for vtep, spec in told.items()})

        def have_come() -> bool:
            looks = {vtep: self.members[vtep].look() for vtep in told}
            return all(
                learned.spec == in_spaces(told[vtep], WITHIN) and done.agrees for vtep, (learned, done) in looks.items()
            )

        wait_until(have_come, "all routes have come")

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """All agents that are left look, again and again, until `holds`."""

        def tried() -> bool:
            for member in self.members.values():
                if not member.is_stolen:
                    member.look()
            return holds()

        wait_until(tried, what)

    def stop(self) -> None:
        for daemon in (self.reflector, *(member.daemon for member in self.members.values())):
            daemon.stop()


@contextmanager
def evpn_fabric(rack: Rack, directory: Path) -> Iterator[EvpnFabric]:
    for program in (PROGRAM,):
        installed(program)
    made = EvpnFabric(rack, directory)
    try:
        yield made
    finally:
        made.stop()


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"not within {PATIENCE_SECONDS:g} s: {what}"
        time.sleep(0.1)
