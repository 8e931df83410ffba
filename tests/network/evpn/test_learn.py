"""What is believed of what other DPUs announce."""

from __future__ import annotations

import ipaddress
import json
import random
from collections.abc import Collection
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from provisioner.api.network.dpu_network import DPUNetworkSpec
from provisioner.network.evpn import learn as module
from provisioner.network.evpn.identity import communities
from provisioner.network.evpn.learn import EvpnRoute, HeardRoutes, Learned, RefusedRoute, read_heard
from tests.network.agent.specs import BLUE, RED, TWO, in_spaces, port, spec, vpc

THREE = "192.0.2.3"
SPEC = spec([vpc(members=(TWO, THREE))], [port("10.1.0.3")])
OF_TWO, OF_THREE = EvpnRoute(BLUE, "10.1.0.5/32", TWO), EvpnRoute(BLUE, "10.1.0.5/32", THREE)
ASN = 64512
WITHIN = {BLUE: ("10.1.0.0/16",), RED: ("10.1.0.0/16", "10.9.0.0/16")}
ESTABLISHED: dict[str, Any] = {"peers": {"192.0.2.250": {"state": "Established", "peerUptimeMsec": 60_000}}}


def learn(told: DPUNetworkSpec, heard_: HeardRoutes, held: Collection[EvpnRoute]) -> Learned:
    return module.learn(in_spaces(told, WITHIN), heard_, held)


def heard(*routes: EvpnRoute, settled: bool = True, contested: Collection[tuple[int, str]] = ()) -> HeardRoutes:
    return HeardRoutes(frozenset(routes), 0, settled, frozenset(contested))


def said(route: EvpnRoute, *, of: str | None = None, **other: Any) -> dict[str, Any]:
    """The route as bgpd says it. `of`: the DPU that its distinguisher names."""
    address, _, length = route.prefix.partition("/")
    path = {
        "valid": True,
        "bestpath": True,
        "routeType": 5,
        "ethTag": 0,
        "ipLen": int(length),
        "ip": address,
        "peerId": "192.0.2.250",
        "extendedCommunity": {"string": communities(ASN, route.vni)},
        "nexthops": [{"ip": route.vtep, "afi": "ipv4", "used": True}],
        **other,
    }
    name = f"{of or route.vtep}:{route.vni & 0xFFFF}"
    return {name: {"rd": name, f"[5]:[0]:[{length}]:[{address}]": {"paths": [[path]]}}, "numPrefix": 1}


def behind(spec_: Any, at: int = 0) -> dict[str, tuple[str, ...]]:
    return {each.vtep: each.prefixes for each in spec_.vpcs[at].remotes}


def test_a_members_route_is_believed() -> None:
    learned = learn(SPEC, heard(OF_TWO), ())
    assert behind(learned.spec) == {TWO: ("10.1.0.5/32",)}
    assert (learned.held, learned.refused) == ({OF_TWO}, ())


def test_who_is_no_member_is_not_believed() -> None:
    stranger = EvpnRoute(BLUE, "10.1.0.5/32", "192.0.2.9")
    elsewhere = EvpnRoute(RED, "10.1.0.5/32", TWO)
    learned = learn(SPEC, heard(stranger, elsewhere), ())
    assert behind(learned.spec) == {}
    assert {each.reason for each in learned.refused} == {"NotAMember"}
    assert len(learned.refused) == 2


def test_what_is_not_of_the_vpcs_own_space_is_not_believed_neither_now_nor_once_the_space_is_smaller() -> None:
    for prefix in ("10.9.0.5/32", "10.0.0.0/8", "0.0.0.0/0", "fd00:1::5/128"):
        stranger = EvpnRoute(BLUE, prefix, TWO)
        learned = learn(SPEC, heard(stranger), ())
        assert behind(learned.spec) == {}
        assert learned.refused == (RefusedRoute(stranger, "OutsideVPC"),)
    assert behind(module.learn(SPEC, heard(settled=False), {OF_TWO}).spec) == {}
    wide = in_spaces(SPEC, {BLUE: ("10.1.0.0/16", "0.0.0.0/0", "::/0")})
    assert behind(module.learn(wide, heard(EvpnRoute(BLUE, "0.0.0.0/0", TWO)), ()).spec) == {TWO: ("0.0.0.0/0",)}


def test_a_dpu_of_a_peer_takes_no_address_of_ours() -> None:
    peered = spec(
        [vpc(members=(TWO,), peers=(RED,)), vpc(RED, members=(THREE,), peers=(BLUE,))],
        [port("10.1.0.3")],
    )
    apart = in_spaces(peered, {BLUE: ("10.1.0.0/16",), RED: ("10.9.0.0/16",)})
    learned = module.learn(apart, heard(EvpnRoute(RED, "10.1.0.7/32", THREE), EvpnRoute(RED, "10.9.0.7/32", THREE)), ())
    assert behind(learned.spec) == {THREE: ("10.9.0.7/32",)}


def test_nobody_has_an_address_that_is_behind_the_dpu_itself() -> None:
    mine = EvpnRoute(BLUE, "10.1.0.3/32", TWO)
    learned = learn(SPEC, heard(mine), ())
    assert behind(learned.spec) == {}
    assert learned.refused == (RefusedRoute(mine, "OwnAddress"),)


def test_of_two_who_say_so_the_first_stays_and_of_two_new_ones_neither_comes() -> None:
    assert behind(learn(SPEC, heard(OF_TWO, OF_THREE), {OF_THREE}).spec) == {THREE: ("10.1.0.5/32",)}
    assert behind(learn(SPEC, heard(OF_TWO, OF_THREE), {OF_TWO}).spec) == {TWO: ("10.1.0.5/32",)}
    learned = learn(SPEC, heard(OF_TWO, OF_THREE), ())
    assert behind(learned.spec) == {}
    assert {each.reason for each in learned.refused} == {"ClaimedByTwo"}


def test_an_address_that_moves_is_behind_the_next_one_once_the_first_has_let_go() -> None:
    assert behind(learn(SPEC, heard(OF_THREE), {OF_TWO}).spec) == {THREE: ("10.1.0.5/32",)}


def test_what_is_not_announced_any_more_goes_but_not_while_no_session_has_lasted() -> None:
    other = EvpnRoute(BLUE, "10.1.0.7/32", TWO)
    assert behind(learn(SPEC, heard(other), {OF_TWO, other}).spec) == {TWO: ("10.1.0.7/32",)}
    learned = learn(SPEC, heard(OF_THREE, settled=False), {OF_TWO})
    assert behind(learned.spec) == {TWO: ("10.1.0.5/32",)}
    assert learned.held == {OF_TWO}


def test_a_member_whose_bgpd_is_away_loses_nothing_but_what_another_one_announces() -> None:
    other = EvpnRoute(BLUE, "10.1.0.7/32", TWO)
    learned = learn(SPEC, heard(OF_THREE), {OF_TWO, other})
    assert behind(learned.spec) == {TWO: ("10.1.0.7/32",), THREE: ("10.1.0.5/32",)}
    elsewhere = spec([vpc(members=(TWO,)), vpc(RED, members=(TWO,))], [port("10.1.0.3")])
    assert behind(learn(elsewhere, heard(EvpnRoute(RED, "10.9.0.5/32", TWO)), {OF_TWO}).spec) == {TWO: ("10.1.0.5/32",)}


def test_what_was_told_before_stays_though_its_dpu_has_begun_to_announce() -> None:
    other = EvpnRoute(BLUE, "10.1.0.7/32", TWO)
    told = in_spaces(SPEC, WITHIN)
    learned = module.learn(told, heard(other), {OF_TWO}, {OF_TWO, other})
    assert behind(learned.spec) == {TWO: ("10.1.0.5/32", "10.1.0.7/32")}
    assert learned.awaited == {OF_TWO}
    assert behind(module.learn(told, heard(other, OF_THREE), (), {OF_TWO}).spec)[THREE] == ("10.1.0.5/32",)


def test_a_forged_distinguisher_takes_away_nothing_and_brings_nothing() -> None:
    contested = {(BLUE, "10.1.0.5/32")}
    assert behind(learn(SPEC, heard(contested=contested), {OF_TWO}).spec) == {TWO: ("10.1.0.5/32",)}
    assert behind(learn(SPEC, heard(contested=contested), ()).spec) == {}


def test_who_leaves_the_vpc_is_believed_no_more_though_the_session_is_gone() -> None:
    left = spec([vpc(members=(THREE,))], [port("10.1.0.3")])
    assert behind(learn(left, heard(settled=False), {OF_TWO}).spec) == {}


def test_a_peers_routes_come_after_the_vpcs_own() -> None:
    peered = spec(
        [vpc(members=(TWO,), peers=(RED,)), vpc(RED, members=(TWO, THREE), peers=(BLUE,))], [port("10.1.0.3")]
    )
    own, peers, other = OF_TWO, EvpnRoute(RED, "10.1.0.5/32", THREE), EvpnRoute(RED, "10.9.0.5/32", THREE)
    mine = EvpnRoute(RED, "10.1.0.3/32", THREE)
    learned = learn(peered, heard(own, peers, other, mine), ())
    assert behind(learned.spec) == {TWO: ("10.1.0.5/32",), THREE: ("10.9.0.5/32",)}
    assert behind(learned.spec, 1) == {THREE: ("10.1.0.3/32", "10.1.0.5/32", "10.9.0.5/32")}, (
        "by which its packets come"
    )


def test_who_announces_too_much_is_told_no_more_but_keeps_what_it_had(monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "MOST_OF_A_DPU", 3)
    flood = [EvpnRoute(BLUE, f"10.1.1.{number}/32", TWO) for number in range(1, 9, 2)]
    learned = learn(SPEC, heard(OF_TWO, EvpnRoute(BLUE, "10.1.0.7/32", THREE), *flood), {OF_TWO})
    assert behind(learned.spec) == {TWO: ("10.1.0.5/32",), THREE: ("10.1.0.7/32",)}
    assert {each.reason for each in learned.refused} == {"TooMany"}


def test_the_order_in_which_routes_come_does_not_matter() -> None:
    routes = [EvpnRoute(BLUE, f"10.1.{a}.{b}/32", vtep) for a in range(2) for b in (5, 7) for vtep in (TWO, THREE)]
    held = routes[::3]
    first = learn(SPEC, heard(*routes), held)
    for seed in range(10):
        random.Random(seed).shuffle(routes)
        assert learn(SPEC, heard(*routes), held) == first


def test_routes_are_read_as_bgpd_says_them() -> None:
    found = read_heard(said(OF_TWO), ESTABLISHED, ASN)
    assert found == HeardRoutes(frozenset({OF_TWO}), 0, True, is_connected=True)
    six = EvpnRoute(BLUE, "fd00:1::5/128", TWO)
    assert read_heard(said(six), {}, ASN) == HeardRoutes(frozenset({six}), 0, False)


def test_our_own_and_what_is_not_valid_is_passed_over() -> None:
    for other in ({"peerId": "(unspec)"}, {"valid": False}, {"bestpath": False}):
        assert read_heard(said(OF_TWO, **other), {}, ASN) == HeardRoutes(frozenset(), 0, False)


def test_a_route_that_leads_elsewhere_than_its_distinguisher_says_is_contested() -> None:
    found = read_heard(said(OF_TWO, of=THREE), {}, ASN)
    assert found == HeardRoutes(frozenset(), 0, False, frozenset({(BLUE, "10.1.0.5/32")}))


def test_what_is_not_as_ours_are_is_counted_and_no_more() -> None:
    for other in (
        {"extendedCommunity": {"string": f"RT:{ASN}:{BLUE}"}},
        {"extendedCommunity": {"string": f"RT:{ASN}:{RED} {communities(ASN, BLUE)}"}},
        {"extendedCommunity": {"string": communities(ASN + 1, BLUE)}},
        {"routeType": 2},
        {"ipLen": 16},
        {"ipLen": 33},
        {"ip": "::ffff:10.1.0.5"},
        {"nexthops": []},
        {"nexthops": [{"ip": "fd00::1"}]},
        {"nexthops": [{"ip": TWO}, {"ip": THREE}]},
    ):
        assert read_heard(said(OF_TWO, **other), {}, ASN).unreadable == 1, other


def test_a_session_counts_once_it_has_lasted() -> None:
    for up, settled in ((1_000, False), (5_000, True)):
        sessions = {"peers": {"192.0.2.250": {"state": "Established", "peerUptimeMsec": up}}}
        assert read_heard({}, sessions, ASN).is_settled is settled
    assert not read_heard({}, {"peers": {"x": {"state": "Active", "peerUptimeMsec": 9_000}}}, ASN).is_settled


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["paths", "nexthops", "ip", "peers", "state", "bestpath", "valid", "extendedCommunity", "rd"]
            )
            | st.text(max_size=6),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(
    st.dictionaries(st.text(max_size=12) | st.just(f"{TWO}:1"), _JSON, max_size=4), st.dictionaries(st.text(), _JSON)
)
def test_whatever_bgpd_says_nothing_is_raised_and_nothing_strange_believed(routes: Any, sessions: Any) -> None:
    found = read_heard(json.loads(json.dumps(routes)), sessions, ASN)
    assert not found.routes


def test_who_announces_far_too_much_has_nobody_look_at_each_of_it(monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "MOST_OF_A_DPU", 3)
    looked_at: list[str] = []

    def ip_network(prefix: str) -> Any:
        looked_at.append(prefix)
        return ipaddress.ip_network(prefix)

    monkeypatch.setattr(module, "ip_network", ip_network)
    flood = [EvpnRoute(BLUE, f"172.16.{number}.1/32", TWO) for number in range(200)]
    learned = learn(SPEC, heard(OF_TWO, EvpnRoute(BLUE, "10.1.0.7/32", THREE), *flood), {OF_TWO})
    assert behind(learned.spec) == {TWO: ("10.1.0.5/32",), THREE: ("10.1.0.7/32",)}
    assert len(learned.refused) == len(flood)
    assert len(looked_at) < 20
