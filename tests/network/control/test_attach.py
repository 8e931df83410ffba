"""From an attachment to what the DPUs are told and back, with the controllers on an API server in memory."""

from __future__ import annotations

import random

import pytest

from provisioner.api import VPC, DPUNetwork, NetworkClaim, NetworkPool, SecurityGroup, Server, VPCAttachment
from provisioner.api.machinery.errors import Refused
from provisioner.cluster.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, of
from provisioner.network.control.grants import Grants
from tests.network.control import objects
from tests.network.control.objects import attachment, card, group, pool, rule, vpc
from tests.network.control.world import World

pytestmark = pytest.mark.slow


@pytest.fixture
def world() -> World:
    """Two tenants, the same addresses, three machines."""
    made = World()
    made.namespace("blue", "green")
    made.add(pool(), vpc("blue"), vpc("green"))
    for number, tenant in ((1, "blue"), (2, "blue"), (3, "green")):
        made.machine(number, tenant)
    return made


def vni(world: World, namespace: str, name: str = "main") -> int:
    found = world.vpc(namespace, name).status.vni
    assert found is not None
    return found


def test_two_attachments_of_a_vpc_reach_each_other_and_no_other_vpc(world: World) -> None:
    world.add(attachment("blue", "a", "s1"), attachment("blue", "b", "s2"), attachment("green", "c", "s3"))
    world.settle()
    a, b = world.attachment("blue", "a"), world.attachment("blue", "b")
    assert world.ready("blue", "a") == ("True", "Enforced")
    assert (a.status.dpu_ref, a.status.forwarding_state) == ("d1", "Tenant")
    (address,) = a.status.addresses
    (other,) = b.status.addresses
    assert address != other
    domain, port = world.spec("d1")["vpcs"], world.spec("d1")["ports"]
    blue, green = vni(world, "blue"), vni(world, "green")
    assert blue != green
    assert domain == [
        {
            "vni": blue,
            "vpc": "blue/main",
            "mtuBytes": 1450,
            "remotes": [{"vtep": "10.255.0.2", "prefixes": [f"{other}/32"]}],
            "members": ["10.255.0.2"],
        }
    ]
    assert port == [
        {
            "function": "pf0",
            "vni": blue,
            "state": "Tenant",
            "macAddress": "52:54:00:00:00:01",
            "addresses": [address],
            "gateways": list(a.status.gateways),
        }
    ]
    assert [each["vni"] for each in world.spec("d3")["vpcs"]] == [green]
    assert (world.vpc("blue").status.attachments, world.vpc("blue").status.enforced_attachments) == (2, 2)
    assert world.claims() == {
        f"vni-{blue}": "blue/main",
        f"vni-{green}": "green/main",
        f"vni-{blue}.{address}": "blue/a",
        f"vni-{blue}.{other}": "blue/b",
        f"vni-{green}.{world.attachment('green', 'c').status.addresses[0]}": "green/c",
        "port.d1.pf0": "blue/a",
        "port.d2.pf0": "blue/b",
        "port.d3.pf0": "green/c",
    }


def test_it_is_ready_only_once_its_dpu_has_confirmed_the_generation_that_holds_it(world: World) -> None:
    world.settle()
    world.silent = {"d1"}
    world.add(attachment("blue", "a", "s1"))
    world.settle()
    assert world.ready("blue", "a") == ("False", "WaitsForDPU")
    wanted = world.network("d1")["metadata"]["generation"]
    assert world.attachment("blue", "a").status.network_generation == wanted
    assert f"DPU 'd1' has not confirmed generation {wanted}" in world.message("blue", "a")
    assert f"it has confirmed generation {wanted - 1}, not enforced since 2026-01-01T" in world.message("blue", "a")
    assert world.attachment("blue", "a").status.forwarding_state is None
    world.silent = set()
    world.settle()
    assert world.ready("blue", "a") == ("True", "Enforced")


def test_a_change_that_does_not_concern_a_port_leaves_its_attachment_ready(world: World) -> None:
    world.add(attachment("blue", "a", "s1"))
    world.settle()
    generation = world.attachment("blue", "a").status.network_generation
    written = world.admin.get(of(VPCAttachment), "a", namespace="blue")["metadata"]["resourceVersion"]
    world.silent = {"d1"}
    world.add(attachment("blue", "b", "s2"))
    world.settle()
    assert world.network("d1")["metadata"]["generation"] > (generation or 0)
    assert world.admin.get(of(VPCAttachment), "a", namespace="blue")["metadata"]["resourceVersion"] == written


def test_a_leader_with_nothing_in_its_memory_changes_nothing(world: World) -> None:
    world.add(attachment("blue", "a", "s1"), attachment("blue", "b", "s2"), attachment("green", "c", "s3"))
    world.settle()
    world.lead()
    world.settle()
    assert world.door.writes == []


def test_an_attachment_that_is_deleted_is_isolated_and_its_values_are_free_once_the_dpus_have_confirmed(
    world: World,
) -> None:
    world.add(attachment("blue", "a", "s1"), attachment("blue", "b", "s2"))
    world.settle()
    (address,) = world.attachment("blue", "a").status.addresses
    world.silent = {"d1", "d2"}
    world.remove(VPCAttachment, "a", "blue")
    world.settle()
    assert "ports" not in world.spec("d1")
    assert "vpcs" not in world.spec("d1")
    assert "remotes" not in world.spec("d2")["vpcs"][0]
    name = f"vni-{vni(world, 'blue')}.{address}"
    assert {name, "port.d1.pf0"} <= set(world.claims())
    claim = world.admin.get(of(NetworkClaim), name)
    assert claim["status"]["releasedTime"].startswith("2026-01-01T")
    assert claim["status"]["waitsFor"] == ["d1", "d2"]
    assert world.admin.get(of(NetworkClaim), "port.d1.pf0")["status"]["waitsFor"] == ["d1"]
    world.silent = {"d2"}
    world.settle()
    assert "port.d1.pf0" not in world.claims()
    assert world.admin.get(of(NetworkClaim), name)["status"]["waitsFor"] == ["d2"]
    world.silent = set()
    world.settle()
    assert set(world.claims()) == {
        f"vni-{vni(world, 'blue')}",
        f"vni-{vni(world, 'green')}",
        f"vni-{vni(world, 'blue')}.{world.attachment('blue', 'b').status.addresses[0]}",
        "port.d2.pf0",
    }


def test_the_vni_of_a_vpc_that_is_gone_is_nobodys_until_every_dpu_that_had_it_has_confirmed(world: World) -> None:
    world.add(attachment("blue", "a", "s1"))
    world.settle()
    had = vni(world, "blue")
    world.silent = {"d1"}
    world.remove(VPC, "main", "blue")
    world.settle()
    assert world.ready("blue", "a") == ("False", "VPCNotFound")
    assert world.attachment("blue", "a").status.forwarding_state == "Tenant", "the DPU has not confirmed otherwise"
    assert world.admin.get(of(NetworkClaim), f"vni-{had}")["status"]["waitsFor"] == ["d1"]
    pools = world.admin.get(of(NetworkPool), "default")["status"]
    assert (pools["takenVnis"], pools["quarantinedVnis"], pools["freeVnis"]) == (1, 1, 98)
    world.silent = set()
    world.settle(40)
    assert f"vni-{had}" not in world.claims()
    assert world.attachment("blue", "a").status.forwarding_state == "Isolated"


def test_a_vni_is_not_free_before_the_addresses_that_are_claimed_in_its_name(world: World) -> None:
    """Its next VPC would find them taken. Here nobody gets to the attachment for a while."""
    world.add(attachment("blue", "a", "s1"))
    world.settle()
    had, (address,) = vni(world, "blue"), world.attachment("blue", "a").status.addresses
    world.controllers = [each for each in world.controllers if each.name != "network-attachments"]
    world.remove(VPC, "main", "blue")
    world.settle(40)
    written = len(world.door.writes)
    world.settle(90)
    assert world.door.writes[written:] == [], "that it waits for nobody is said once"
    assert {f"vni-{had}", f"vni-{had}.{address}"} <= set(world.claims())
    world.lead()
    world.settle(40)
    assert not [name for name in world.claims() if name.startswith(f"vni-{had}")]


def test_a_dpu_that_never_confirmed_the_value_keeps_it_back_too(world: World) -> None:
    """It was told of it, and may have carried that out before it fell silent."""
    world.settle()
    world.silent = {"d1"}
    world.add(attachment("blue", "a", "s1"))
    world.settle()
    world.remove(VPCAttachment, "a", "blue")
    world.settle()
    world.remove(VPC, "main", "blue")
    world.settle(40)
    assert "port.d1.pf0" in world.claims()
    assert "blue/main" in world.claims().values()
    world.silent = set()
    world.settle(40)
    assert "blue/main" not in world.claims().values()
    assert "blue/a" not in world.claims().values()


def test_a_tenant_of_another_namespace_is_refused_in_the_words_for_a_server_that_is_not_there(world: World) -> None:
    world.add(attachment("green", "mine", "s1"), attachment("green", "nobodys", "s99"))
    world.settle()
    assert world.ready("green", "mine") == world.ready("green", "nobodys") == ("False", "ServerNotAssigned")
    assert world.message("green", "mine").replace("s1", "s99") == world.message("green", "nobodys")
    assert "blue" not in world.message("green", "mine")
    assert world.attachment("green", "mine").status.dpu_ref is None
    assert "ports" not in world.spec("d1")


def test_a_server_that_is_given_to_another_tenant_is_taken_from_the_first_one(world: World) -> None:
    world.add(attachment("blue", "a", "s1"), attachment("green", "a", "s1"))
    world.settle()
    assert world.ready("blue", "a") == ("True", "Enforced")
    world.silent = {"d1"}
    world.change(Server, "s1", tenant="green")
    world.settle(20)
    assert world.ready("blue", "a") == ("False", "ServerNotAssigned")
    assert world.ready("green", "a") == ("False", "PortNotReleased")
    assert "blue" not in world.message("green", "a")
    world.silent = set()
    world.settle(40)
    assert world.ready("green", "a") == ("True", "Enforced")
    assert [each["vni"] for each in world.spec("d1")["vpcs"]] == [vni(world, "green")]
    assert world.attachment("blue", "a").status.forwarding_state == "Isolated"


def test_a_function_may_be_another_tenants_than_the_server(world: World) -> None:
    world.change(Server, "d1", dpu={"functions": [{"name": "pf0vf3", "tenant": "green"}]})
    world.add(attachment("green", "v", "s1", function="pf0vf3"), attachment("blue", "a", "s1"))
    world.settle()
    assert world.ready("green", "v") == world.ready("blue", "a") == ("True", "Enforced")
    assert [each["function"] for each in world.spec("d1")["ports"]] == ["pf0", "pf0vf3"]
    assert len(world.spec("d1")["vpcs"]) == 2


def test_of_two_attachments_of_one_port_the_second_is_told_of_the_first_and_follows_it(world: World) -> None:
    world.add(attachment("blue", "a", "s1"))
    world.settle()
    world.add(attachment("blue", "b", "s1"))
    world.settle()
    assert world.ready("blue", "b") == ("False", "PortTaken")
    assert "VPCAttachment 'a'" in world.message("blue", "b")
    world.remove(VPCAttachment, "a", "blue")
    world.settle(40)
    assert world.ready("blue", "b") == ("True", "Enforced")


def test_a_wished_address_is_given_or_refused_with_words(world: World) -> None:
    wishes = {"a": "10.1.0.5", "even": "10.1.0.8", "out": "10.2.0.5", "first": "10.1.0.1", "six": "fd00::3"}
    for number, (name, wish) in enumerate(wishes.items()):
        world.machine(10 + number, "blue")
        world.add(attachment("blue", name, f"s{10 + number}", addresses=[wish]))
    world.machine(20, "blue")
    world.settle()
    world.add(attachment("blue", "late", "s20", addresses=["10.1.0.5"]))
    world.settle()
    assert world.attachment("blue", "a").status.addresses == ("10.1.0.5",)
    assert world.attachment("blue", "a").status.gateways == ("10.1.0.4",)
    reasons = {name: world.ready("blue", name)[1] for name in (*wishes, "late")}
    assert reasons == {
        "a": "Enforced",
        "even": "AddressIsGateway",
        "out": "AddressOutsideVPC",
        "first": "AddressNotGiven",
        "six": "AddressOutsideVPC",
        "late": "AddressTaken",
    }
    assert "VPCAttachment 'a'" in world.message("blue", "late")


def test_another_wish_is_claimed_before_the_old_address_is_let_go_of(world: World) -> None:
    world.add(attachment("blue", "a", "s1", addresses=["10.1.0.5"]), attachment("blue", "b", "s2"))
    world.settle()
    world.change(VPCAttachment, "a", "blue", addresses=["10.1.0.9"])
    world.settle(40)
    assert world.spec("d1")["ports"][0]["addresses"] == ["10.1.0.9"]
    assert world.spec("d2")["vpcs"][0]["remotes"][0]["prefixes"] == ["10.1.0.9/32"]
    assert f"vni-{vni(world, 'blue')}.10.1.0.5" not in world.claims()


def test_a_family_that_is_added_later_is_given_too(world: World) -> None:
    world.add(attachment("blue", "a", "s1"))
    world.settle()
    world.change(VPC, "main", "blue", cidrs=["10.1.0.0/24", "fd00:1::/64"])
    world.settle()
    four, six = world.attachment("blue", "a").status.addresses
    assert four.startswith("10.1.0.")
    assert six.startswith("fd00:1::")
    assert world.spec("d1")["ports"][0]["addresses"] == [four, six]


def test_all_vnis_in_use_is_a_condition_and_a_range_more_ends_it(world: World) -> None:
    world.add(pool(1, 1))
    world.admin.delete(of(VPC), "main", namespace="green")
    world.settle()
    world.add(vpc("green", "late"))
    world.settle()
    assert world.vpc_ready("green", "late") == ("False", "VNIsExhausted")
    world.add(attachment("green", "c", "s3", vpcRef="late"))
    world.settle()
    assert world.ready("green", "c") == ("False", "WaitsForVPC")
    world.add(pool(1, 1, {"first": 20, "last": 20}))
    world.settle(40)
    assert world.vpc("green", "late").status.vni == 20
    assert world.ready("green", "c") == ("True", "Enforced")


def test_a_tenant_takes_no_more_vnis_than_it_leaves_for_others(world: World) -> None:
    world.add(pool(1, 8))
    world.settle()
    for n in range(8):
        world.add(vpc("blue", f"v{n}"))
        world.settle(1)
    reasons = [world.vpc_ready("blue", f"v{n}")[1] for n in range(8)]
    assert reasons == ["Allocated"] * 3 + ["VNIShareExhausted"] * 5, "each tenant has had one before"
    world.add(vpc("green", "late"))
    world.settle()
    assert world.vpc_ready("green", "late") == ("True", "Allocated")
    world.add(pool(1, 8, {"first": 20, "last": 40}))
    world.settle(40)
    assert {world.vpc_ready("blue", f"v{n}") for n in range(8)} == {("True", "Allocated")}


def test_without_a_pool_a_vpc_waits_and_says_so() -> None:
    world = World()
    world.namespace("blue")
    world.add(vpc("blue"))
    world.settle()
    assert world.vpc_ready("blue") == ("False", "NoNetworkPool")


def test_addresses_run_out_with_a_condition(world: World) -> None:
    world.add(vpc("blue", "tiny", cidrs=["10.9.0.0/30"]))
    world.add(*(attachment("blue", f"t{n}", f"s{n}", vpcRef="tiny") for n in (1, 2)))
    world.settle()
    reasons = sorted(world.ready("blue", name)[1] for name in ("t1", "t2"))
    assert reasons == ["AddressesExhausted", "Enforced"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"dpuRef": "d9"}, "DPUNotFound"),
        ({"serverRef": "s7"}, "NoDPU"),
        ({"serverRef": "s8"}, "SeveralDPUs"),
        ({"serverRef": "s9"}, "NoVTEPAddress"),
        ({"vpcRef": "gone"}, "VPCNotFound"),
        ({"securityGroupRefs": ["gone"]}, "SecurityGroupNotFound"),
    ],
)
def test_what_is_missing_is_a_condition(world: World, changes: dict[str, object], reason: str) -> None:
    world.add(
        objects.tenants_server("s7", "blue", 7),
        objects.tenants_server("s8", "blue", 8),
        card("d81", "s8", 81),
        card("d82", "s8", 82),
        objects.tenants_server("s9", "blue", 9),
        card("d91", "s9", 91, vtepAddress=None),
    )
    world.add(attachment("blue", "a", "s1", **changes))
    world.settle()
    assert world.ready("blue", "a") == ("False", reason)
    assert all(each.get("state") != "Tenant" for each in world.spec("d1").get("ports") or ())


def test_a_dpu_is_named_where_a_server_has_several(world: World) -> None:
    world.add(card("d1b", "s1", 91))
    world.add(attachment("blue", "a", "s1", dpuRef="d1b"))
    world.settle()
    assert world.attachment("blue", "a").status.dpu_ref == "d1b"


def test_a_card_that_nobody_has_accepted_is_none(world: World) -> None:
    """An unknown machine could say of itself that it is a card of any server's."""
    world.add(attachment("blue", "a", "s1"))
    world.settle()
    world.add(card("unknown-1", "s1", 91, acceptance="Pending", vtepAddress="10.255.0.1"))
    world.add(attachment("blue", "vf", "s1", function="pf0vf1"))
    world.settle()
    assert world.ready("blue", "a") == world.ready("blue", "vf") == ("True", "Enforced")
    assert world.admin.find(CLUSTER_ROLES, "provisioner-dpu-unknown-1") is None
    world.change(Server, "unknown-1", acceptance="Accepted")
    world.add(attachment("blue", "new", "s1", function="pf0vf2"))
    world.settle()
    assert world.ready("blue", "new") == ("False", "SeveralDPUs"), "its honest twin"


def test_of_two_dpus_with_one_address_the_new_one_gets_nothing_and_the_old_one_keeps_what_it_has(world: World) -> None:
    world.add(attachment("blue", "a", "s1"), attachment("blue", "b", "s2"))
    world.settle()
    before = world.spec("d1")
    world.machine(4, "blue", vtepAddress="10.255.0.1")
    world.add(attachment("blue", "new", "s4"), attachment("blue", "vf", "s1", function="pf0vf1"))
    world.settle()
    assert world.ready("blue", "new") == world.ready("blue", "vf") == ("False", "DuplicateVTEPAddress")
    assert "d1" not in world.message("blue", "new")
    assert world.spec("d1") == before
    assert "DuplicateVTEPAddress" in world.events.reasons("Server")
    assert world.admin.find(of(DPUNetwork), "d4") is None
    world.change(VPCAttachment, "a", "blue", quarantined=True)
    world.settle()
    assert world.spec("d1")["ports"][0]["state"] == "Quarantined", "what is to be isolated is"
    world.change(Server, "d4", dpu={"vtepAddress": "10.255.0.4"})
    world.settle(20)
    assert world.ready("blue", "new") == world.ready("blue", "vf") == ("True", "Enforced")


def test_a_right_that_cannot_be_given_keeps_no_quarantine_from_a_dpu(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Grants, dpu: str) -> None:
        raise Refused(f"ClusterRole of {dpu} is another's", hint="delete it")

    world.add(attachment("blue", "a", "s1"))
    world.settle()
    monkeypatch.setattr(Grants, "give", refuse)
    world.change(VPCAttachment, "a", "blue", quarantined=True)
    world.settle()
    assert [port["state"] for port in world.spec("d1")["ports"]] == ["Quarantined"]


def test_quarantined_nothing_reaches_it_and_it_keeps_its_addresses(world: World) -> None:
    world.add(attachment("blue", "a", "s1"), attachment("blue", "b", "s2"))
    world.settle()
    before = world.attachment("blue", "a").status.addresses
    world.change(VPCAttachment, "a", "blue", quarantined=True)
    world.settle()
    assert world.ready("blue", "a") == ("False", "Quarantined")
    assert world.attachment("blue", "a").status.forwarding_state == "Quarantined"
    assert world.attachment("blue", "a").status.addresses == before
    assert "remotes" not in world.spec("d2")["vpcs"][0]
    assert "members" not in world.spec("d2")["vpcs"][0]
    assert world.vpc("blue").status.enforced_attachments == 2
    world.change(VPCAttachment, "a", "blue", quarantined=False)
    world.settle()
    assert world.ready("blue", "a") == ("True", "Enforced")


def test_a_security_group_that_goes_isolates_and_one_that_comes_lets_pass(world: World) -> None:
    world.add(group("blue", "web", rule(protocol="TCP", ports=["443"])))
    world.add(attachment("blue", "a", "s1", securityGroupRefs=["web"]))
    world.settle()
    assert world.spec("d1")["ports"][0]["rules"] == [
        {"direction": "Ingress", "action": "Allow", "protocol": "TCP", "ports": ["443"], "stateful": True},
        {"direction": "Egress", "action": "Allow", "protocol": "Any", "stateful": True},
    ]
    stored = world.admin.get(of(SecurityGroup), "web", namespace="blue")["status"]
    assert (stored["attachments"], stored["conditions"][0]["reason"]) == (1, "Enforced")
    world.remove(SecurityGroup, "web", "blue")
    world.settle()
    assert world.ready("blue", "a") == ("False", "SecurityGroupNotFound")
    assert world.spec("d1")["ports"][0]["state"] == "Isolated"
    assert world.attachment("blue", "a").status.forwarding_state == "Isolated"
    world.add(group("blue", "web", rule()))
    world.settle()
    assert world.ready("blue", "a") == ("True", "Enforced")


def test_the_dpunetwork_and_the_right_to_read_it_go_with_the_dpu(world: World) -> None:
    world.add(attachment("blue", "a", "s1"))
    world.settle()
    for type_ in (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS):
        assert world.admin.find(type_, "provisioner-dpu-d1") is not None
    world.remove(Server, "d1")
    world.settle(40)
    assert world.admin.find(of(DPUNetwork), "d1") is None
    assert world.ready("blue", "a") == ("False", "NoDPU")
    assert "port.d1.pf0" not in world.claims()
    for type_ in (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS):
        assert world.admin.find(type_, "provisioner-dpu-d1") is None


def test_a_server_that_is_no_dpu_any_more_has_nothing_to_read(world: World) -> None:
    world.settle()
    assert world.admin.find(CLUSTER_ROLES, "provisioner-dpu-d2") is not None
    world.change(Server, "d2", dpu=None)
    world.settle()
    assert world.admin.find(CLUSTER_ROLES, "provisioner-dpu-d2") is None
    assert world.admin.find(of(DPUNetwork), "d2") is None


def test_peers_reach_each_other_once_both_say_so(world: World) -> None:
    world.namespace("red")
    world.add(vpc("red", cidrs=["10.7.0.0/24"]))
    world.machine(5, "red")
    world.add(vpc("blue", peers=[{"namespace": "red", "name": "main"}]))
    world.add(attachment("blue", "a", "s1"), attachment("red", "r", "s5"))
    world.settle()
    assert world.vpc_ready("blue") == ("False", "PeerNotMutual")
    assert len(world.spec("d1")["vpcs"]) == 1
    world.change(VPC, "main", "red", peers=[{"namespace": "blue", "name": "main"}])
    world.settle()
    assert world.vpc_ready("blue") == world.vpc_ready("red") == ("True", "Allocated")
    blue, red = vni(world, "blue"), vni(world, "red")
    address = world.attachment("red", "r").status.addresses[0]
    remote = [{"vtep": "10.255.0.5", "prefixes": [f"{address}/32"]}]
    domains = {each["vni"]: each for each in world.spec("d1")["vpcs"]}
    assert domains[blue].get("members") is None, "packets of blue's hosts come from DPUs of blue alone"
    assert (domains[blue]["remotes"], domains[blue]["peerVnis"]) == (remote, [red])
    assert (domains[red]["remotes"], domains[red]["members"]) == (remote, ["10.255.0.5"])
    assert domains[red]["peerVnis"] == [blue]
    world.change(VPC, "main", "red", peers=[])
    world.settle()
    assert [each["vni"] for each in world.spec("d1")["vpcs"]] == [blue]
    assert [each["vni"] for each in world.spec("d5")["vpcs"]] == [red]


def test_rules_that_are_too_long_for_one_port_isolate_it_with_words(world: World) -> None:
    cidrs = [f"fd00:{n:x}:aaaa:bbbb:cccc:dddd:eeee::/112" for n in range(32)]
    world.add(group("blue", "large", *(rule(cidrs=cidrs, priority=n) for n in range(128))))
    world.add(attachment("blue", "a", "s1", securityGroupRefs=["large"]), attachment("blue", "b", "s2"))
    world.settle()
    assert world.ready("blue", "a") == ("False", "TooManyRules")
    assert world.spec("d1")["ports"][0]["state"] == "Isolated"
    assert world.ready("blue", "b") == ("True", "Enforced")


def test_a_dpu_takes_as_many_attachments_as_it_can_be_told_of(world: World) -> None:
    world.add(*(attachment("blue", f"n{n}", "s1", function=f"pf0vf{n}") for n in range(130)))
    world.add(vpc("blue", "more", cidrs=["10.8.0.0/16"]))
    world.add(*(attachment("blue", f"m{n}", "s1", function=f"pf1vf{n}", vpcRef="more") for n in range(135)))
    world.settle(20)
    names = (*(f"n{n}" for n in range(130)), *(f"m{n}" for n in range(135)))
    reasons = [world.ready("blue", name)[1] for name in names]
    assert reasons.count("Enforced") <= 256
    assert set(reasons) == {"Enforced", "DPUFull", "AddressesExhausted"}
    assert len(world.spec("d1")["ports"]) == reasons.count("Enforced")


@pytest.mark.parametrize("seed", range(6))
def test_whatever_changed_another_leader_who_has_kept_nothing_finds_nothing_to_write(world: World, seed: int) -> None:
    """What is kept of a VPC is made anew with each change that concerns it."""
    draw = random.Random(seed)
    world.namespace("red")
    world.add(vpc("red", cidrs=["10.3.0.0/24"]), vpc("green", "more", cidrs=["10.2.0.0/24"]))
    world.add(*(card(f"d{n}-2", f"s{n}", 100 + n) for n in (1, 2)))
    names = [("blue", "main"), ("green", "more"), ("red", "main")]

    def change() -> None:
        tenant, name = draw.choice(names)
        number = draw.randint(1, 3)
        what = draw.randint(0, 8)
        if what == 0:
            peers = [{"namespace": a, "name": b} for a, b in draw.sample(names, draw.randint(0, 3))]
            world.change(VPC, name, tenant, peers=peers)
        elif what == 1:
            world.change(Server, f"s{number}", tenant=draw.choice(["blue", "green", "red"]))
        elif what == 2:
            world.change(Server, f"s{number}", networkQuarantined=draw.random() < 0.5)
        elif what == 3:
            functions = [{"name": "pf1", "tenant": tenant, "quarantined": draw.random() < 0.3}]
            card_of_it = {"functions": functions, "vtepAddress": f"10.255.9.{draw.randint(1, 4)}"}
            world.change(Server, f"d{number}", dpu=card_of_it)
        elif what == 4 and world.admin.find(of(VPCAttachment), f"a{number}", namespace=tenant):
            world.remove(VPCAttachment, f"a{number}", tenant)
        elif what == 5:
            destination = draw.choice(["192.168.7.0/24", "10.2.0.0/25", "10.3.0.0/16"])
            address = next(iter(world.addresses(tenant)), "10.1.0.3")
            world.change(VPC, name, tenant, routes=[{"destination": destination, "nextHop": address}])
        elif what == 6:
            world.add(group(tenant, "web", rule(ports=[str(draw.randint(1, 9))], protocol="TCP")))
            world.change(VPC, name, tenant, securityGroupRefs=draw.choice([["web"], []]))
        else:
            pf = draw.choice(["pf0", "pf1"])
            more = {"dpuRef": f"d{number}"} if draw.random() < 0.7 else {}
            if not world.admin.find(of(VPCAttachment), f"a{number}", namespace=tenant):
                world.add(attachment(tenant, f"a{number}", f"s{number}", vpcRef=name, function=pf, **more))

    for _ in range(12):
        for _ in range(draw.randint(1, 4)):
            change()
        world.settle(draw.choice([0.2, 0.5, 3.0]))
    world.settle(60)
    before = {name: body["spec"] for name, body in world.admin.stored(of(DPUNetwork)).items()}
    world.lead()
    world.settle(60)
    assert {name: body["spec"] for name, body in world.admin.stored(of(DPUNetwork)).items()} == before
