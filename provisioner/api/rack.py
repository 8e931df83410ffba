"""Rack: a place with subnets, where servers are registered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from provisioner.api.meta import Condition, ObjectMeta, Resource
from provisioner.api.schema import (
    CIDR_PATTERN,
    IPV4_PATTERN,
    NAME_PATTERN,
    URL_PATTERN,
    Column,
    Kind,
    Rule,
    described,
)


@dataclass(frozen=True, kw_only=True)
class Subnet:
    """One IPv4 subnet in which servers of the rack boot."""

    name: str = described("Name of the subnet, unique in the rack.", pattern=NAME_PATTERN, max_length=63)
    cidr: str = described("The subnet, such as 10.80.0.0/24; host bits zero.", pattern=CIDR_PATTERN)
    gateway: str | None = described("Router of the subnet; none for an isolated one.", default=None, pattern=IPV4_PATTERN)
    dns_servers: tuple[str, ...] = described("DNS servers that servers are told.", default=(), max_items=3)
    ntp_servers: tuple[str, ...] = described("NTP servers that servers are told.", default=(), max_items=4)
    mtu: int | None = described("MTU in bytes that servers are told.", default=None, minimum=576, maximum=9216)
    relays: tuple[str, ...] = described(
        "Addresses (giaddr) of the DHCP relays that forward from this subnet; "
        "empty if a boot host is attached to it.",
        default=(),
        max_items=8,
    )
    range_start: str | None = described(
        "First address given to servers; the subnet's first host address but the gateway's if absent.",
        default=None,
        pattern=IPV4_PATTERN,
    )
    range_end: str | None = described(
        "Last address given to servers; the last host address if absent.", default=None, pattern=IPV4_PATTERN
    )
    discovery_range_start: str | None = described(
        "First address lent for minutes to unknown machines; without a discovery range they get none.",
        default=None,
        pattern=IPV4_PATTERN,
    )
    discovery_range_end: str | None = described("Last address lent to unknown machines.", default=None, pattern=IPV4_PATTERN)


@dataclass(frozen=True, kw_only=True)
class RackSpec:
    """Where the rack stands and which networks its servers boot from."""

    site: str | None = described("Site or data centre.", default=None, max_length=63)
    row: str | None = described("Row in the site.", default=None, max_length=63)
    failure_domain: str | None = described(
        "Failure domain; becomes the label topology.kubernetes.io/zone of its Nodes.", default=None, max_length=63
    )
    subnets: tuple[Subnet, ...] = described(
        "Subnets in which servers of this rack boot; the first one is used where a server names none.",
        min_items=1,
        max_items=16,
        list_map_keys=("name",),
    )
    cache_url: str | None = described(
        "HTTP cache of the rack from which images are fetched first, such as http://10.80.0.5.",
        default=None,
        pattern=URL_PATTERN,
    )


@dataclass(frozen=True, kw_only=True)
class RackStatus:
    """Counts of the rack's servers."""

    servers: int | None = described("Servers registered in the rack.", default=None)
    ready_servers: int | None = described("Servers whose Ready condition is True.", default=None)
    pending_servers: int | None = described("Servers that wait to be accepted.", default=None)
    conditions: tuple[Condition, ...] = described("Observations.", default=(), list_map_keys=("type",))


@dataclass(frozen=True, kw_only=True)
class Rack(Resource):
    KIND: ClassVar[Kind] = Kind(
        kind="Rack",
        plural="racks",
        short="rk",
        description="A rack: a place with subnets, where servers are registered.",
        columns=(
            Column("Site", ".spec.site"),
            Column("Subnet", ".spec.subnets[0].cidr"),
            Column("Servers", ".status.servers", type="integer"),
            Column("Ready", ".status.readyServers", type="integer"),
            Column("Pending", ".status.pendingServers", type="integer"),
            Column("Age", ".metadata.creationTimestamp", type="date"),
        ),
        rules=(Rule("self.metadata.name.size() <= 63", "a Rack's name is also a label value: at most 63 characters"),),
    )
    metadata: ObjectMeta
    spec: RackSpec
    status: RackStatus = RackStatus()
