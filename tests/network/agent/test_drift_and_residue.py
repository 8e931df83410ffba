"""What somebody else changes is found and mended; what goes leaves nothing; what cannot be is told, and isolates."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from provisioner.api.machinery.codec import to_json
from provisioner.api.network.dpu_network import DPUNetworkSpec, PortRule
from provisioner.network.agent import nft
from provisioner.network.agent.enforce import Enforced, Enforcer
from provisioner.network.agent.model import namespaces
from provisioner.network.agent.model.naming import GATEWAY_MAC
from provisioner.network.agent.model.state import HOME
from provisioner.network.agent.probe import has_vrf
from tests.network.agent.rack import DPU, Rack, rack
from tests.network.agent.specs import BLUE, ONE, RED, TWO, port, spec, vpc

HERE, THERE = ("10.1.0.3", "fd00:1::3"), ("10.1.0.5/32", "fd00:1::5/128")
VX, PEER_LINK = f"vx{BLUE}", f"p{BLUE:06x}-{RED:06x}"


def wanted() -> DPUNetworkSpec:
    vpcs = [vpc(BLUE, remotes={TWO: THERE}, peers=(RED,)), vpc(RED, peers=(BLUE,))]
    rule = PortRule(direction="Ingress", action="Allow", protocol="TCP", ports=("22",), cidrs=("10.0.0.0/8",))
    return spec(vpcs, [port(*HERE, rules=[rule]), port("10.2.0.3", function="pf1", vni=RED)])


def a_dpu(network: Rack) -> DPU:
    dpu = network.dpu(ONE, ("pf0", "pf1"))
    enforced = dpu.enforce(wanted())
    assert enforced.problems == ()
    assert enforced.agrees
    return dpu


NFT = ("nft", "-f", "-")
DRIFT = {
    "a route is gone": ("ip", "route", "delete", "10.1.0.5"),
    "an IPv6 route is gone": ("ip", "-6", "route", "delete", "fd00:1::5"),
    "a route leads elsewhere": ("ip", "route", "change", "10.1.0.5", "dev", "pf0hpf", "metric", "64"),
    "a foreign route": ("ip", "route", "add", "10.66.0.0/16", "dev", "pf0hpf"),
    "a foreign default route": ("ip", "-6", "route", "add", "default", "dev", VX),
    "a foreign route before ours": ("ip", "route", "add", "10.1.0.5", "dev", "pf0hpf"),
    "an MTU of a route": ("ip", "route", "change", "10.1.0.3", "dev", "pf0hpf", "metric", "64", "mtu", "9000"),
    "an FDB entry is gone": ("bridge", "fdb", "delete", "02:00:c0:00:02:02", "dev", VX),
    "a foreign FDB entry": ("bridge", "fdb", "append", "00:00:00:00:00:00", "dev", VX, "dst", "192.0.2.66"),
    "a neighbour is gone": ("ip", "neigh", "delete", TWO, "dev", VX),
    "a neighbour is another": ("ip", "neigh", "replace", "10.1.0.3", "lladdr", "52:54:00:66:66:66", "dev", "pf0hpf"),
    "a foreign neighbour": ("ip", "neigh", "add", "10.1.0.9", "lladdr", "52:54:00:66:66:66", "dev", "pf0hpf"),
    "a gateway is gone": ("ip", "addr", "delete", "10.1.0.2/32", "dev", "pf0hpf"),
    "a foreign address": ("ip", "addr", "add", "10.66.0.1/24", "dev", "pf0hpf"),
    "a port is down": ("ip", "link", "set", "pf0hpf", "down"),
    "a port has another hardware address": ("ip", "link", "set", "pf0hpf", "address", "52:54:00:66:66:66"),
    "a port has another MTU": ("ip", "link", "set", "pf0hpf", "mtu", "1500"),
    "a VXLAN device is gone": ("ip", "link", "delete", VX),
    "the link between peers is gone": ("ip", "link", "delete", PEER_LINK),
    "a foreign device": ("ip", "link", "add", "veth66", "type", "veth", "peer", "name", "veth67"),
    "a setting": ("sysctl", "-qw", "net.ipv6.conf.pf0hpf.accept_ra=1"),
    "a table is gone": ("nft", "delete", "table", "netdev", "provisioner"),
    "the other table is gone": ("nft", "delete", "table", "inet", "provisioner"),
    "all rules are gone": ("nft", "flush", "ruleset"),
    "the rules of a port are gone": ("nft", "flush", "chain", "netdev", "provisioner", "from_host_pf0"),
    "a foreign rule": ("nft", "insert", "rule", "netdev", "provisioner", "from_host_pf0", "accept"),
    "a rule says something else": (
        "nft", "replace", "rule", "inet", "provisioner", "ingress_pf0", "handle", "HANDLE",
        "ip", "saddr", "10.0.0.0/8", "tcp", "dport", "23", "accept",
    ),
    "a DHCP server may be asked by anybody": (
        "nft", "insert", "rule", "inet", "provisioner", "input", "udp", "dport", "67", "accept",
    ),
    "a foreign chain": ("nft", "add", "chain", "inet", "provisioner", "foreign"),
    "a policy": ("nft", "add", "chain", "inet", "provisioner", "forward", "{ policy accept; }"),
}  # fmt: skip


@pytest.fixture(scope="module")
def lasting() -> Iterator[DPU]:
    """A DPU for all drift: whatever was mended is as it was before."""
    with rack() as made:
        yield a_dpu(made)


@pytest.mark.parametrize("drift", DRIFT)
def test_drift_is_found_and_mended(lasting: DPU, drift: str) -> None:
    dpu = lasting
    before = dpu.inside(dpu.enforcer.observe)
    command = list(DRIFT[drift])
    if "HANDLE" in command:
        listed = json.loads(dpu.in_domain(BLUE, "nft", "-j", "list", "chain", "inet", "provisioner", command[5]))
        rules = [each["rule"]["handle"] for each in listed["nftables"] if "rule" in each]
        command[command.index("HANDLE")] = str(rules[0])
    dpu.in_domain(BLUE, *command)
    mended = dpu.enforce(wanted())
    assert (mended.problems, mended.agrees, mended.mended) == ((), True, True)
    assert mended.changes > 0
    assert dpu.inside(dpu.enforcer.observe) == before
    again = dpu.enforce(wanted())
    assert (again.changes, again.mended) == (0, False)


DRIFT_AT_HOME = {
    "the underlay's rules are gone": ("nft", "flush", "chain", "inet", "provisioner", "vxlan_packets"),
    "everything but the mark is gone": ("nft", "delete", "table", "netdev", "provisioner"),
    "the isolated port has an address": ("ip", "addr", "add", "10.66.0.1/24", "dev", "pf2hpf"),
    "the isolated port has IPv6": ("sysctl", "-qw", "net.ipv6.conf.pf2hpf.disable_ipv6=0"),
    "the isolated port is a way": ("ip", "route", "add", "10.66.0.0/16", "dev", "pf2hpf"),
}


@pytest.mark.parametrize("drift", DRIFT_AT_HOME)
def test_drift_is_known_for_such_by_an_agent_that_was_just_started(network: Rack, drift: str) -> None:
    dpu = network.dpu(ONE, ("pf0", "pf1", "pf2"))
    assert dpu.enforce(wanted()).agrees
    before = dpu.inside(dpu.enforcer.observe)
    dpu.output(*DRIFT_AT_HOME[drift])
    mended = dpu.inside(lambda: dpu.another().enforce(wanted()))
    assert (mended.problems, mended.agrees, mended.mended) == ((), True, True)
    assert dpu.inside(dpu.enforcer.observe) == before


def test_a_namespace_that_somebody_deleted_is_made_again_when_its_ports_are_back(network: Rack) -> None:
    dpu = a_dpu(network)
    subprocess.run(["ip", "netns", "delete", dpu.domain(RED)], check=True)
    enforced = dpu.enforce(wanted())  # the cable has gone with it
    assert [(each.reason, each.functions) for each in enforced.problems] == [("PortMissing", ("pf1",))]
    assert {each.function: each.state for each in enforced.ports} == {"pf0": "Tenant", "pf1": "Isolated"}
    network.cable(dpu.hosts["pf1"], "eth1", dpu, "pf1hpf")
    assert dpu.enforce(wanted()).agrees


def test_the_second_time_nothing_changes_not_even_for_another_process(network: Rack, tmp_path: Path) -> None:
    dpu = a_dpu(network)
    assert dpu.enforce(wanted()).changes == 0
    said = dpu.once(wanted(), tmp_path / "spec.json")
    assert (said["agrees"], said["changes"], said["mended"]) == (True, 0, False)
    assert said["vnis"] == [BLUE, RED]
    assert said["ports"] == [
        {"function": "pf0", "state": "Tenant", "offloaded": "No"},
        {"function": "pf1", "state": "Tenant", "offloaded": "No"},
    ]


def test_before_it_has_a_spec_an_agent_isolates_what_nobody_has_enforced_and_nothing_else(network: Rack) -> None:
    dpu = network.dpu(ONE, ("pf0", "pf1"))
    dpu.ip("addr", "add", "10.66.0.0/31", "dev", "pf0hpf")
    dpu.hosts["pf0"].ip("addr", "add", "10.66.0.1/31", "dev", "eth0")
    assert dpu.hosts["pf0"].pings("10.66.0.0"), "as any interface"
    assert dpu.inside(lambda: dpu.another().isolate_unless_enforced())
    assert dpu.hosts["pf0"].reaches_nothing_at("10.66.0.0")
    assert "10.66.0.0" not in dpu.output("ip", "addr")
    assert dpu.enforce(wanted()).agrees
    assert not dpu.inside(lambda: dpu.another().isolate_unless_enforced())
    assert dpu.enforce(wanted()).changes == 0


def test_two_agents_of_one_dpu_take_turns(network: Rack) -> None:
    dpu = network.dpu(ONE, ("pf0", "pf1"))

    def both() -> list[Enforced]:
        with namespaces.inside(dpu.name):
            return [dpu.another().enforce(wanted())]

    with ThreadPoolExecutor(4) as pool:
        results = [result for each in [pool.submit(both) for _ in range(4)] for result in each.result()]
    assert [(each.agrees, each.problems) for each in results] == [(True, ())] * 4
    assert sorted(each.changes > 0 for each in results) == [False, False, False, True]


def test_an_agent_finds_out_by_itself_how_to_keep_domains_apart(network: Rack) -> None:
    dpu = network.dpu(ONE, ("pf0", "pf1"))
    itself = Enforcer(dpu.ports)
    first = dpu.inside(lambda: itself.enforce(wanted()))
    assert (first.problems, first.agrees) == ((), True)
    dpu.hosts["pf0"].take(*HERE)
    assert dpu.hosts["pf0"].pings("10.1.0.2")
    assert dpu.inside(itself.release).agrees


def test_vrfs_are_enforced_or_what_lacks_them_is_told_and_isolated(network: Rack) -> None:
    dpu = network.dpu(ONE, ("pf0", "pf1"))
    with_vrfs = Enforcer(dpu.ports, domains="vrf")
    enforced = dpu.inside(lambda: with_vrfs.enforce(wanted()))
    dpu.hosts["pf0"].take(*HERE)
    if dpu.inside(has_vrf):
        assert (enforced.problems, enforced.agrees) == ((), True)
        assert dpu.inside(lambda: with_vrfs.enforce(wanted())).changes == 0
        assert dpu.hosts["pf0"].pings("10.1.0.2")
    else:
        assert {each.reason for each in enforced.problems} == {"KernelRefused"}
        assert "link add vpc10001 type vrf" in enforced.problems[0].message
        assert {each.function: each.state for each in enforced.ports} == {"pf0": "Isolated", "pf1": "Isolated"}
        assert dpu.hosts["pf0"].reaches_nothing_at("10.1.0.2")
    assert dpu.inside(with_vrfs.release).agrees
    assert dpu.output("nft", "list", "ruleset") == ""


def test_what_goes_from_the_spec_leaves_nothing(network: Rack) -> None:
    dpu = network.dpu(ONE, ("pf0", "pf1"))
    assert dpu.enforce(spec([], [])).agrees
    before = dpu.inside(dpu.enforcer.observe)
    assert dpu.enforce(wanted()).agrees
    assert dpu.enforce(spec([], [])).agrees
    after = dpu.inside(dpu.enforcer.observe)
    assert list(after.places) == [HOME]
    assert after.vnis == ()
    for each in ("addresses", "routes", "neighbours", "fdb", "chains"):
        assert getattr(after.places[HOME], each) == getattr(before.places[HOME], each), each
    assert dpu.hosts["pf0"].reaches_nothing_at("10.1.0.2")


def test_an_attachment_that_goes_leaves_the_others_of_its_vpc(network: Rack) -> None:
    dpu = network.dpu(ONE, ("pf0", "pf1"))
    both = spec([vpc()], [port(*HERE), port("10.1.0.7", function="pf1")])
    assert dpu.enforce(both).agrees
    for host, address in ((dpu.hosts["pf0"], HERE[0]), (dpu.hosts["pf1"], "10.1.0.7")):
        host.take(address)
    assert dpu.hosts["pf0"].pings("10.1.0.7")
    assert dpu.enforce(spec([vpc()], [port(*HERE)])).agrees
    assert "10.1.0.7" not in dpu.in_domain(BLUE, "ip", "route") + dpu.in_domain(BLUE, "ip", "neigh")
    assert dpu.hosts["pf0"].pings("10.1.0.2")
    assert dpu.hosts["pf0"].reaches_nothing_at("10.1.0.7")


def test_release_takes_everything_away_and_leaves_the_ports_down(network: Rack) -> None:
    dpu = network.dpu(ONE, ("pf0", "pf1"))
    before = dpu.output("ip", "-o", "addr") + dpu.output("ip", "route", "show", "table", "all")
    assert dpu.enforce(wanted()).agrees
    released = dpu.release()
    assert (released.agrees, released.problems) == (True, ())
    assert namespaces.domains_of(dpu.name) == []
    assert dpu.output("nft", "list", "ruleset") == ""
    links = {each["ifname"]: each for each in json.loads(dpu.output("ip", "-j", "link"))}
    assert sorted(links) == ["lo", "pf0hpf", "pf1hpf", "uplink"]
    assert "UP" not in links["pf0hpf"]["flags"]
    macs = {links[name]["address"] for name in ("pf0hpf", "pf1hpf")}
    assert (len(macs), GATEWAY_MAC in macs) == (2, False), "each has one of its own again"
    after = dpu.output("ip", "-o", "addr") + dpu.output("ip", "route", "show", "table", "all")
    assert {line for line in after.splitlines() if "pf" in line} <= set(before.splitlines())
    assert dpu.release().changes == 0


def test_release_and_show_as_programs(network: Rack, tmp_path: Path) -> None:
    dpu = a_dpu(network)
    shown = json.loads(dpu.agent("show").stdout)
    assert sorted(shown) == sorted([".", dpu.domain(BLUE), dpu.domain(RED)])
    assert dpu.agent("release").returncode == 0
    assert json.loads(dpu.agent("show").stdout)["."]["chains"] == []


def test_the_program_says_by_its_exit_status_whether_the_kernel_agrees(network: Rack, tmp_path: Path) -> None:
    dpu = network.dpu(ONE)
    path = tmp_path / "spec.json"
    for said, status in (
        (json.dumps(to_json(spec([vpc()], [port(*HERE)]))), 0),
        (json.dumps({"spec": to_json(spec([vpc()], [port(*HERE, function="pf1")]))}), 1),
        ('{"vtepAddress": 1}', 2),
        ("[]", 2),
        ("{", 2),
    ):
        path.write_text(said)
        ran = dpu.agent("once", "--spec", str(path))
        assert (ran.returncode, "Traceback" in ran.stderr) == (status, False), said
        assert bool(ran.stdout) is (status != 2)
    assert dpu.agent("once", "--spec", str(tmp_path / "none.json")).returncode == 2


def test_a_port_that_is_not_there_keeps_no_other_from_being_enforced(network: Rack) -> None:
    dpu = network.dpu(ONE)
    dpu.ports["pf1"] = "pf1hpf"
    ports = [port(*HERE), port("10.1.0.7", function="pf1"), port("10.1.0.9", function="pf2")]
    enforced = dpu.enforce(spec([vpc()], ports))
    assert [(each.reason, each.functions) for each in enforced.problems] == [
        ("PortMissing", ("pf1",)),
        ("PortMissing", ("pf2",)),
    ]
    assert not enforced.agrees
    assert {each.function: each.state for each in enforced.ports} == {
        "pf0": "Tenant",
        "pf1": "Isolated",
        "pf2": "Isolated",
    }
    dpu.hosts["pf0"].take(*HERE)
    assert dpu.hosts["pf0"].pings("10.1.0.2")


def test_what_the_kernel_refuses_isolates_the_ports_of_that_vpc_alone(network: Rack) -> None:
    dpu = network.dpu(ONE, ("pf0", "pf1"))
    dpu.ip("link", "add", "alien", "type", "vxlan", "id", str(BLUE), "local", ONE, "dstport", "4789", "nolearning")
    enforced = dpu.enforce(wanted())
    (problem,) = enforced.problems
    assert problem.reason == "KernelRefused"
    assert f"link add {VX} type vxlan" in problem.message
    assert "pf0" in problem.functions
    assert {each.function: each.state for each in enforced.ports}["pf0"] == "Isolated"
    dpu.hosts["pf0"].take(*HERE)
    assert dpu.hosts["pf0"].reaches_nothing_at("10.1.0.2")
    dpu.ip("link", "delete", "alien")
    assert dpu.enforce(wanted()).agrees
    assert dpu.hosts["pf0"].pings("10.1.0.2")


def test_an_underlay_that_cannot_carry_a_vpc_isolates_its_ports_alone(network: Rack) -> None:
    dpu = network.dpu(ONE, ("pf0", "pf1"))
    vpcs = [vpc(BLUE, mtu=1501), vpc(RED, mtu=1500)]
    enforced = dpu.enforce(spec(vpcs, [port(*HERE), port("10.2.0.3", function="pf1", vni=RED)]))
    (problem,) = enforced.problems
    assert (problem.reason, problem.functions) == ("UnderlayMTU", ("pf0",))
    assert "1551" in problem.message
    assert {each.function: each.state for each in enforced.ports} == {"pf0": "Isolated", "pf1": "Tenant"}
    assert enforced.vnis == (RED,)


def test_without_conntrack_a_port_with_stateful_rules_is_isolated(
    network: Rack, monkeypatch: pytest.MonkeyPatch
) -> None:
    dpu = network.dpu(ONE, ("pf0", "pf1"))
    monkeypatch.setattr(nft, "has_conntrack", lambda: False)
    stateful = PortRule(direction="Egress", action="Allow", stateful=True)
    stateless = PortRule(direction="Egress", action="Allow")
    ports = [port(*HERE, rules=[stateful]), port("10.1.0.7", function="pf1", rules=[stateless])]
    enforced = dpu.enforce(spec([vpc()], ports))
    assert [(each.reason, each.functions) for each in enforced.problems] == [("NoConntrack", ("pf0",))]
    assert {each.function: each.state for each in enforced.ports} == {"pf0": "Isolated", "pf1": "Tenant"}


def test_this_kernel_has_conntrack(network: Rack) -> None:
    assert network.switch.inside(nft.has_conntrack)
    assert network.switch.output("nft", "list", "ruleset") == "", "asking leaves nothing"


@pytest.mark.parametrize(("had_rules", "reason"), [(False, "KernelRefused"), (True, "KernelUnreadable")])
def test_where_nothing_can_be_dropped_the_ports_are_down(
    network: Rack, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, had_rules: bool, reason: str
) -> None:
    dpu = network.dpu(ONE)
    if had_rules:
        assert dpu.enforce(spec([], [])).agrees
    monkeypatch.setenv("PATH", str(tmp_path))
    enforced = dpu.enforce(spec([], []))
    assert [each.reason for each in enforced.problems] == [reason]
    assert "nft is not installed" in enforced.problems[0].message
    monkeypatch.undo()
    (link,) = json.loads(dpu.output("ip", "-j", "link", "show", "pf0hpf"))
    assert "UP" not in link["flags"]


def test_namespaces_that_nobody_else_would_see_are_not_made(network: Rack, tmp_path: Path) -> None:
    """`ip netns exec` gives a program mounts of its own: the domains would end with it."""
    dpu = network.dpu(ONE)
    dpu.command = lambda *words: ["ip", "netns", "exec", dpu.name, *words]  # type: ignore[method-assign]
    said = dpu.once(spec([vpc()], [port(*HERE)]), tmp_path / "spec.json")
    assert [each["reason"] for each in said["problems"]] == ["NamespacesHidden"]
    assert said["ports"] == [{"function": "pf0", "state": "Isolated", "offloaded": "No"}]
    assert namespaces.domains_of(dpu.name) == []


def test_a_thousand_routes_take_less_than_a_second(network: Rack) -> None:
    dpu = network.dpu(ONE)
    remotes = {
        f"192.0.2.{dpu_number}": [f"10.{dpu_number}.0.{host}/32" for host in range(10)] for dpu_number in range(2, 102)
    }
    enforced = dpu.enforce(spec([vpc(remotes=remotes)], [port(*HERE)]))
    assert enforced.agrees
    state = dpu.inside(dpu.enforcer.observe).places[dpu.domain(BLUE)]
    assert len(state.routes) == 1000 + len(HERE)
    assert (len(state.fdb), len(state.neighbours)) == (100, 100 + len(HERE))
