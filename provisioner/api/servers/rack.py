"""Rack: a place with subnets, where servers are registered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from provisioner.api.machinery.meta import Condition, Resource
from provisioner.api.machinery.rules import (
    CIDR_RULES,
    IPV4_RULES,
    LABEL_RULES,
    LABEL_VALUE_RULES,
    PLAIN_URL_RULES,
    PRINTABLE_RULES,
    ipv4_number,
)
from provisioner.api.machinery.schema import CelRule, Column, FieldSchema, Kind, described, listed, optional

_SERVER_ADDRESS = FieldSchema(doc="IPv4 address.", max_length=15, rules=IPV4_RULES)

LEAST_RATE_BYTES_PER_SECOND: Final = 262144
"""As stage-1 and the agent have it built in."""


def _inside(field: str, words: str) -> CelRule:
    """The address in `field` lies inside the subnet and is not its network address."""
    return CelRule(
        f"!has(self.{field}) || !isIP(self.{field}) || !isCIDR(self.cidr) || "
        f"(cidr(self.cidr).containsIP(self.{field}) && !self.cidr.startsWith(self.{field} + '/'))",
        f"{words} must be a host address of the subnet",
        expression=f"'{words} ' + self.{field} + ' is not a host address of subnet ' + self.cidr",
        field=f".{field}",
    )


def _in_order(start: str, end: str, words: str) -> CelRule:
    """The range from `start` to `end` is not reversed."""
    return CelRule(
        f"!has(self.{start}) || !has(self.{end}) || !isIP(self.{start}) || !isIP(self.{end}) || "
        f"({ipv4_number(f'self.{start}')}) <= ({ipv4_number(f'self.{end}')})",
        f"{words} is reversed: its start must not come after its end",
        expression=f"'{words} is reversed: ' + self.{start} + ' comes after ' + self.{end}",
        field=f".{end}",
    )


@dataclass(frozen=True, kw_only=True)
class Subnet:
    """One IPv4 subnet in which servers of the rack boot."""

    RULES: ClassVar[tuple[CelRule, ...]] = (
        _inside("gateway", "gateway"),
        _inside("rangeStart", "start of the range"),
        _inside("rangeEnd", "end of the range"),
        _inside("discoveryRangeStart", "start of the discovery range"),
        _inside("discoveryRangeEnd", "end of the discovery range"),
        _in_order("rangeStart", "rangeEnd", "the range"),
        _in_order("discoveryRangeStart", "discoveryRangeEnd", "the discovery range"),
        CelRule(
            "has(self.discoveryRangeStart) == has(self.discoveryRangeEnd)",
            "a discovery range needs both discoveryRangeStart and discoveryRangeEnd",
        ),
    )
    name: str = described("Name of the subnet, unique in the rack.", max_length=63, rules=LABEL_RULES)
    cidr: str = described("The subnet, such as 10.80.0.0/24; host bits zero.", max_length=18, rules=CIDR_RULES)
    gateway: str | None = optional("Router of the subnet; none for an isolated one.", max_length=15, rules=IPV4_RULES)
    dns_servers: tuple[str, ...] = listed("DNS servers that servers are told.", max_items=3, item=_SERVER_ADDRESS)
    ntp_servers: tuple[str, ...] = listed("NTP servers that servers are told.", max_items=4, item=_SERVER_ADDRESS)
    mtu: int | None = optional("MTU in bytes that servers are told.", minimum=576, maximum=9216)
    relays: tuple[str, ...] = listed(
        "Addresses (giaddr) of the DHCP relays that forward from this subnet; empty if a boot host is attached to it.",
        max_items=8,
        item=_SERVER_ADDRESS,
    )
    range_start: str | None = optional(
        "First address given to servers; the subnet's first host address but the gateway's if absent.",
        max_length=15,
        rules=IPV4_RULES,
    )
    range_end: str | None = optional(
        "Last address given to servers; the last host address if absent.", max_length=15, rules=IPV4_RULES
    )
    discovery_range_start: str | None = optional(
        "First address lent for minutes to unknown machines; without a discovery range they get none.",
        max_length=15,
        rules=IPV4_RULES,
    )
    discovery_range_end: str | None = optional(
        "Last address lent to unknown machines.", max_length=15, rules=IPV4_RULES
    )


@dataclass(frozen=True, kw_only=True)
class RackSpec:
    """Where the rack stands and which networks its servers boot from."""

    site: str | None = optional("Site or data centre.", max_length=63, rules=PRINTABLE_RULES)
    row: str | None = optional("Row in the site.", max_length=63, rules=PRINTABLE_RULES)
    failure_domain: str | None = optional(
        "Failure domain; becomes the label topology.kubernetes.io/zone of its Nodes.",
        max_length=63,
        rules=LABEL_VALUE_RULES,
    )
    subnets: tuple[Subnet, ...] = described(
        "Subnets in which servers of this rack boot; the first one is used where a server names none.",
        min_items=1,
        max_items=16,
        list_map_keys=("name",),
        rules=(
            CelRule(
                "self.all(a, !isCIDR(a.cidr) || self.all(b, a.name == b.name || !isCIDR(b.cidr) || "
                "!cidr(a.cidr).containsCIDR(b.cidr)))",
                "two subnets of the rack overlap: give each its own addresses",
            ),
        ),
    )
    cache_url: str | None = optional(
        "HTTP cache of the rack from which images are fetched first, such as http://10.80.0.5.",
        max_length=253,
        rules=PLAIN_URL_RULES,
    )
    least_rate_bytes_per_second: int | None = optional(
        "A source of images that gives a server less, over 15 s, is left for the next one; "
        f"{LEAST_RATE_BYTES_PER_SECOND} if absent. An image at this rate should come within the pool's "
        "stageTimeoutSeconds.root.",
        minimum=1024,
        maximum=1_000_000_000,
    )


@dataclass(frozen=True, kw_only=True)
class CacheReport:
    """What one boot host says of the rack's cache."""

    host: str = described("Name of the boot host.", max_length=253)
    time: str = described("When it said so last.", format="date-time")
    problem: str | None = optional("Why the cache is no good; absent if it gives what it should.", max_length=1024)


@dataclass(frozen=True, kw_only=True)
class RackStatus:
    """Counts of the rack's servers."""

    servers: int | None = optional("Servers registered in the rack.")
    ready_servers: int | None = optional("Servers whose Ready condition is True.")
    pending_servers: int | None = optional("Servers that wait to be accepted.")
    cache_reports: tuple[CacheReport, ...] = listed(
        "Boot hosts that have looked at the cache; one that no longer says so is left out after a quarter of an hour.",
        max_items=64,
        list_map_keys=("host",),
    )
    conditions: tuple[Condition, ...] = listed("Observations.", max_items=32, list_map_keys=("type",))


@dataclass(frozen=True, kw_only=True)
class Rack(Resource):
    KIND: ClassVar[Kind] = Kind(
        kind="Rack",
        short="rk",
        description="A rack: a place with subnets, where servers are registered.",
        columns=(
            Column("Site", ".spec.site"),
            Column("Subnet", ".spec.subnets[0].cidr"),
            Column("Servers", ".status.servers", type="integer"),
            Column("Ready", ".status.readyServers", type="integer"),
            Column("Pending", ".status.pendingServers", type="integer"),
            Column("State", ".status.conditions[?(@.type=='Ready')].reason"),
            Column("Row", ".spec.row", priority=1),
            Column("Cache", ".status.conditions[?(@.type=='CacheAvailable')].status", priority=1),
            Column("Age", ".metadata.creationTimestamp", type="date"),
        ),
        rules=(
            CelRule("self.metadata.name.size() <= 63", "a Rack's name is also a label value: at most 63 characters"),
        ),
    )
    spec: RackSpec
    status: RackStatus = RackStatus()
