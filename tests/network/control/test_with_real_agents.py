"""From an attachment to a packet: real controllers, a real API server, and agents on the kernels of DPUs in namespaces.

Each agent follows its DPUNetwork with the certificate of its DPU's kubelet, and works in its DPU's network namespace.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from provisioner.api import VPC, DPUNetwork, Server, VPCAttachment
from provisioner.api.dpu_network import DPUNetworkSpec
from provisioner.cluster.resources import of
from provisioner.lab.control_plane.kubelet_files import join_as
from provisioner.network.agent.boot.plane import ServedBoot
from provisioner.network.agent.dhcp.served import ServedPort
from provisioner.network.agent.enforce import Enforcer
from provisioner.network.agent.follow import follow
from provisioner.network.agent.result import Enforced
from tests.inventory.site import eventually
from tests.network.agent.dhcp.clients import Client
from tests.network.agent.rack import DPU, Rack
from tests.network.control.objects import attachment, group, rule, vpc
from tests.network.control.site import Site

if TYPE_CHECKING:
    from provisioner.cluster.client import Cluster
    from provisioner.lab.control_plane.plane import ControlPlane

VTEPS = ("192.0.2.1", "192.0.2.2")
FUNCTIONS = ("pf0", "pf1")


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

    def __init__(self, site: Site, plane: ControlPlane, network: Rack, folder: Path) -> None:
        self.site, self.plane, self.folder = site, plane, folder
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
        kernel = InNamespace(dpu, dpu.another())
        thread = threading.Thread(target=follow, args=(kernel, str(root), lambda _: None, stop), daemon=True)
        thread.start()

        def end() -> None:
            stop.set()
            thread.join(60)

        self._stops[number] = end

    def stop_agent(self, number: int) -> None:
        self._stops.pop(number)()

    def stop(self) -> None:
        for number in list(self._stops):
            self.stop_agent(number)

    def attach(self, tenant: str, number: int, function: str = "pf0", **changes: Any) -> tuple[str, ...]:
        """Attach, wait until it is enforced, and let the host take what it was given; returns its addresses."""
        site, name = self.site, f"{self.names[number][-1]}-{function}"
        site.add(attachment(tenant, name, f"{self.names[number]}-s", function=function, **changes))
        site.becomes(tenant, name, "True", "Enforced")
        status = site.attachment(tenant, name).status
        self.dpus[number].hosts[function].become(str(status.mac_address), *status.addresses)
        return status.addresses

    def detach(self, tenant: str, number: int, function: str = "pf0") -> None:
        name = f"{self.names[number][-1]}-{function}"
        self.site.cluster.delete(of(VPCAttachment), name, namespace=tenant)


@pytest.fixture
def machines(
    site: Site,
    control_plane: ControlPlane,
    network: Rack,
    leadership: Callable[[], Callable[[], None]],
    tmp_path: Path,
) -> Iterator[Machines]:
    made = Machines(site, control_plane, network, tmp_path)
    try:
        for tenant in (made.blue, made.green):
            site.add(vpc(tenant, cidrs=["10.1.0.0/24", "fd00:1::/64"]))
        leadership()
        yield made
    finally:
        made.stop()


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
            assert machines.dpus[0].hosts[function].pings(target), (function, target)

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
    assert host.pings(peer)


def test_a_change_of_the_wish_reaches_the_packets(machines: Machines, site: Site, cluster: Cluster) -> None:
    machines.attach(machines.blue, 0)
    (four, six) = machines.attach(machines.blue, 1)
    host = machines.dpus[0].hosts["pf0"]
    assert host.pings(four)
    name = f"{machines.names[1][-1]}-pf0"

    site.add(group(machines.blue, "six", rule(cidrs=["fd00:1::/64"])))
    changed = attachment(machines.blue, name, f"{machines.names[1]}-s", securityGroupRefs=["six"])
    site.add(changed)
    eventually(lambda: not host.pings(four, patience_seconds=0.2), "the group holds")
    site.becomes(machines.blue, name, "True", "Enforced")
    assert host.pings(six)

    changed["spec"]["quarantined"] = True
    site.add(changed)
    site.becomes(machines.blue, name, "False", "Quarantined")
    assert not host.pings(six, patience_seconds=0.2)
    assert site.attachment(machines.blue, name).status.addresses == (four, six)

    changed["spec"]["quarantined"] = False
    site.add(changed)
    site.becomes(machines.blue, name, "True", "Enforced")
    assert host.pings(six)


def test_a_server_taken_from_its_tenant_is_isolated(machines: Machines, site: Site, cluster: Cluster) -> None:
    machines.attach(machines.blue, 0)
    (four, _) = machines.attach(machines.blue, 1)
    host = machines.dpus[0].hosts["pf0"]
    assert host.pings(four)
    server = cluster.read(Server, f"{machines.names[1]}-s")
    cluster.patch(of(Server), server.name, {"spec": {"tenant": machines.green}})
    eventually(lambda: not host.pings(four, patience_seconds=0.2), "it is isolated")
    name = f"{machines.names[1][-1]}-pf0"
    eventually(lambda: site.ready(machines.blue, name)[0] == "False", "it is said")


def test_the_agent_keeps_what_it_knows_and_catches_up(machines: Machines, site: Site) -> None:
    machines.attach(machines.blue, 0)
    (four, _) = machines.attach(machines.blue, 1)
    host = machines.dpus[0].hosts["pf0"]
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
