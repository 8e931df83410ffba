"""Headers by which a host tries to get past a security group that denies one port and lets everything else pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ipaddress import ip_address

import pytest
from scapy.compat import raw
from scapy.layers.inet import IP, UDP, IPOption_NOP, fragment
from scapy.layers.inet6 import (
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
    PadN,
)
from scapy.packet import Packet, Raw

from provisioner.api.network.dpu_network import PortRule
from tests.network.agent.rack import DPU, Rack, mac_of
from tests.network.agent.specs import BLUE, ONE, TWO, port, spec, vpc
from tests.network.isolation.frames import MARK, count_heard, ear, frame, is_heard, send
from tests.network.isolation.test_attacks import without_filters

HERE, THERE = ("10.1.0.3", "fd00:1::3"), ("10.1.0.5", "fd00:1::5")
DENIED, ALLOWED = 4001, 4002
RULES = (
    PortRule(direction="Ingress", action="Deny", protocol="UDP", ports=(str(DENIED),)),
    PortRule(direction="Ingress", action="Allow"),
)
LAST = b"the last of all"
FOUR = IP(src=HERE[0], dst=THERE[0])
SIX = IPv6(src=HERE[1], dst=THERE[1])


def datagram(target_port: int) -> Packet:
    return UDP(sport=4000, dport=target_port, chksum=0) / (MARK * 4)


def pieces(target_port: int, *, first: int, before: bytes = b"", kind: int = 17) -> list[Packet]:
    """Two fragments of a datagram over IPv6, the first of `first` bytes. `before`: a header of `kind` before UDP's."""
    whole = before + raw(datagram(target_port))
    return [
        SIX / IPv6ExtHdrFragment(nh=kind, id=7, m=1, offset=0) / Raw(whole[:first]),
        SIX / IPv6ExtHdrFragment(nh=kind, id=7, m=0, offset=first // 8) / Raw(whole[first:]),
    ]


OPTIONS = bytes([17, 1, 1, 12]) + bytes(12)
"""Of 16 bytes, for the destination, before UDP."""
TRICKS: dict[str, Callable[[int], Sequence[Packet]]] = {
    "none": lambda to: [FOUR / datagram(to)],
    "none, by IPv6": lambda to: [SIX / datagram(to)],
    "options of IPv4": lambda to: [IP(src=HERE[0], dst=THERE[0], options=[IPOption_NOP()] * 4) / datagram(to)],
    "IPv4 in pieces": lambda to: fragment(FOUR / datagram(to), fragsize=8),
    "hop-by-hop options": lambda to: [SIX / IPv6ExtHdrHopByHop(options=[PadN(optdata=bytes(4))]) / datagram(to)],
    "destination options": lambda to: [SIX / IPv6ExtHdrDestOpt() / IPv6ExtHdrDestOpt() / datagram(to)],
    "a routing header": lambda to: [SIX / IPv6ExtHdrRouting(addresses=[], segleft=0) / datagram(to)],
    "a piece that is all": lambda to: [SIX / IPv6ExtHdrFragment(id=7) / datagram(to)],
    "IPv6 in pieces": lambda to: pieces(to, first=24),
    "IPv6 in pieces, the ports in the second": lambda to: pieces(to, first=8, before=OPTIONS, kind=60),
}


SENT_BY_NOBODY_HONEST = {"IPv6 in pieces, the ports in the second"}
"""Not even to a port that is allowed: RFC 7112 has all headers in the first piece."""


@pytest.fixture
def pair(network: Rack) -> tuple[DPU, DPU]:
    """Two DPUs with a host of one VPC each, of which the second one's is denied a port. Its rules know no connections:
    by those that do the DPU would put pieces together before it looks."""
    one, two = network.dpu(ONE), network.dpu(TWO)
    for dpu, other, mine, theirs in ((one, TWO, HERE, THERE), (two, ONE, THERE, HERE)):
        dpu.hosts["pf0"].take(*mine)
        behind = {other: (f"{theirs[0]}/32", f"{theirs[1]}/128")}
        rules = RULES if dpu is two else ()
        enforced = dpu.enforce(spec([vpc(remotes=behind)], [port(*mine, vtep=dpu.vtep, rules=rules)], vtep=dpu.vtep))
        assert enforced.agrees, enforced.problems
    return one, two


def arrives(pair: tuple[DPU, DPU], packets: Sequence[Packet]) -> bool:
    """Whether all of them do, and not only what is sent after them and always does."""
    senders, arrived = {ip_address(each).packed for each in HERE}, 0
    last = FOUR / UDP(sport=4000, dport=ALLOWED, chksum=0) / LAST

    def is_one(got: bytes) -> bool:
        return got[26:30] in senders if got[12:14] == b"\x08\x00" else got[22:38] in senders

    def is_last(got: bytes) -> bool:
        nonlocal arrived
        if LAST in got:
            return True
        arrived += is_one(got)
        return False

    one, two = (each.hosts["pf0"] for each in pair)
    with ear(two) as heard:
        for each in (*packets, last):
            send(one, frame(each, mac=mac_of(ONE, "pf0")))
        assert is_heard(heard, is_last)
        left = len(packets) - arrived  # one may have been overtaken
        return left == 0 or count_heard(heard, is_one, seconds=0.3, enough=left) == left


@pytest.mark.parametrize("trick", TRICKS)
def test_what_is_denied_is_denied_in_whatever_headers(pair: tuple[DPU, DPU], trick: str) -> None:
    made = TRICKS[trick]
    assert arrives(pair, made(ALLOWED)) == (trick not in SENT_BY_NOBODY_HONEST)
    assert not arrives(pair, made(DENIED))
    for dpu in pair:
        without_filters(dpu, BLUE)
    assert arrives(pair, made(DENIED)), "with nothing in its way it would arrive"
