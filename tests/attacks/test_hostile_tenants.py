"""What a tenant tries with the objects that are its own, on an API server in memory; each beside what it may."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

import pytest

from provisioner.api import VPC, Server, VPCAttachment
from provisioner.api.machinery.codec import decode, encode
from provisioner.cluster.resources import of
from provisioner.network.control import turns
from provisioner.network.control.compile import room
from tests.network.control.objects import attachment, pool, tenants_server, vpc
from tests.network.control.world import World

pytestmark = pytest.mark.slow


@pytest.fixture
def world() -> World:
    """Two tenants, two machines of the one and one of the other, each with an attachment."""
    made = World()
    made.namespace("blue", "red")
    made.add(pool(), vpc("blue"), vpc("red", cidrs=["10.2.0.0/24"]))
    for number, tenant in ((1, "blue"), (2, "blue"), (3, "red")):
        made.machine(number, tenant)
        made.add(attachment(tenant, f"a{number}", f"s{number}"))
    made.settle()
    return made


def state(world: World, dpu: str) -> list[str]:
    return [each["state"] for each in world.spec(dpu).get("ports", ())]


# Quarantine


def test_a_tenant_does_not_lift_a_quarantine_that_the_administrators_have_set_on_its_server(world: World) -> None:
    addresses = world.attachment("blue", "a1").status.addresses
    world.change(Server, "s1", networkQuarantined=True)
    world.settle()
    assert state(world, "d1") == ["Quarantined"]
    assert world.spec("d2")["vpcs"][0].get("remotes") is None, "nobody sends there any more"
    assert world.ready("blue", "a1") == ("False", "Quarantined")
    assert "administrators" in world.message("blue", "a1")
    assert world.attachment("blue", "a1").status.addresses == addresses

    world.change(VPCAttachment, "a1", "blue", quarantined=False)
    world.remove(VPCAttachment, "a1", "blue")
    world.settle()
    world.add(vpc("blue", "other"), attachment("blue", "again", "s1", vpcRef="other"))
    world.add(attachment("blue", "vf", "s1", function="pf0vf1"))
    world.settle()
    assert state(world, "d1") == ["Quarantined", "Quarantined"]

    world.change(Server, "s1", networkQuarantined=False)
    world.settle()
    assert state(world, "d1") == ["Tenant", "Tenant"]


def test_a_tenant_lifts_a_quarantine_of_its_own(world: World) -> None:
    """The honest twin of the one above."""
    world.change(VPCAttachment, "a1", "blue", quarantined=True)
    world.settle()
    assert state(world, "d1") == ["Quarantined"]
    assert "spec.quarantined" in world.message("blue", "a1")
    world.change(VPCAttachment, "a1", "blue", quarantined=False)
    world.settle()
    assert state(world, "d1") == ["Tenant"]


def test_who_registers_a_server_once_more_does_not_lift_its_quarantine(world: World) -> None:
    """A packing list says nothing of it, and what is applied without it takes nobody's word away."""
    world.change(Server, "s1", networkQuarantined=True)
    listed = decode(Server, tenants_server("s1", "blue", 1))
    world.admin.apply(encode(listed), manager="provisioner-register", force=True)
    world.settle()
    assert state(world, "d1") == ["Quarantined"]


def test_a_quarantine_of_a_function_holds_for_its_tenant_and_for_no_other(world: World) -> None:
    functions = [{"name": "pf0vf1", "tenant": "red", "quarantined": True}]
    world.change(Server, "d1", dpu={"functions": functions})
    world.add(attachment("red", "vf", "s1", function="pf0vf1"))
    world.settle()
    assert state(world, "d1") == ["Tenant", "Quarantined"]
    world.change(Server, "s1", networkQuarantined=True)
    world.settle()
    assert state(world, "d1") == ["Quarantined", "Quarantined"], "that of a server holds for all of its functions"


def test_a_server_that_the_administrators_reject_is_isolated_whoever_has_it(world: World) -> None:
    world.change(Server, "s1", acceptance="Rejected")
    world.settle()
    assert state(world, "d1") == []
    assert world.ready("blue", "a1") == ("False", "ServerRejected")
    world.change(Server, "s1", acceptance="Accepted")
    world.settle()
    assert state(world, "d1") == ["Tenant"]


# What a tenant leaves behind


def test_a_tenant_keeps_no_port_of_a_server_that_was_taken_from_it(world: World) -> None:
    """A finalizer keeps its attachment there as long as it likes; it is being deleted all the same, for good."""
    body = attachment("blue", "a1", "s1")
    body["metadata"]["finalizers"] = ["blue.example/never"]
    world.add(body)
    world.remove(VPCAttachment, "a1", "blue")
    world.settle()
    assert world.admin.get(of(VPCAttachment), "a1", namespace="blue")["metadata"]["deletionTimestamp"]
    assert state(world, "d1") == []
    world.change(Server, "s1", tenant="red")
    world.add(attachment("red", "mine", "s1"))
    world.settle()
    assert world.ready("red", "mine") == ("True", "Enforced")


def test_a_vpc_that_a_tenant_never_lets_go_of_keeps_no_identifier(world: World) -> None:
    body = vpc("blue")
    body["metadata"]["finalizers"] = ["blue.example/never"]
    world.add(body)
    vni = world.vpc("blue").status.vni
    for name in ("a1", "a2"):
        world.remove(VPCAttachment, name, "blue")
    world.remove(VPC, "main", "blue")
    world.settle(40)
    assert f"vni-{vni}" not in world.claims()


# A peer


@pytest.fixture
def peers(world: World) -> World:
    """Blue's VPC is a peer of red's, and red has a host on a DPU of blue's, too: a function of the card is its own."""
    world.change(Server, "d1", dpu={"functions": [{"name": "pf0vf1", "tenant": "red"}]})
    world.add(attachment("red", "vf", "s1", function="pf0vf1", addresses=["10.2.0.9"]))
    world.change(VPC, "main", "blue", peers=[{"namespace": "red", "name": "main"}])
    world.change(VPC, "main", "red", peers=[{"namespace": "blue", "name": "main"}])
    world.settle()
    assert world.vpc_ready("blue") == world.vpc_ready("red") == ("True", "Allocated")
    return world


def domain(world: World, dpu: str, vpc_key: str) -> dict[str, object]:
    (found,) = [each for each in world.spec(dpu)["vpcs"] if each["vpc"] == vpc_key]
    return found  # type: ignore[no-any-return]


def test_what_lies_behind_a_peers_host_is_reached(peers: World) -> None:
    """The honest twin of those below."""
    peers.change(VPC, "main", "red", routes=[{"destination": "192.168.7.0/24", "nextHop": "10.2.0.9"}])
    peers.settle()
    assert peers.vpc_ready("red") == ("True", "Allocated")
    assert "192.168.7.0/24" in str(domain(peers, "d2", "blue/main")["remotes"])


@pytest.mark.parametrize("taken", ["a host's", "half of its cidr", "more than its cidr", "the default route"])
def test_a_peer_takes_no_address_of_ours_by_a_route_and_sends_from_none(peers: World, taken: str) -> None:
    """By its route it could send from there past our security groups, and get what we send there while nobody of ours
    has it; on a DPU that has hosts of both even what one of ours has."""
    (mine,) = peers.attachment("blue", "a2").status.addresses
    destination = {
        "a host's": f"{mine}/32",
        "half of its cidr": "10.1.0.128/25",
        "more than its cidr": "10.0.0.0/12",
        "the default route": "0.0.0.0/0",
    }[taken]
    peers.change(VPC, "main", "red", routes=[{"destination": destination, "nextHop": "10.2.0.9"}])
    peers.settle()
    for dpu in ("d1", "d2", "d3"):
        for each in peers.spec(dpu)["vpcs"]:
            assert "peerVnis" not in each, "nothing is exchanged any more"
    for tenant in ("blue", "red"):
        assert peers.vpc_ready(tenant) == ("False", "PeerOverlaps")
    assert state(peers, "d1") == ["Tenant", "Tenant"], "each has its own"


@pytest.mark.parametrize(("tenant", "cidrs"), [
    ("red", ["10.2.0.0/24", "10.1.0.128/25"]), ("red", ["10.2.0.0/24", "10.0.0.0/15"]),
    ("blue", ["10.1.0.0/24", "10.2.0.0/16"]),
])  # fmt: skip
def test_a_cidr_that_grows_into_a_peers_ends_the_peering_and_both_are_told(
    peers: World, tenant: str, cidrs: list[str]
) -> None:
    """Whoever of the two has added it: neither gets a packet of the other one's."""
    peers.change(VPC, "main", tenant, cidrs=cidrs)
    peers.settle()
    for dpu in ("d1", "d2", "d3"):
        for each in peers.spec(dpu)["vpcs"]:
            assert "peerVnis" not in each, "nothing is exchanged any more"
    assert peers.vpc_ready("blue") == peers.vpc_ready("red") == ("False", "PeerOverlaps")


@pytest.fixture
def shared(peers: World) -> World:
    """Green is a peer of blue, too, and on a DPU of its own."""
    peers.namespace("green")
    peers.machine(4, "green")
    peers.add(vpc("green", cidrs=["10.3.0.0/24", "fd00:3::/64"], peers=[{"namespace": "blue", "name": "main"}]))
    peers.add(attachment("green", "a4", "s4", addresses=["10.3.0.201", "fd00:3::c9"]))
    name_both(peers, "red", "green")
    return peers


def name_both(world: World, *order: str) -> None:
    world.change(VPC, "main", "blue", peers=[{"namespace": each, "name": "main"} for each in order])
    world.settle()


def behind(world: World) -> dict[str, str]:
    """What blue's host on a DPU of its own reaches, and the DPU to which its packets go for it."""
    remotes: Any = domain(world, "d2", "blue/main").get("remotes", ())
    return {prefix: each["vtep"] for each in remotes for prefix in each["prefixes"]}


def reached(world: World, tenant: str) -> bool:
    """Whether that is all that the tenant's hosts have."""
    return {str(ip_network(each)) for each in world.addresses(tenant)} <= behind(world).keys()


ALL_READY = dict.fromkeys(("blue", "red", "green"), ("True", "Allocated"))


@pytest.mark.parametrize("order", [("red", "green"), ("green", "red")], ids=["named first", "named last"])
@pytest.mark.parametrize(
    ("added", "address"),
    [
        ({"cidrs": ["10.2.0.0/24", "10.3.0.0/24"]}, "10.3.0.201"),
        ({"cidrs": ["10.2.0.0/24", "10.3.0.128/25"]}, "10.3.0.201"),
        ({"cidrs": ["10.2.0.0/24", "10.3.0.0/16"]}, "10.3.0.201"),
        ({"cidrs": ["10.2.0.0/24", "fd00:3::/48"]}, "fd00:3::c9"),
        ({"routes": [{"destination": "10.3.0.128/25", "nextHop": "10.2.0.9"}]}, "10.2.0.77"),
    ],
    ids=["a cidr", "half of it", "more than it", "by IPv6", "a route"],
)
def test_a_peer_takes_no_address_of_another_peer_by_what_it_adds(
    shared: World, order: tuple[str, str], added: dict[str, Any], address: str
) -> None:
    """Whichever of the two we name first: who was a peer with the addresses stays one."""
    name_both(shared, *order)
    assert {each: shared.vpc_ready(each) for each in ALL_READY} == ALL_READY
    shared.change(VPC, "main", "red", **added)
    shared.add(attachment("red", "thief", "s3", function="pf1", addresses=[address]))
    shared.settle()
    assert shared.ready("red", "thief") == ("True", "Enforced"), "in a network of its own it may have any address"
    taken = {prefix: vtep for prefix, vtep in behind(shared).items() if vtep == "10.255.0.3"}
    assert taken == {}, "nothing of ours goes to red's host"
    assert {behind(shared).get(each) for each in ("10.3.0.201/32", "fd00:3::c9/128")} == {"10.255.0.4"}
    assert domain(shared, "d1", "red/main").get("peerVnis") is None, "nor does it send anything to us"
    assert shared.vpc_ready("green") == ("True", "Allocated")
    assert shared.vpc_ready("red") == shared.vpc_ready("blue") == ("False", "PeersOverlap")


def test_two_peers_that_come_with_the_same_addresses_are_both_cut_off_and_told(shared: World) -> None:
    name_both(shared)
    shared.change(VPC, "main", "red", cidrs=["10.2.0.0/24", "10.3.0.0/24"])
    name_both(shared, "green", "red")
    assert {shared.vpc_ready(each) for each in ALL_READY} == {("False", "PeersOverlap")}
    assert not reached(shared, "green")
    assert "red" not in str(shared.vpc("green").status.conditions), "whose they are is blue's to know"
    name_both(shared, "green")
    assert reached(shared, "green")
    assert shared.vpc_ready("green") == ("True", "Allocated")


def test_a_peer_that_grows_into_addresses_of_nobody_stays_a_peer(shared: World) -> None:
    """The honest twin."""
    shared.change(VPC, "main", "red", cidrs=["10.2.0.0/24", "10.4.0.0/24"])
    shared.settle()
    assert reached(shared, "green")
    assert reached(shared, "red")
    assert shared.vpc_ready("blue") == shared.vpc_ready("red") == ("True", "Allocated")


def test_who_leads_next_knows_whose_the_addresses_are(shared: World) -> None:
    shared.lead()
    shared.change(VPC, "main", "red", cidrs=["10.2.0.0/24", "10.3.0.0/24"])
    shared.settle()
    assert reached(shared, "green"), "the new leader has given the addresses to another one"


def test_what_a_peer_changes_again_and_again_keeps_no_change_of_ours_waiting(
    shared: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it holds is written on our VPC; its DPUs and ours are told at its own expense."""
    monkeypatch.setattr(turns, "SECONDS_A_DPU", 5.0)
    shared.settle(60)
    for n in range(40):
        routes = [{"destination": f"192.168.{n}.0/24", "nextHop": "10.2.0.9"}]
        shared.change(VPC, "main", "red", routes=routes)
        shared.settle(0.5)
    shared.change(VPCAttachment, "a1", "blue", quarantined=True)
    shared.settle(2)
    assert shared.attachment("blue", "a1").status.addresses[0] not in str(domain(shared, "d2", "blue/main"))


# On a DPU with somebody else


def test_a_function_that_the_card_has_not_isolates_its_attachment_and_no_other_of_the_dpu(world: World) -> None:
    def lacks_one(body: dict[str, Any], honest: dict[str, Any]) -> dict[str, Any]:
        """As an agent says it that has no such interface."""
        ports = [each | ({"state": "Isolated"} if each["function"] == "pf0vf99" else {}) for each in honest["ports"]]
        return honest | {"ports": ports}

    world.lies["d1"] = lacks_one
    world.change(Server, "d1", dpu={"functions": [{"name": "pf0vf1", "tenant": "red"}]})
    world.add(attachment("blue", "none", "s1", function="pf0vf99"))
    world.add(attachment("red", "vf", "s1", function="pf0vf1"))
    world.settle()
    assert world.ready("red", "vf") == ("True", "Enforced")
    assert world.ready("blue", "none") == ("False", "DPUDisagrees")
    assert world.attachment("blue", "none").status.forwarding_state == "Isolated"


@pytest.fixture
def crowded(world: World) -> World:
    """Blue attaches more functions of its server than a DPU can be told of; the card has none of them."""
    world.add(vpc("blue", "large", cidrs=["10.8.0.0/16"]))
    names = [f"pf1vf{n}" for n in range(270)]
    world.add(*(attachment("blue", f"n{n}", "s1", function=name, vpcRef="large") for n, name in enumerate(names)))
    world.settle(20)
    assert len(state(world, "d1")) == 256
    return world


def test_functions_that_the_card_has_not_take_no_room_from_those_that_were_assigned(crowded: World) -> None:
    """However many the server's tenant attaches, and whoever comes first."""
    crowded.change(Server, "d1", dpu={"functions": [{"name": "pf9vf9", "tenant": "red"}]})
    crowded.add(attachment("red", "vf", "s1", function="pf9vf9"))
    crowded.settle(20)
    assert crowded.ready("red", "vf") == ("True", "Enforced")
    reasons = [crowded.ready("blue", f"n{n}")[1] for n in range(270)]
    assert (reasons.count("Enforced"), reasons.count("DPUFull")) == (254, 16), "a1 has one, too"
    assert len(state(crowded, "d1")) == 256


def test_a_tenant_that_gives_functions_back_has_others_attached(crowded: World) -> None:
    """The honest twin."""
    for n in range(20):
        crowded.remove(VPCAttachment, f"n{n}", "blue")
    crowded.settle(40)
    assert {crowded.ready("blue", f"n{n}") for n in range(20, 270)} == {("True", "Enforced")}


def mutual(world: World, tenant: str, *names: str) -> None:
    """The tenant's VPC main, and each of these others of its own, are peers."""
    for number, name in enumerate(names):
        main = [{"namespace": tenant, "name": "main"}]
        world.add(vpc(tenant, name, cidrs=[f"10.{100 + number}.0.0/24"], peers=main))
    world.change(VPC, "main", tenant, peers=[{"namespace": tenant, "name": name} for name in names])


def test_the_peers_of_one_tenant_take_none_of_another_and_who_has_too_many_is_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "MOST_VPCS", 8)
    world.change(Server, "d1", dpu={"functions": [{"name": "pf0vf1", "tenant": "red"}]})
    world.add(attachment("red", "vf", "s1", function="pf0vf1"))
    mutual(world, "red", "zzz")
    mutual(world, "blue", *(f"b{n}" for n in range(8)))
    world.settle(20)
    assert world.ready("red", "vf") == ("True", "Enforced")
    assert len(domain(world, "d1", "red/main")["peerVnis"]) == 1  # type: ignore[arg-type]
    assert world.ready("blue", "a1") == ("False", "PeersLeftOut")
    assert all(f"blue/b{n}" in world.message("blue", "a1") for n in (5, 6, 7)), "and which ones"
    assert state(world, "d1") == ["Tenant", "Tenant"], "in its own VPC all passes"

    world.change(VPC, "main", "blue", peers=[{"namespace": "blue", "name": f"b{n}"} for n in range(5)])
    world.settle(20)
    assert world.ready("blue", "a1") == ("True", "Enforced")


def test_a_tenant_that_makes_vpc_after_vpc_leaves_identifiers_for_others(world: World) -> None:
    world.add(pool(10001, 10100))
    world.namespace("green")
    for n in range(110):
        world.add(vpc("blue", f"v{n}"))
        world.settle(0.5)
    assert world.vpc_ready("blue", "v109") == ("False", "VNIShareExhausted")
    world.add(vpc("green"))
    world.settle()
    assert world.vpc_ready("green") == ("True", "Allocated")


# Who changes its own again and again


def compiled(world: World, since: int) -> set[str]:
    """DPUs that were looked at since then."""
    return {key for name, key in world.reconciled[since:] if name == "network-dpus"}


def test_a_tenant_that_names_anothers_vpc_as_its_peer_has_nothing_compiled_for_it(world: World) -> None:
    world.settle(30)
    before = len(world.reconciled)
    for n in range(5):
        world.change(VPC, "main", "blue", peers=[{"namespace": "red", "name": "main"}], mtuBytes=1400 + n)
        world.settle(1)
    assert compiled(world, before) == {"d1", "d2"}


def test_a_tenant_that_changes_a_large_vpc_again_and_again_waits_and_nobody_else_does(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "SECONDS_A_DPU", 5.0)  # two DPUs are as five hundred
    world.settle(60)

    def told(seconds: int) -> int:
        """How often the DPU of the other attachment is told something while the one is changed twice a second."""
        before = int(world.network("d2")["metadata"]["generation"])
        for n in range(2 * seconds):
            world.change(VPCAttachment, "a1", "blue", quarantined=n % 2 == 0)
            world.settle(0.5)
            assert state(world, "d1") == [["Tenant", "Quarantined"][n % 2 == 0]], "its own port does not wait"
        return int(world.network("d2")["metadata"]["generation"]) - before

    assert told(30) <= 5
    world.change(Server, "s2", networkQuarantined=True)
    world.add(attachment("red", "late", "s3", function="pf1"))
    world.settle(2)
    assert state(world, "d2") == ["Quarantined"], "the administrators do not wait"
    assert world.ready("red", "late") == ("True", "Enforced"), "nor does another tenant"
    world.change(Server, "s2", networkQuarantined=False)
    world.settle(60)
    monkeypatch.setattr(turns, "SECONDS_A_DPU", 0.0)
    assert told(30) > 40, "without that each change would be told"
