"""Two tenants on DPUs whose routes go by FRR's bgpd; what a stolen DPU announces, and what would come of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from provisioner.network.evpn.configuration import Configuration
from provisioner.network.evpn.learn import read_heard
from provisioner.network.evpn.speaker import OwnRoute, speaker
from provisioner.network.evpn.vty import BgpdFailed
from tests.network.agent.rack import Rack
from tests.network.agent.specs import BLUE, ONE, RED, TWO, port, spec, vpc
from tests.network.evpn.fabric import FABRIC, EvpnFabric, Member, evpn_fabric, wait_until
from tests.network.evpn.start import render

HERE, THERE, THIRD = "10.1.0.3", "10.1.0.5", "10.1.0.7"
THREE = "192.0.2.3"


@pytest.fixture
def fabric(network: Rack, tmp_path: Path) -> Iterator[EvpnFabric]:
    with evpn_fabric(network, tmp_path) as made:
        yield made


def has(member: Member, address: str, *vnis: int, of: Mapping[int, tuple[str, ...]]) -> None:
    """A host with this address in each VPC; `of`: by VPC the other DPUs that are in it."""
    functions = [f"pf{number}" for number in range(len(vnis))]
    for function in functions:
        member.dpu.hosts[function].become(member.dpu.hosts[function].mac, address)
    ports = [port(address, vtep=member.dpu.vtep, function=f, vni=v) for f, v in zip(functions, vnis, strict=True)]
    member.spec = spec([vpc(vni, members=of[vni]) for vni in vnis], ports, vtep=member.dpu.vtep)


def two_of_blue_and_three_of(fabric: EvpnFabric, vni: int) -> tuple[Member, Member, Member]:
    """Two DPUs in BLUE, and a third one, with its own address, in `vni`; all have heard of each other."""
    one, two, three = (fabric.member(vtep) for vtep in (ONE, TWO, THREE))
    others = (THREE,) if vni == BLUE else ()
    has(one, HERE, BLUE, of={BLUE: (TWO, *others)})
    has(two, THERE, BLUE, of={BLUE: (ONE, *others)})
    has(three, THIRD, vni, of={vni: (ONE, TWO) if vni == BLUE else ()})
    fabric.tell_reflector({ONE: [BLUE], TWO: [BLUE], THREE: [vni]})
    fabric.until(lambda: f"{THERE}" in one.knows(BLUE) and HERE in two.knows(BLUE), "the two know each other")
    if vni == BLUE:
        fabric.until(lambda: THIRD in one.knows(BLUE) and THIRD in two.knows(BLUE), "and the third one")
    return one, two, three


def also(member: Member, vni: int, address: str) -> Configuration:
    """What the DPU announces honestly, and an address of its VPC `vni` besides."""
    own = [OwnRoute(each.vni, f"{each.addresses[0]}/32") for each in member.spec.ports]
    return speaker(member.dpu.vtep, FABRIC, [*own, OwnRoute(vni, f"{address}/32")])


def hears(member: Member, words: str) -> bool:
    """Whether its bgpd holds a route with these words, from anywhere."""
    return words in str(member.daemon.bgpd.routes())


def who_says_it_has(address: str, member: Member) -> set[str]:
    """DPUs, as the member's bgpd has heard."""
    heard = read_heard(member.daemon.bgpd.routes(), {}, FABRIC.asn)
    return {route.vtep for route in heard.routes if route.prefix == f"{address}/32"}


def test_the_same_addresses_in_two_tenants_stay_apart(fabric: EvpnFabric) -> None:
    one, two = (fabric.member(vtep, ("pf0", "pf1")) for vtep in (ONE, TWO))
    has(one, HERE, BLUE, RED, of={BLUE: (TWO,), RED: (TWO,)})
    has(two, THERE, BLUE, RED, of={BLUE: (ONE,), RED: (ONE,)})
    fabric.tell_reflector({ONE: [BLUE, RED], TWO: [BLUE, RED]})
    fabric.until(lambda: one.knows(BLUE) == one.knows(RED) == {THERE: TWO}, "both VPCs are known")
    fabric.until(lambda: two.knows(BLUE) == two.knows(RED) == {HERE: ONE}, "on both DPUs")
    for function in ("pf0", "pf1"):
        assert one.dpu.hosts[function].pings(THERE)
    has(two, THERE, BLUE, of={BLUE: (ONE,)})
    has(one, HERE, BLUE, RED, of={BLUE: (TWO,), RED: ()})
    fabric.until(lambda: one.knows(RED) == {}, "what is detached is gone")
    assert one.knows(BLUE) == {THERE: TWO}
    assert one.dpu.hosts["pf0"].pings(THERE)
    assert one.dpu.hosts["pf1"].reaches_nothing_at(THERE)


def test_an_attached_host_is_reached_by_both_families_and_the_second_look_changes_nothing(fabric: EvpnFabric) -> None:
    one, two = (fabric.member(vtep) for vtep in (ONE, TWO))
    for member, addresses, other in ((one, (HERE, "fd00:1::3"), TWO), (two, (THERE, "fd00:1::5"), ONE)):
        member.dpu.hosts["pf0"].take(*addresses)
        ports = [port(*addresses, vtep=member.dpu.vtep, prefixes=(f"172.16.{member.dpu.vtep[-1]}.0/24",))]
        member.spec = spec([vpc(members=(other,))], ports, vtep=member.dpu.vtep)
    fabric.tell_reflector({ONE: [BLUE], TWO: [BLUE]})
    fabric.until(lambda: one.knows(BLUE) == {THERE: TWO, "172.16.2.0/24": TWO}, "all of the other is known")
    fabric.until(lambda: len(two.knows(BLUE)) == 2, "on both")
    assert one.dpu.hosts["pf0"].pings(THERE)
    assert one.dpu.hosts["pf0"].pings("fd00:1::5")
    learned, enforced = one.look()
    assert (enforced.agrees, enforced.changes, learned.refused) == (True, 0, ())
    assert one.exchange.announce(learned.spec, ["pf0"]) == 0


def test_a_dpu_cannot_announce_into_a_vpc_that_it_has_not(fabric: EvpnFabric) -> None:
    one, _, three = two_of_blue_and_three_of(fabric, RED)
    routes = [OwnRoute(BLUE, "10.1.0.9/32"), OwnRoute(RED, f"{THIRD}/32"), OwnRoute(RED, "10.1.0.11/32")]
    three.announce_instead(speaker(THREE, FABRIC, routes))
    wait_until(lambda: "10.1.0.11" in str(fabric.reflector.bgpd.routes()), "what it announces honestly is taken")
    assert hears(three, "10.1.0.9")
    assert "10.1.0.9" not in str(fabric.reflector.bgpd.routes())
    assert not hears(three, HERE), "nor is it told what is in there"

    fabric.tell_reflector({ONE: [BLUE], TWO: [BLUE], THREE: [BLUE, RED]})
    wait_until(lambda: who_says_it_has("10.1.0.9", one) == {THREE}, "a reflector that believes it hands it on")
    learned, _ = one.look()
    assert [(each.route.prefix, each.reason) for each in learned.refused] == [("10.1.0.9/32", "NotAMember")]
    assert one.knows(BLUE) == {THERE: TWO}

    has(one, HERE, BLUE, of={BLUE: (TWO, THREE)})
    one.look()
    assert one.knows(BLUE) == {THERE: TWO, "10.1.0.9": THREE}, "with nothing in its way it would be there"


def test_a_dpu_of_the_same_vpc_cannot_take_an_address_that_another_has(fabric: EvpnFabric) -> None:
    one, _, three = two_of_blue_and_three_of(fabric, BLUE)
    three.announce_instead(also(three, BLUE, THERE))
    wait_until(lambda: who_says_it_has(THERE, one) == {TWO, THREE}, "both announce it")
    learned, _ = one.look()
    assert [(each.route.vtep, each.reason) for each in learned.refused] == [(THREE, "ClaimedByTwo")]
    assert one.knows(BLUE) == {THERE: TWO, THIRD: THREE}
    assert one.dpu.hosts["pf0"].pings(THERE)


def test_it_takes_one_that_nobody_has_and_that_is_what_is_given_up(fabric: EvpnFabric) -> None:
    one, _, three = two_of_blue_and_three_of(fabric, BLUE)
    three.announce_instead(also(three, BLUE, "10.1.0.9"))

    def is_believed() -> bool:
        one.look()
        return one.knows(BLUE).get("10.1.0.9") == THREE

    wait_until(is_believed, "it is believed: with routes by the API server it could not even be said")


def test_it_cannot_hide_anothers_address_behind_that_ones_distinguisher(fabric: EvpnFabric) -> None:
    one, two, _ = two_of_blue_and_three_of(fabric, BLUE)
    forged = {
        section: tuple(line.replace(f"rd {TWO}:", f"rd {THREE}:") if THIRD in line else line for line in lines)
        for section, lines in also(two, BLUE, THIRD).items()
    }
    # Where the honest route was heard first, FRR 8.4 would announce a mutilated one.
    two.announce_instead({})
    two.daemon.stop()
    two.daemon.start(render(forged))

    def is_hidden() -> bool:
        heard = read_heard(one.daemon.bgpd.routes(), {}, FABRIC.asn)
        return (BLUE, f"{THIRD}/32") in heard.contested and THIRD not in str(heard.routes)

    wait_until(is_hidden, "the reflector has the forged route instead of the honest one")
    one.look()
    assert one.knows(BLUE)[THIRD] == THREE
    assert one.dpu.hosts["pf0"].pings(THIRD)


def test_reflectors_that_are_away_take_nobodys_network_down(fabric: EvpnFabric) -> None:
    one, two = (fabric.member(vtep) for vtep in (ONE, TWO))
    has(one, HERE, BLUE, of={BLUE: (TWO,)})
    has(two, THERE, BLUE, of={BLUE: (ONE,)})
    fabric.tell_reflector({ONE: [BLUE], TWO: [BLUE]})
    fabric.until(lambda: one.knows(BLUE) == {THERE: TWO} and two.knows(BLUE) == {HERE: ONE}, "they know each other")
    fabric.reflector.stop()
    wait_until(lambda: not hears(one, THERE), "bgpd knows nothing any more")
    _, enforced = one.look()
    assert enforced.agrees
    assert one.knows(BLUE) == {THERE: TWO}
    assert one.dpu.hosts["pf0"].pings(THERE)


def test_what_somebody_else_changed_in_bgpd_is_mended(fabric: EvpnFabric) -> None:
    one = fabric.member(ONE)
    has(one, HERE, BLUE, of={BLUE: ()})
    one.look()
    told = speaker(ONE, FABRIC, [OwnRoute(BLUE, f"{HERE}/32")])
    one.daemon.bgpd.apply(also(one, BLUE, "10.1.0.9"))
    wait_until(lambda: hears(one, "10.1.0.9"), "bgpd announces what nobody of us told it")
    one.look()
    wait_until(lambda: not hears(one, "10.1.0.9"), "and does no more")
    assert one.daemon.bgpd.apply(told) == 0


def test_a_dpu_notices_that_what_it_announces_is_not_what_it_was_told_to(fabric: EvpnFabric) -> None:
    """FRR 8.4 mutilates an address that it has heard of under the DPU's own distinguisher before."""
    one, _, three = two_of_blue_and_three_of(fabric, BLUE)
    forged = {
        section: tuple(line.replace(f"rd {THREE}:", f"rd {ONE}:") if "10.1.0.9" in line else line for line in lines)
        for section, lines in also(three, BLUE, "10.1.0.9").items()
    }
    three.announce_instead(forged)
    wait_until(lambda: hears(one, "10.1.0.9"), "it hears of an address of its own that it has not")
    one.look()
    has(one, "10.1.0.9", BLUE, of={BLUE: (TWO, THREE)})
    with pytest.raises(BgpdFailed, match=r"announces"):
        one.look()


def test_what_a_stolen_dpu_announced_goes_with_its_vpc_though_its_speaker_does_not_listen(fabric: EvpnFabric) -> None:
    fabric.tell_reflector({THREE: [BLUE]})
    thief = fabric.thief(THREE, BLUE, "10.1.0.9/32")
    try:
        wait_until(lambda: "10.1.0.9" in str(fabric.reflector.bgpd.routes()), "it is taken")
        fabric.tell_reflector({THREE: []})
        wait_until(lambda: "10.1.0.9" not in str(fabric.reflector.bgpd.routes()), "it is taken no more")
        assert thief.poll() is None
    finally:
        thief.kill()
        thief.wait()
