"""What one DPU is told where routes go by EVPN; and that it comes to enforce the same as by the API server."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from provisioner.api import DPUNetwork, NetworkPool, VPCAttachment
from provisioner.api.machinery.codec import to_json
from provisioner.api.network.dpu_network import DPUEvpn, DPUNetworkSpec
from provisioner.cluster.resources import of
from provisioner.network.control.compile.compile import compile_network, to_object
from provisioner.network.control.compile.view import VPCView
from provisioner.network.evpn.learn import EvpnRoute, HeardRoutes, learn, told_before
from provisioner.network.evpn.speaker import own_routes
from tests.network.control import objects
from tests.network.control.test_compile import endpoint, view
from tests.network.control.world import World

EVPN = DPUEvpn(asn=64512, reflectors=("10.255.0.250",))
BY_EVPN = {"type": "EVPN", "asn": 64512, "reflectors": ["10.255.0.250"]}


def by_api_server(dpu: int, views: list[VPCView]) -> DPUNetworkSpec:
    return compile_network(f"d{dpu}", f"10.255.0.{dpu}", {each.key: each for each in views})


def by_evpn(dpu: int, views: list[VPCView]) -> DPUNetworkSpec:
    return compile_network(f"d{dpu}", f"10.255.0.{dpu}", {each.key: each for each in views}, evpn=EVPN)


def announced(dpus: list[int], views: list[VPCView]) -> frozenset[EvpnRoute]:
    """What all DPUs announce, each of what passes on it."""
    specs = (by_evpn(dpu, views) for dpu in dpus)
    return frozenset(
        EvpnRoute(each.vni, each.prefix, spec.vtep_address)
        for spec in specs
        for each in own_routes(spec, [port.function for port in spec.ports])
    )


def enforced(spec: DPUNetworkSpec) -> Any:
    """As it is enforced: without what the exchange alone is told."""
    said: Any = to_json(spec)
    said.pop("evpn", None)
    for each in said.get("vpcs", ()):
        each.pop("space", None)
    return said


def test_nothing_of_other_dpus_but_who_they_are_is_told() -> None:
    a = view("t/a", 1, endpoint(1, "10.1.0.3"), endpoint(2, "10.1.0.7"), routes=("192.168.7.0/24",))
    assert to_object(by_evpn(1, [a])) == {
        "vtepAddress": "10.255.0.1",
        "vpcs": [
            {
                "vni": 1,
                "vpc": "t/a",
                "mtuBytes": 1450,
                "members": ["10.255.0.2"],
                "space": ["10.1.0.0/16", "192.168.7.0/24"],
            }
        ],
        "ports": to_json(by_api_server(1, [a]))["ports"],
        "evpn": {"asn": 64512, "reflectors": ["10.255.0.250"]},
    }


hosts = st.lists(
    st.tuples(st.integers(1, 3), st.integers(1, 3), st.sampled_from(["Tenant", "Isolated"]), st.booleans()),
    max_size=8,
)
pairs = st.sets(st.sampled_from([(1, 2), (2, 3), (1, 3)]))


@given(hosts, pairs)
def test_what_is_heard_makes_of_it_what_the_api_server_would_have_told(
    found: list[tuple[int, int, str, bool]], peered: set[tuple[int, int]]
) -> None:
    views = []
    for vni in (1, 2, 3):
        peers = tuple(f"t/{other}" for other in (1, 2, 3) if {(vni, other), (other, vni)} & peered)
        here = [
            endpoint(
                dpu,
                f"10.{vni}.0.{3 + 2 * number}",
                function=f"pf{number}",
                state=state,
                prefixes=(f"172.{16 + vni}.{number}.0/24",) if routed else (),
            )
            for number, (of, dpu, state, routed) in enumerate(found)
            if of == vni
        ]
        views.append(view(f"t/{vni}", vni, *here, peers=peers, routes=(f"172.{16 + vni}.0.0/16",)))
    dpus = [1, 2, 3]
    everything = announced(dpus, views)
    for dpu in dpus:
        told, wanted = by_evpn(dpu, views), by_api_server(dpu, views)
        mine = HeardRoutes(frozenset(each for each in everything if each.vtep != told.vtep_address), 0, is_settled=True)
        assert enforced(learn(told, mine, ()).spec) == enforced(wanted)
        # On the way there, before anybody announces: all of it stays, by what was told before.
        before = told_before(wanted, told)
        nothing = HeardRoutes(frozenset(), 0, is_settled=True)
        assert enforced(learn(told, nothing, before, before).spec) == enforced(wanted)


def two_tenants_machines(distribution: dict[str, Any] | None) -> World:
    world = World()
    pool = objects.pool()
    if distribution is not None:
        pool["spec"]["routeDistribution"] = distribution
    world.namespace("blue")
    world.add(pool, objects.vpc("blue", routes=[]))
    for number in (1, 2, 3):
        world.machine(number, "blue", functions=[{"name": "pf1", "tenant": "blue"}])
        world.add(objects.attachment("blue", f"a{number}", f"s{number}"))
    world.settle()
    return world


def changed_by_one_more(world: World) -> set[str]:
    """The DPUs whose DPUNetwork is another one once a further function of the first machine is attached."""
    before = {dpu: world.network(dpu)["metadata"]["generation"] for dpu in ("d1", "d2", "d3")}
    world.add(objects.attachment("blue", "more", "s1", function="pf1"))
    world.settle()
    assert world.ready("blue", "more") == ("True", "Enforced")
    return {dpu for dpu, generation in before.items() if world.network(dpu)["metadata"]["generation"] != generation}


def test_one_more_attachment_behind_a_dpu_that_is_in_the_vpc_changes_one_object_only() -> None:
    assert changed_by_one_more(two_tenants_machines(BY_EVPN)) == {"d1"}
    assert changed_by_one_more(two_tenants_machines(None)) == {"d1", "d2", "d3"}


def test_the_pools_field_switches_every_dpu_there_and_back() -> None:
    world = two_tenants_machines(None)
    before = {dpu: world.spec(dpu) for dpu in ("d1", "d2", "d3")}
    assert all("evpn" not in each and each["vpcs"][0]["remotes"] for each in before.values())
    world.change(NetworkPool, "default", routeDistribution=BY_EVPN)
    world.settle()
    for dpu, spec in before.items():
        told = world.spec(dpu)
        assert told["evpn"] == {"asn": 64512, "reflectors": ["10.255.0.250"]}
        assert "remotes" not in told["vpcs"][0]
        assert told["vpcs"][0]["members"] == spec["vpcs"][0]["members"]
    world.change(NetworkPool, "default", routeDistribution={"type": "APIServer"})
    world.settle()
    assert {dpu: world.spec(dpu) for dpu in before} == before
    assert len(world.admin.stored(of(DPUNetwork))) == 3
    assert len(world.admin.stored(of(VPCAttachment))) == 3
