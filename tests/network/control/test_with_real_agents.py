"""From an attachment to a packet: real controllers, a real API server, and agents on the kernels of DPUs in namespaces.

Each agent follows its DPUNetwork with the certificate of its DPU's kubelet, and works in its DPU's network namespace.
"""

from __future__ import annotations

import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lab.control_plane.kubelet_files import join_as
from provisioner.api import VPC, DPUNetwork, Server, VPCAttachment
from provisioner.api.network.dpu_network import DPUNetworkSpec
from provisioner.cluster.resources import of
from provisioner.network.agent.boot.plane import ServedBoot
from provisioner.network.agent.dhcp.served import ServedPort
from provisioner.network.agent.enforce import Enforcer
from provisioner.network.agent.exchanging import ExchangingKernel
from provisioner.network.agent.follow import follow
from provisioner.network.agent.result import Enforced
from tests.inventory.site import eventually
from tests.network.agent.dhcp.clients import Client
from tests.network.agent.rack import DPU, Host, Rack
from tests.network.control.objects import attachment, group, rule, vpc
from tests.network.control.reflection import Reflection, reflection
from tests.network.control.site import Site
from tests.network.evpn.fabric import BOTH, ROUTES

if TYPE_CHECKING:
    from lab.control_plane.plane import ControlPlane
    from provisioner.cluster.client import Cluster

VTEPS = ("192.0.2.1", "192.0.2.2")
FUNCTIONS = ("pf0", "pf1")
LINGER_SECONDS = 15.0
"""Longer than the slower of two DPUs takes to change over on a busy machine; the product has 60 s."""
either = pytest.mark.parametrize("machines", BOTH, indirect=True)


@dataclass(frozen=True)
class InNamespace:
    """The kernel of a DPU, for an agent that reaches the API server from outside of it."""

    dpu: DPU
    enforcer: Enforcer

    def enforce(self, spec: DPUNetworkSpec) -> Enforced:
        return self.dpu.inside(lambda: self.enforcer.enforce(spec))

    def release(self) -> Enforced:
        return self.dpu.inside(self.enforcer.release)

    def isolate_unless_enforced(self) -> bool:
        return self.dpu.inside(self.enforcer.isolate_unless_enforced)

    def boot(self) -> ServedBoot | None:
        return None

    def served(self) -> tuple[ServedPort, ...]:
        return self.dpu.inside(self.enforcer.served)


class Machines:
    """Two machines of one tenant, a function of each lent to another; their agents, which can be stopped."""

    def __init__(
        self, site: Site, plane: ControlPlane, network: Rack, folder: Path, exchange: Reflection | None = None
    ) -> None:
        self.site, self.plane, self.folder, self.exchange = site, plane, folder, exchange
        self.blue, self.green = site.tenant("blue"), site.tenant("green")
        lent = {"functions": [{"name": "pf1", "tenant": self.green}]}
        self.names = [
            site.machine(number, self.blue, vtepAddress=vtep, **lent) for number, vtep in enumerate(VTEPS, start=1)
        ]
        self.dpus = [network.dpu(vtep, FUNCTIONS) for vtep in VTEPS]
        self._stops: dict[int, Callable[[], None]] = {}
        for number in range(len(self.dpus)):
            self.start_agent(number)

    def start_agent(self, number: int) -> None:
        name, dpu = f"{self.names[number]}-d", self.dpus[number]
        root = self.folder / name
        join_as(root, self.plane, name, name)
        stop = threading.Event()
        kernel = ExchangingKernel(
            InNamespace(dpu, dpu.another()), self.folder / f"bgpd-{number}", linger_seconds=LINGER_SECONDS
        )
        if self.exchange is not None:
            self.exchange.daemon(dpu, self.folder / f"bgpd-{number}")
        thread = threading.Thread(
            target=follow,
            args=(kernel, str(root), lambda _: None, stop),
            kwargs={"watch_routes": kernel.watch},
            daemon=True,
        )
        thread.start()

        def end() -> None:
            stop.set()
            thread.join(60)

        self._stops[number] = end

    def stop_agent(self, number: int) -> None:
        self._stops.pop(number)()

    def stop(self) -> None:
        ends = [threading.Thread(target=end) for end in self._stops.values()]
        for each in ends:
            each.start()
        for each in ends:
            each.join()
        self._stops.clear()

    def attach(self, tenant: str, number: int, function: str = "pf0", **changes: Any) -> tuple[str, ...]:
        """Attach, wait until it is enforced, and let the host take what it was given; returns its addresses."""
        site, name = self.site, f"{self.names[number][-1]}-{function}"
        site.add(attachment(tenant, name, f"{self.names[number]}-s", function=function, **changes))
        site.becomes(tenant, name, "True", "Enforced")
        status = site.attachment(tenant, name).status
        self.dpus[number].hosts[function].become(str(status.mac_address), *status.addresses)
        return status.addresses

    def reaches(self, number: int, function: str, target: str) -> None:
        """At once; where routes go by EVPN, once they have come: an attachment is enforced when its own DPU says so."""
        if self.exchange is not None:
            host = self.dpus[number].hosts[function]
            eventually(lambda: host.pings(target, patience_seconds=0.2), f"{function} reaches {target}")
        assert self.dpus[number].hosts[function].pings(target), (function, target)

    def detach(self, tenant: str, number: int, function: str = "pf0") -> None:
        name = f"{self.names[number][-1]}-{function}"
        self.site.cluster.delete(of(VPCAttachment), name, namespace=tenant)


@pytest.fixture(params=ROUTES)
def machines(
    request: pytest.FixtureRequest,
    site: Site,
    control_plane: ControlPlane,
    network: Rack,
    leadership: Callable[[], Callable[[], None]],
    tmp_path: Path,
) -> Iterator[Machines]:
    """EVPN: from the beginning; ChangesOver: all of it is there, and the API server is still what is chosen."""
    exchanges = request.param in ("EVPN", "ChangesOver")
    exchanging = reflection(site, control_plane, network, tmp_path) if exchanges else nullcontext()
    with exchanging as exchange:
        made = Machines(site, control_plane, network, tmp_path, exchange)
        try:
            for tenant in (made.blue, made.green):
                site.add(vpc(tenant, cidrs=["10.1.0.0/24", "fd00:1::/64"]))
            leadership()
            if exchange is not None and request.param == "EVPN":
                exchange.choose("EVPN")
            yield made
        finally:
            made.stop()


@either
def test_two_tenants_with_the_same_addresses_reach_their_own(machines: Machines, site: Site) -> None:
    own = {
        tenant: [
            machines.attach(tenant, number, function, addresses=[f"10.1.0.{3 + 2 * number}"]) for number in range(2)
        ]
        for tenant, function in ((machines.blue, "pf0"), (machines.green, "pf1"))
    }
    assert own[machines.blue][0][0] == own[machines.green][0][0] == "10.1.0.3"
    for tenant, function in ((machines.blue, "pf0"), (machines.green, "pf1")):
        for target in own[tenant][1]:
            machines.reaches(0, function, target)

    # Only the other tenant's second host is left: the same address, and no answer.
    machines.detach(machines.green, 1, "pf1")
    eventually(lambda: not machines.dpus[0].hosts["pf1"].pings("10.1.0.5", patience_seconds=0.2), "it is gone")
    assert machines.dpus[0].hosts["pf0"].pings("10.1.0.5")


def test_a_host_is_told_its_address_by_its_dpus_agent(machines: Machines, tmp_path: Path) -> None:
    (four, _) = machines.attach(machines.blue, 0)
    (peer, _) = machines.attach(machines.blue, 1)
    host = machines.dpus[0].hosts["pf0"]
    host.ip("-4", "addr", "flush", "dev", "eth0")
    assert not host.pings(peer, patience_seconds=0.2)
    client = Client("udhcpc", host, tmp_path)
    with client.running():
        assert client.await_event("bound").startswith(f"bound {four}/31 ")
    machines.reaches(0, "pf0", peer)


def test_a_change_of_the_wish_reaches_the_packets(machines: Machines, site: Site, cluster: Cluster) -> None:
    machines.attach(machines.blue, 0)
    (four, six) = machines.attach(machines.blue, 1)
    host = machines.dpus[0].hosts["pf0"]
    machines.reaches(0, "pf0", four)
    name = f"{machines.names[1][-1]}-pf0"

    site.add(group(machines.blue, "six", rule(cidrs=["fd00:1::/64"])))
    changed = attachment(machines.blue, name, f"{machines.names[1]}-s", securityGroupRefs=["six"])
    site.add(changed)
    eventually(lambda: not host.pings(four, patience_seconds=0.2), "the group holds")
    site.becomes(machines.blue, name, "True", "Enforced")
    machines.reaches(0, "pf0", six)

    changed["spec"]["quarantined"] = True
    site.add(changed)
    site.becomes(machines.blue, name, "False", "Quarantined")
    assert not host.pings(six, patience_seconds=0.2)
    assert site.attachment(machines.blue, name).status.addresses == (four, six)

    changed["spec"]["quarantined"] = False
    site.add(changed)
    site.becomes(machines.blue, name, "True", "Enforced")
    machines.reaches(0, "pf0", six)


def test_a_server_taken_from_its_tenant_is_isolated(machines: Machines, site: Site, cluster: Cluster) -> None:
    machines.attach(machines.blue, 0)
    (four, _) = machines.attach(machines.blue, 1)
    host = machines.dpus[0].hosts["pf0"]
    machines.reaches(0, "pf0", four)
    server = cluster.read(Server, f"{machines.names[1]}-s")
    cluster.patch(of(Server), server.name, {"spec": {"tenant": machines.green}})
    eventually(lambda: not host.pings(four, patience_seconds=0.2), "it is isolated")
    name = f"{machines.names[1][-1]}-pf0"
    eventually(lambda: site.ready(machines.blue, name)[0] == "False", "it is said")


def test_the_agent_keeps_what_it_knows_and_catches_up(machines: Machines, site: Site) -> None:
    machines.attach(machines.blue, 0)
    (four, _) = machines.attach(machines.blue, 1)
    host = machines.dpus[0].hosts["pf0"]
    machines.reaches(0, "pf0", four)
    machines.stop_agent(1)
    assert host.pings(four), "what is enforced stays"
    site.add(attachment(machines.green, "late", f"{machines.names[1]}-s", function="pf1"))
    site.becomes(machines.green, "late", "False", "WaitsForDPU")
    machines.start_agent(1)
    site.becomes(machines.green, "late", "True", "Enforced")
    assert host.pings(four)


def test_a_release_leaves_nothing_and_frees_every_value(machines: Machines, site: Site, cluster: Cluster) -> None:
    def kernel() -> list[str]:
        """What the first DPU has, but for counters of traffic."""
        dpu = machines.dpus[0]
        return [
            dpu.ip("-o", "link", "show", "type", "vxlan"),
            dpu.ip("-4", "route", "show", "table", "all"),
            *(line for line in dpu.output("bridge", "fdb", "show").splitlines() if " dst " in line),
            dpu.ip("neigh", "show", "nud", "permanent"),
        ]

    def is_acknowledged() -> bool:
        body = cluster.find(of(DPUNetwork), f"{machines.names[0]}-d") or {}
        return bool(body and body.get("status", {}).get("observedGeneration") == body["metadata"]["generation"])

    eventually(is_acknowledged, "nothing is attached, and that is enforced")
    before = kernel()
    machines.attach(machines.blue, 0)
    machines.attach(machines.blue, 1)
    assert machines.dpus[0].domains() != [], "there is something to release"
    for number in range(2):
        machines.detach(machines.blue, number)
    cluster.delete(of(VPC), "main", namespace=machines.blue)
    eventually(lambda: not any("10.1.0" in each or "port." in each for each in site.claims()), "all values are free")
    eventually(lambda: len(site.claims()) == 1, "the other tenant's VNI is left")
    assert kernel() == before
    assert machines.dpus[0].domains() == []


def test_a_dpu_that_is_deleted_is_released_by_its_agent(machines: Machines, site: Site, cluster: Cluster) -> None:
    """The right to read its DPUNetwork goes with it: the agent cannot ask whether it is gone."""
    machines.attach(machines.blue, 0)
    assert machines.dpus[0].domains() != []
    cluster.delete(of(Server), f"{machines.names[0]}-d")
    eventually(lambda: machines.dpus[0].domains() == [], "nothing of a tenant is left")
    eventually(lambda: "chain" not in machines.dpus[0].output("nft", "list", "ruleset"), "no rule is left")


@contextmanager
def packets(host: Host, target: str) -> Iterator[Callable[[], int]]:
    """Sent all the while, 20 a second; gives a function that ends it, and says how many were not answered."""
    sending = subprocess.Popen(host.command("ping", "-n", "-i", "0.05", target), stdout=subprocess.PIPE, text=True)

    def end() -> int:
        sending.send_signal(signal.SIGINT)
        said, _ = sending.communicate(timeout=180)
        sent, received = re.search(r"(\d+) packets transmitted, (\d+) received", said).groups()  # type: ignore[union-attr]
        assert int(sent) > 20
        return int(sent) - int(received)

    try:
        yield end
    finally:
        sending.kill()


def exchanged(machines: Machines, number: int) -> tuple[str, str]:
    """Status and reason, once the DPU has confirmed what it is told now."""
    body = machines.site.network(machines.names[number]) or {}
    status = body.get("status") or {}
    if status.get("observedGeneration") != body["metadata"]["generation"]:
        return ("", "")
    found = [each for each in status["conditions"] if each["type"] == "RoutesExchanged"]
    return (found[0]["status"], found[0]["reason"]) if found else ("", "None")


@pytest.mark.parametrize("machines", ["ChangesOver"], indirect=True)
def test_routes_change_over_to_evpn_and_back_while_packets_flow(machines: Machines, site: Site) -> None:
    machines.attach(machines.blue, 0)
    (target, _) = machines.attach(machines.blue, 1)
    exchange = machines.exchange
    assert exchange is not None
    machines.reaches(0, "pf0", target)
    with packets(machines.dpus[0].hosts["pf0"], target) as unanswered:
        exchange.choose("EVPN")
        for number in range(2):
            eventually(lambda n=number: exchanged(machines, n) == ("True", "Exchanged"), "routes are exchanged")
            assert "remotes" not in str(site.network(machines.names[number]))
        machines.attach(machines.green, 0, "pf1")
        (new, _) = machines.attach(machines.green, 1, "pf1")
        machines.reaches(0, "pf1", new)
        exchange.choose("APIServer")
        for number in range(2):
            eventually(lambda n=number: exchanged(machines, n) == ("", "None"), "routes are told again")
            assert "remotes" in str(site.network(machines.names[number]))
        for daemon in (exchange.reflector, *exchange.daemons.values()):
            eventually(lambda d=daemon: d.bgpd.running() == {}, "bgpd announces nothing any more")
        machines.reaches(0, "pf1", new)
        assert unanswered() <= 1, "the last may be on its way"
