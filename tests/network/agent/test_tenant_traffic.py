"""What passes between hosts of a VPC, and what does not, over real DPUs' kernels."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from provisioner.api.network.dpu_network import PortRule
from tests.network.agent.rack import DPU, Rack
from tests.network.agent.specs import BLUE, ONE, RED, TWO, port, spec, vpc

HERE, THERE = ("10.1.0.3", "fd00:1::3"), ("10.1.0.5", "fd00:1::5")
HERE_PREFIXES, THERE_PREFIXES = ("10.1.0.3/32", "fd00:1::3/128"), ("10.1.0.5/32", "fd00:1::5/128")


def two_dpus(network: Rack, **how: object) -> tuple[DPU, DPU]:
    """A host of the blue VPC behind each; `how` is the first one's port."""
    one, two = network.dpu(ONE), network.dpu(TWO)
    first = one.enforce(spec([vpc(remotes={TWO: THERE_PREFIXES})], [port(*HERE, **how)]))  # type: ignore[arg-type]
    second = two.enforce(spec([vpc(remotes={ONE: HERE_PREFIXES})], [port(*THERE, vtep=TWO)], vtep=TWO))
    assert (first.problems, second.problems) == ((), ())
    assert first.agrees
    assert second.agrees
    one.hosts["pf0"].take(*HERE)
    two.hosts["pf0"].take(*THERE)
    return one, two


def test_hosts_of_a_vpc_reach_each_other_and_their_gateways(network: Rack) -> None:
    one, _ = two_dpus(network)
    for address in (*THERE, "10.1.0.2", "fd00:1::2"):
        assert one.hosts["pf0"].pings(address), address


def test_a_host_reaches_nothing_of_the_dpu_and_of_the_underlay(network: Rack) -> None:
    one, two = two_dpus(network)
    host = one.hosts["pf0"]
    for address in (ONE, TWO, "169.254.169.254", "fd00:ec2::254", "10.1.0.4", "10.9.9.9"):
        assert host.reaches_nothing_at(address), address
    # The other host's gateway answers that host alone.
    assert two.hosts["pf0"].pings("10.1.0.4")


def test_two_tenants_with_the_same_addresses_stay_apart(network: Rack) -> None:
    one, two = network.dpu(ONE, ("pf0", "pf1")), network.dpu(TWO)
    vpcs = [vpc(BLUE, remotes={TWO: THERE_PREFIXES}), vpc(RED)]
    ports = [port(*HERE), port(*HERE, function="pf1", vni=RED)]
    assert one.enforce(spec(vpcs, ports)).agrees
    assert two.enforce(spec([vpc(remotes={ONE: HERE_PREFIXES})], [port(*THERE, vtep=TWO)], vtep=TWO)).agrees
    for host in (*one.hosts.values(),):
        host.take(*HERE)
    two.hosts["pf0"].take(*THERE)
    assert one.hosts["pf0"].pings(THERE[0])
    assert one.hosts["pf1"].pings("10.1.0.2"), "the other tenant's own gateway has the same address"
    assert one.hosts["pf1"].reaches_nothing_at(THERE[0])


def test_a_source_that_is_not_the_hosts_own_is_dropped(network: Rack) -> None:
    one, _ = two_dpus(network)
    host = one.hosts["pf0"]
    for stranger, target in (("10.1.0.7", THERE[0]), ("fd00:1::7", THERE[1])):
        host.ip("addr", "add", stranger, "dev", "eth0", *(["nodad"] if ":" in stranger else []))
        assert host.reaches_nothing_at(target, source=stranger), stranger
        assert host.pings(target, source=HERE[0] if "." in stranger else HERE[1])
    host.ip("link", "set", "eth0", "address", "52:54:00:99:99:99")
    assert host.reaches_nothing_at(THERE[0])


def test_packets_of_a_dpu_that_is_no_member_are_dropped(network: Rack) -> None:
    one, two = two_dpus(network)
    alone = spec([vpc(remotes={TWO: THERE_PREFIXES}, members=())], [port(*HERE)])
    assert one.enforce(alone).agrees
    assert two.hosts["pf0"].reaches_nothing_at(HERE[0])
    assert one.enforce(spec([vpc(remotes={TWO: THERE_PREFIXES})], [port(*HERE)])).agrees
    assert two.hosts["pf0"].pings(HERE[0])


def test_what_another_dpu_sends_must_come_from_what_is_routed_to_it(network: Rack) -> None:
    one, two = two_dpus(network)
    # The other DPU lets its host be somebody else; this one knows who is behind it.
    liar = spec([vpc(remotes={ONE: HERE_PREFIXES})], [port("10.1.0.9", vtep=TWO)], vtep=TWO)
    assert two.enforce(liar).agrees
    two.hosts["pf0"].take("10.1.0.9")
    received = one.hosts["pf0"].output("cat", "/sys/class/net/eth0/statistics/rx_packets")
    assert two.hosts["pf0"].reaches_nothing_at(HERE[0], source="10.1.0.9")
    assert one.hosts["pf0"].output("cat", "/sys/class/net/eth0/statistics/rx_packets") == received


def test_a_quarantined_port_passes_nothing_and_comes_back(network: Rack) -> None:
    one, two = two_dpus(network)
    enforced = one.enforce(spec([vpc(remotes={TWO: THERE_PREFIXES})], [port(*HERE, state="Quarantined")]))
    assert enforced.agrees
    assert [each.state for each in enforced.ports] == ["Quarantined"]
    assert one.hosts["pf0"].reaches_nothing_at("10.1.0.2")
    assert two.hosts["pf0"].reaches_nothing_at(HERE[0])
    assert one.enforce(spec([vpc(remotes={TWO: THERE_PREFIXES})], [port(*HERE)])).agrees
    assert two.hosts["pf0"].pings(HERE[0])


@pytest.mark.parametrize(("here", "there"), list(zip(HERE, THERE, strict=True)))
def test_the_mtu_is_exact_and_the_gateway_says_so(network: Rack, here: str, there: str) -> None:
    one, two = two_dpus(network)
    host = one.hosts["pf0"]
    for each, address in ((host, here), (two.hosts["pf0"], there)):
        each.ip("link", "set", "eth0", "mtu", "9000")
        assert address
    assert host.pings(there, size_bytes=1450)
    gateway = "10.1.0.2" if "." in here else "fd00:1::2"
    for size in (1451, 1500, 8000):
        refused = host.echo(there, size_bytes=size, patience_seconds=60)
        assert not refused.answered
        assert refused.largest == [(gateway, 1450)], size


def test_peers_exchange_packets_on_one_dpu_and_between_two(network: Rack) -> None:
    """Blue is on both DPUs, red on the first, of which the second takes part as blue's peer."""
    one, two = network.dpu(ONE, ("pf0", "pf1")), network.dpu(TWO)
    red = ("10.2.0.3", "fd00:2::3")
    vpcs = [
        vpc(BLUE, remotes={TWO: THERE_PREFIXES}, peers=(RED,)),
        vpc(RED, remotes={TWO: THERE_PREFIXES}, peers=(BLUE,)),
    ]
    assert one.enforce(spec(vpcs, [port(*HERE), port(*red, function="pf1", vni=RED)])).agrees
    behind_one = (*HERE_PREFIXES, "10.2.0.3/32", "fd00:2::3/128")
    vpcs = [vpc(BLUE, remotes={ONE: behind_one}, peers=(RED,)), vpc(RED, remotes={ONE: behind_one}, peers=(BLUE,))]
    assert two.enforce(spec(vpcs, [port(*THERE, vtep=TWO)], vtep=TWO)).agrees
    for host, addresses in ((one.hosts["pf0"], HERE), (one.hosts["pf1"], red), (two.hosts["pf0"], THERE)):
        host.take(*addresses)
    for version in (0, 1):
        assert one.hosts["pf0"].pings(red[version]), "on one DPU, by the link"
        assert one.hosts["pf1"].pings(THERE[version]), "to the other one, in the sender's VNI"
        assert two.hosts["pf0"].pings(red[version])


def test_one_that_names_another_as_its_peer_without_being_named_reaches_nothing(network: Rack) -> None:
    one = network.dpu(ONE, ("pf0", "pf1"))
    ports = [port(*HERE), port("10.2.0.3", function="pf1", vni=RED)]
    assert one.enforce(spec([vpc(BLUE, peers=(RED,)), vpc(RED)], ports)).agrees
    one.hosts["pf0"].take(*HERE)
    one.hosts["pf1"].take("10.2.0.3")
    assert one.hosts["pf0"].reaches_nothing_at("10.2.0.3")


def test_addresses_behind_a_host_are_reached_by_it_and_may_send(network: Rack) -> None:
    one, two = two_dpus(network, prefixes=("192.168.7.0/24", "fd00:7::/64"))
    behind = (*HERE_PREFIXES, "192.168.7.0/24", "fd00:7::/64")
    assert two.enforce(spec([vpc(remotes={ONE: behind})], [port(*THERE, vtep=TWO)], vtep=TWO)).agrees
    one.hosts["pf0"].ip("addr", "add", "192.168.7.1/32", "dev", "lo")
    one.hosts["pf0"].ip("addr", "add", "fd00:7::1/128", "dev", "lo")
    assert two.hosts["pf0"].pings("192.168.7.1")
    assert two.hosts["pf0"].pings("fd00:7::1")


def allow(direction: str, *, stateful: bool, cidrs: tuple[str, ...] = ()) -> PortRule:
    return PortRule(direction=direction, action="Allow", protocol="ICMP", stateful=stateful, cidrs=cidrs)  # type: ignore[arg-type]


def test_a_stateful_rule_lets_answers_in_and_nothing_else(network: Rack) -> None:
    rules = [allow("Egress", stateful=True), PortRule(direction="Ingress", action="Deny")]
    one, two = two_dpus(network, rules=rules)
    for target, source in zip(THERE, HERE, strict=True):
        assert one.hosts["pf0"].pings(target)
        assert two.hosts["pf0"].reaches_nothing_at(source)


def test_a_stateless_rule_lets_no_answer_in(network: Rack) -> None:
    ingress = allow("Ingress", stateful=False, cidrs=("10.9.0.0/16",))
    one, _ = two_dpus(network, rules=[allow("Egress", stateful=False), ingress])
    assert one.hosts["pf0"].reaches_nothing_at(THERE[0])
    open_to_it = allow("Ingress", stateful=False, cidrs=("10.1.0.5/32",))
    wanted = spec(
        [vpc(remotes={TWO: THERE_PREFIXES})], [port(*HERE, rules=[allow("Egress", stateful=False), open_to_it])]
    )
    assert one.enforce(wanted).agrees
    assert one.hosts["pf0"].pings(THERE[0])
    assert one.hosts["pf0"].reaches_nothing_at(THERE[1]), "its rule is for IPv4 alone"


def test_connections_end_with_the_rule_that_allowed_them_and_with_no_other(network: Rack) -> None:
    other = PortRule(direction="Egress", action="Allow", protocol="UDP", ports=("53",), stateful=True)
    closed = PortRule(direction="Ingress", action="Deny")
    one, _ = two_dpus(network, rules=[allow("Egress", stateful=True), closed])
    assert one.hosts["pf0"].pings(THERE[0])

    def with_rules(*rules: PortRule) -> None:
        assert one.enforce(spec([vpc(remotes={TWO: THERE_PREFIXES})], [port(*HERE, rules=rules)])).agrees

    with_rules(other, allow("Egress", stateful=True), closed)
    assert one.hosts["pf0"].pings(THERE[0])
    with_rules(other, closed)
    assert one.hosts["pf0"].reaches_nothing_at(THERE[0])


def test_the_first_rule_that_speaks_of_a_packet_decides(network: Rack) -> None:
    denied = PortRule(direction="Egress", action="Deny", cidrs=("10.1.0.4/31",))
    rules = [denied, allow("Egress", stateful=True)]
    one, _ = two_dpus(network, rules=rules)
    assert one.hosts["pf0"].reaches_nothing_at(THERE[0])
    assert one.hosts["pf0"].pings(THERE[1])
    wanted = spec([vpc(remotes={TWO: THERE_PREFIXES})], [port(*HERE, rules=rules[::-1])])
    assert one.enforce(wanted).agrees
    assert one.hosts["pf0"].pings(THERE[0])


def test_neither_a_restart_nor_a_change_of_rules_loses_a_packet(network: Rack, tmp_path: Path) -> None:
    one, _ = two_dpus(network)
    wanted = spec([vpc(remotes={TWO: THERE_PREFIXES})], [port(*HERE)])
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(
            one.hosts["pf0"].echo, THERE[0], interval_seconds=0.005, until=stop.is_set, patience_seconds=60
        )
        time.sleep(0.1)
        said = one.once(wanted, tmp_path / "spec.json")
        changed = one.enforce(
            spec(
                [vpc(remotes={TWO: THERE_PREFIXES, "192.0.2.3": ("10.1.0.7/32",)})],
                [port(*HERE, rules=[allow("Ingress", stateful=False), allow("Egress", stateful=False)])],
            )
        )
        time.sleep(0.1)
        stop.set()
        echoes = sending.result()
    assert said["agrees"]
    assert said["changes"] == 0
    assert changed.agrees
    assert changed.changes > 0
    assert len(echoes.sent) > 40
    assert echoes.lost == []
