"""What a reflector's bgpd is told of a site, and what is said of that in the NetworkPool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from provisioner.api import DPUNetwork, NetworkPool
from provisioner.api.machinery.codec import decode, to_json
from provisioner.api.network.dpu_network import DPUNetworkSpec
from provisioner.cluster.resources import of
from provisioner.network.evpn.configuration import Configuration
from provisioner.network.evpn.reflector import ReflectorClient
from provisioner.network.evpn.vty import BgpdMissing
from provisioner.network.reflector.service import ReflectorHost, _once, client_of, wanted
from tests.api.objects import network_pool
from tests.cluster.fake_cluster import FakeCluster
from tests.maintenance.chaos.fake_informer import FakeInformer
from tests.network.agent.specs import BLUE, ONE, RED, TWO, port, spec, vpc

ADDRESS = "10.100.0.2"
BY_EVPN = {"type": "EVPN", "asn": 64512, "reflectors": [ADDRESS]}
OF_BLUE = spec([vpc(members=(TWO,))], [port("10.1.0.3")])


def network(name: str, of_it: DPUNetworkSpec) -> dict[str, Any]:
    body = {"apiVersion": "provisioner.dev/v1alpha1", "kind": "DPUNetwork", "metadata": {"name": name}}
    return body | {"spec": to_json(of_it)}


def pool(**changes: Any) -> NetworkPool:
    return decode(NetworkPool, network_pool(**changes))


def client(of_it: DPUNetworkSpec) -> ReflectorClient:
    return client_of(decode(DPUNetwork, network("d1", of_it)))


def words(configuration: Configuration) -> str:
    return str(sorted(configuration.items()))


def test_a_dpu_says_what_is_in_vpcs_of_which_a_port_passes_on_it_and_is_told_of_their_peers() -> None:
    peered = spec([vpc(peers=(RED,)), vpc(RED, peers=(BLUE,))], [port("10.1.0.3")])
    assert client(peered) == ReflectorClient(ONE, frozenset({BLUE}), frozenset({BLUE, RED}))
    isolated = spec([vpc()], [port("10.1.0.3", state="Quarantined")])
    assert client(isolated) == ReflectorClient(ONE, frozenset(), frozenset())
    unknown = spec([], [port("10.1.0.3")])
    assert client(unknown) == ReflectorClient(ONE, frozenset(), frozenset())


def test_it_serves_where_evpn_is_chosen_and_it_is_named_and_nowhere_else() -> None:
    networks = [decode(DPUNetwork, network("d1", OF_BLUE))]
    serves = wanted(ADDRESS, pool(routeDistribution=BY_EVPN), networks)
    assert (serves.idle, serves.clients) == (None, 1)
    assert f"neighbor {ONE} route-reflector-client" in words(serves.configuration)
    for idle, other in (
        ("NotChosen", pool()),
        ("NotChosen", pool(routeDistribution={**BY_EVPN, "type": "APIServer"})),
        ("NotChosen", None),
        ("NotNamed", pool(routeDistribution={**BY_EVPN, "reflectors": ["10.100.0.9"]})),
    ):
        found = wanted(ADDRESS, other, networks)
        assert (found.idle, found.configuration) == (idle, {})


def test_of_two_dpus_with_one_address_the_first_has_a_session_with_its_own_vpcs_only() -> None:
    networks = [
        decode(DPUNetwork, network(name, of_it))
        for name, of_it in (("d2", spec([vpc(RED)], [port("10.1.0.3", vni=RED)])), ("d1", OF_BLUE))
    ]
    found = wanted(ADDRESS, pool(routeDistribution=BY_EVPN), networks)
    assert (found.clients, found.twice) == (1, ("d2",))
    assert str(RED) not in words(found.configuration)


@dataclass
class FakeDaemon:
    configuration: Configuration = field(default_factory=dict)
    refreshed: int = 0
    is_there: bool = True

    def apply(self, wanted_: Configuration) -> int:
        if not self.is_there:
            raise BgpdMissing("no bgpd listens at bgpd.vty: start FRR's bgpd there")
        told, self.configuration = int(wanted_ != self.configuration), wanted_
        return told

    def refresh(self) -> None:
        self.refreshed += 1

    def sessions(self) -> Mapping[str, Any]:
        return {"peers": {ONE: {"state": "Established"}, TWO: {"state": "Active"}}}


class Site:
    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.daemon = FakeDaemon()
        self.host = ReflectorHost(ADDRESS, self.daemon)
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.cluster.apply(network_pool(routeDistribution=BY_EVPN), manager="tests")
        self.cluster.apply_status(NetworkPool, "default", {"takenVnis": 1}, manager="provisioner-network")
        self.cluster.apply(network("d1", OF_BLUE), manager="tests")

    def look(self) -> dict[str, Any]:
        """Returns: its condition in the pool's status."""
        sources = []
        for kind in (NetworkPool, DPUNetwork):
            informer = FakeInformer(of(kind), lambda kind=kind: self.cluster.stored(of(kind)))  # type: ignore[misc]
            informer.catch_up()
            sources.append(informer)
        _once(self.cluster, sources[0], sources[1], self.host, lambda: self.now)  # type: ignore[arg-type]
        status = self.cluster.get(of(NetworkPool), "default").get("status") or {}
        return next(iter(status.get("conditions") or ()), {})


def test_what_it_has_read_back_is_said_in_the_pools_status() -> None:
    site = Site()
    said = site.look()
    assert (said["type"], said["status"], said["reason"]) == (f"Reflector.{ADDRESS}", "True", "Serving")
    assert "a session to 1 of 1 DPUs" in said["message"]
    site.daemon.is_there = False
    assert (site.look()["status"], site.look()["reason"]) == ("False", "BgpdMissing")
    site.daemon.is_there = True
    site.cluster.patch(of(NetworkPool), "default", {"spec": {"routeDistribution": {"reflectors": ["10.100.0.9"]}}})
    assert site.look()["reason"] == "NotNamed"
    assert site.daemon.configuration == {}
    site.cluster.patch(of(NetworkPool), "default", {"spec": {"routeDistribution": {"type": "APIServer"}}})
    assert site.look() == {}


def test_what_the_one_before_it_may_have_left_undone_is_done_once() -> None:
    site = Site()
    for _ in range(3):
        site.look()
    assert site.daemon.refreshed == 1
