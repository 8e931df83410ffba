"""Bad objects of tenant networks, each with the words that its author reads, and a good twin."""

from __future__ import annotations

from typing import Any

from tests.api.bad_row import Row
from tests.api.objects import (
    dpu,
    dpu_network,
    network_claim,
    network_pool,
    security_group,
    server,
    vpc,
    vpc_attachment,
)


def _cidrs(bad: list[str], good: list[str], *words: str) -> Row:
    return Row(f"a VPC of {' and '.join(bad)}", vpc(cidrs=bad), vpc(cidrs=good), words)


def _rule(mistake: str, bad: dict[str, Any], good: dict[str, Any], *words: str) -> Row:
    ingress = {"direction": "Ingress"}
    return Row(mistake, security_group(rules=[ingress | bad]), security_group(rules=[ingress | good]), words)


_RANGE = {"first": 10000, "last": 19999}

NETWORKS = (
    _cidrs(["10.1.0.0"], ["10.1.0.0/16"], "'10.1.0.0' is no subnet: write it as 10.1.0.0/16"),
    _cidrs(["10.1.0.7/16"], ["10.1.0.0/16"], "has host bits set", "such as 10.1.0.0/16"),
    _cidrs(["FD00:1::/64"], ["fd00:1::/64"], "lower case, without needless zeros", "write it as fd00:1::/64"),
    _cidrs(["169.254.0.0/16"], ["10.2.0.0/16"], "link-local or multicast", "use one such as 10.1.0.0/16"),
    _cidrs(["240.0.0.0/8"], ["10.2.0.0/16"], "cannot be routed"),
    _cidrs(["0.0.0.0/0"], ["10.0.0.0/8"], "loopback, link-local or multicast"),
    _cidrs(["10.1.0.0/31"], ["10.1.0.0/30"], "from 8 to 30 (IPv4)", "each attachment takes two addresses"),
    _cidrs(["fd00::/8"], ["fd00:1::/32"], "from 32 to 126 (IPv6)"),
    _cidrs(["10.1.0.0/16", "10.1.7.0/24"], ["10.1.0.0/16", "10.2.7.0/24"], "spec.cidrs", "overlap"),
    Row(
        "a subnet of a VPC taken away",
        vpc("{}", cidrs=["10.2.0.0/16"]),
        vpc("{}", cidrs=["10.1.0.0/16", "10.2.0.0/16"]),
        ("spec.cidrs", "only grow", "leave those that are there"),
        before=vpc("{}"),
    ),
    Row(
        "IPv6 with packets that are too small for it",
        vpc(cidrs=["fd00:1::/64"], mtuBytes=1000),
        vpc(cidrs=["10.1.0.0/16"], mtuBytes=1000),
        ("spec.mtuBytes", "1280 bytes at least"),
    ),
    Row(
        "a route from one family to the other",
        vpc(routes=[{"destination": "192.168.7.0/24", "nextHop": "fd00:1::3"}]),
        vpc(routes=[{"destination": "192.168.7.0/24", "nextHop": "10.1.0.3"}]),
        ("spec.routes[0]", "of one family"),
    ),
    *(
        Row(
            f"a route to {bad}",
            vpc(routes=[{"destination": bad, "nextHop": hop}]),
            vpc(routes=[{"destination": good, "nextHop": hop}]),
            ("spec.routes[0].destination", "cannot be routed"),
        )
        for bad, good, hop in (
            ("224.0.0.0/8", "0.0.0.0/0", "10.1.0.3"),
            ("127.0.0.1/32", "128.0.0.0/1", "10.1.0.3"),
            ("250.0.0.0/8", "192.168.7.0/24", "10.1.0.3"),
            ("fe80::/10", "::/0", "fd00:1::3"),
            ("ff02::/16", "fd00:2::/64", "fd00:1::3"),
        )
    ),
    Row(
        "a peer without its namespace",
        vpc(peers=[{"name": "main"}]),
        vpc(peers=[{"name": "main", "namespace": "green"}]),
        ("spec.peers[0].namespace", "Required value"),
    ),
    Row(
        "an attachment moved to another VPC",
        vpc_attachment("{}", vpcRef="other"),
        vpc_attachment("{}", quarantined=True),
        ("never changes: delete it and make another one",),
        before=vpc_attachment("{}"),
    ),
    Row(
        "a function by its name in Linux",
        vpc_attachment(function="enp3s0f0"),
        vpc_attachment(function="pf0vf3"),
        ("spec.function", "write pf0 for a physical one, pf0vf3 for a virtual one"),
    ),
    Row(
        "two addresses of one family",
        vpc_attachment(addresses=["10.1.0.3", "10.1.0.5"]),
        vpc_attachment(addresses=["10.1.0.3", "fd00:1::3"]),
        ("spec.addresses", "one IPv4 and one IPv6 address at most"),
    ),
    Row(
        "an address with a prefix length",
        vpc_attachment(addresses=["10.1.0.3/31"]),
        vpc_attachment(addresses=["10.1.0.3"]),
        ("is no IP address", "write it as 10.1.0.3"),
    ),
    Row(
        "an address in upper case",
        vpc_attachment(addresses=["FD00::3"]),
        vpc_attachment(addresses=["fd00::3"]),
        ("is no IP address in lower case"),
    ),
    _rule(
        "ports of ICMP", {"protocol": "ICMP", "ports": ["8"]}, {"protocol": "TCP", "ports": ["8"]}, "only TCP and UDP"
    ),
    _rule(
        "a reversed range of ports",
        {"protocol": "TCP", "ports": ["9-1"]},
        {"protocol": "TCP", "ports": ["1-9"]},
        "'9-1' is no port or range of ports: write 443 or 30000-32767",
    ),
    _rule(
        "a port that is none",
        {"protocol": "UDP", "ports": ["65536"]},
        {"protocol": "UDP", "ports": ["65535"]},
        "no port or range of ports",
    ),
    _rule("a rule without a direction", {"direction": None}, {}, "spec.rules[0].direction"),
    Row(
        "a second pool of identifiers",
        network_pool("other"),
        network_pool(),
        ("its name is default: add the ranges to that one",),
    ),
    Row(
        "a reversed range of identifiers",
        network_pool(vniRanges=[{"first": 7, "last": 3}]),
        network_pool(vniRanges=[{"first": 3, "last": 7}]),
        ("the range is reversed: first must not be greater than last",),
    ),
    Row(
        "overlapping ranges of identifiers",
        network_pool(vniRanges=[_RANGE, {"first": 19999, "last": 20010}]),
        network_pool(vniRanges=[_RANGE, {"first": 20000, "last": 20010}]),
        ("two ranges overlap",),
    ),
    Row(
        "routes by EVPN without a reflector",
        network_pool(routeDistribution={"type": "EVPN", "asn": 64512}),
        network_pool(routeDistribution={"type": "EVPN", "asn": 64512, "reflectors": ["10.100.0.2"]}),
        ("spec.routeDistribution", "EVPN needs asn, and reflectors", "or set type to APIServer"),
    ),
    Row(
        "routes by EVPN without a number of the autonomous system",
        network_pool(routeDistribution={"type": "EVPN", "reflectors": ["10.100.0.2"]}),
        network_pool(routeDistribution={"reflectors": ["10.100.0.2"]}),
        ("spec.routeDistribution", "EVPN needs asn"),
    ),
    Row(
        "a number of an autonomous system that has no room in a route target",
        network_pool(routeDistribution={"type": "EVPN", "asn": 65536, "reflectors": ["10.100.0.2"]}),
        network_pool(routeDistribution={"type": "EVPN", "asn": 65535, "reflectors": ["10.100.0.2"]}),
        ("spec.routeDistribution.asn", "less than or equal to 65535"),
    ),
    Row(
        "a reflector by name",
        network_pool(routeDistribution={"type": "EVPN", "asn": 64512, "reflectors": ["rr1"]}),
        network_pool(routeDistribution={"type": "EVPN", "asn": 64512, "reflectors": ["10.100.0.2"]}),
        ("spec.routeDistribution.reflectors[0]",),
    ),
    Row(
        "a reflector with a needless zero, which no controller could read",
        network_pool(routeDistribution={"type": "EVPN", "asn": 64512, "reflectors": ["10.100.0.02"]}),
        network_pool(routeDistribution={"type": "EVPN", "asn": 64512, "reflectors": ["10.100.0.2"]}),
        ("spec.routeDistribution.reflectors[0]", "not an IPv4 address"),
    ),
    Row(
        "identifiers for which EVPN has no room",
        network_pool(
            vniRanges=[{"first": 10000, "last": 1048576}],
            routeDistribution={"type": "EVPN", "asn": 64512, "reflectors": ["10.100.0.2"]},
        ),
        network_pool(
            vniRanges=[{"first": 10000, "last": 1048575}],
            routeDistribution={"type": "EVPN", "asn": 64512, "reflectors": ["10.100.0.2"]},
        ),
        ("spec.routeDistribution", "EVPN has room for VNIs up to 1048575"),
    ),
    Row(
        "a claim for nobody",
        network_claim(holder=None),
        network_claim(),
        ("spec.holder", "Required value"),
    ),
    Row(
        "a DPU's network from nowhere",
        dpu_network(vtepAddress="underlay"),
        dpu_network(vtepAddress="10.100.0.11"),
        ("spec.vtepAddress",),
    ),
    Row(
        "a tenant that can be no namespace",
        server(tenant="Blue Team"),
        server(tenant="blue-team"),
        ("spec.tenant", "no name of a namespace"),
    ),
    Row(
        "a function of a card twice",
        dpu(card={"functions": [{"name": "pf0"}, {"name": "pf0"}]}),
        dpu(card={"functions": [{"name": "pf0"}, {"name": "pf0vf0"}]}),
        ("spec.dpu.functions[1]", "Duplicate value"),
    ),
    *(
        Row(
            f"a DPU at {bad} on the underlay",
            dpu(card={"vtepAddress": bad}),
            dpu(card={"vtepAddress": "10.100.0.11"}),
            ("spec.dpu.vtepAddress", "no card can have the address"),
        )
        for bad in ("0.0.0.0", "127.0.0.1", "224.0.0.5", "255.255.255.255")  # noqa: S104 - the value that is refused
    ),
)
