"""SecurityGroup: which packets an attachment may send and get. It lies in the tenant's namespace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from provisioner.api.machinery.meta import Condition, Resource
from provisioner.api.machinery.schema import CelRule, Column, FieldSchema, Kind, described, listed, optional
from provisioner.api.network.ip_rules import PREFIX_LENGTH, PREFIX_RULES

Direction = Literal["Ingress", "Egress"]
Protocol = Literal["Any", "TCP", "UDP", "ICMP"]
Action = Literal["Allow", "Deny"]

PORTS_PATTERN = "^[0-9]{1,5}(-[0-9]{1,5})?$"
_PORTS_OK = (
    f"self.matches('{PORTS_PATTERN}') && self.split('-').all(p, int(p) >= 1 && int(p) <= 65535) && "
    "int(self.split('-')[0]) <= int(self.split('-')[self.split('-').size() - 1])"
)


@dataclass(frozen=True, kw_only=True)
class SecurityRule:
    """Packets, and what becomes of them."""

    RULES: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "!has(self.ports) || self.ports.size() == 0 || self.protocol in ['TCP', 'UDP']",
            "only TCP and UDP have ports: set protocol to one of them, or leave ports out",
            field=".ports",
        ),
    )
    direction: Direction = described("Ingress: what comes to the attachment; Egress: what it sends.")
    action: Action = described("What becomes of the packets.", server_default="Allow")
    protocol: Protocol = described("Protocol; ICMP is ICMPv6 for IPv6. Any for all.", server_default="Any")
    ports: tuple[str, ...] = listed(
        "Destination ports or ranges of them, such as 443 or 30000-32767; all if empty.",
        max_items=32,
        list_set=True,
        item=FieldSchema(
            doc="A port, or the first and last one of a range.",
            max_length=11,
            rules=(
                CelRule(
                    _PORTS_OK,
                    "the value is no port or range of ports: write 443 or 30000-32767",
                    expression="'\\'' + self + '\\' is no port or range of ports: write 443 or 30000-32767'",
                ),
            ),
        ),
    )
    cidrs: tuple[str, ...] = listed(
        "The other side's addresses; all if empty.",
        max_items=32,
        list_set=True,
        item=FieldSchema(doc="Addresses, such as 10.1.0.0/24.", max_length=PREFIX_LENGTH, rules=PREFIX_RULES),
    )
    priority: int = described(
        "Which rule decides, over all groups of an attachment: the lowest number whose packets these are, of the same "
        "number one that denies.",
        server_default=1000,
        minimum=0,
        maximum=65535,
    )


@dataclass(frozen=True, kw_only=True)
class SecurityGroupSpec:
    """The rules. In a direction of which no rule of an attachment's groups speaks, everything passes; in one of which
    one does, what no rule allows is dropped."""

    rules: tuple[SecurityRule, ...] = listed("Rules, decided by priority.", max_items=128)
    stateful: bool = described(
        "Whether answers to what was let through pass by themselves. Without it each direction needs its rule, and the "
        "DPU keeps no record of connections.",
        server_default=True,
    )


@dataclass(frozen=True, kw_only=True)
class SecurityGroupStatus:
    """Where the group holds."""

    attachments: int | None = optional("Attachments for which it holds.")
    conditions: tuple[Condition, ...] = listed("Observations.", max_items=32, list_map_keys=("type",))


@dataclass(frozen=True, kw_only=True)
class SecurityGroup(Resource):
    KIND: ClassVar[Kind] = Kind(
        kind="SecurityGroup",
        short="sg",
        namespaced=True,
        description="Which packets the attachments that name it may send and get.",
        columns=(
            Column("Stateful", ".spec.stateful", type="boolean"),
            Column("Attachments", ".status.attachments", type="integer"),
            Column("Age", ".metadata.creationTimestamp", type="date"),
        ),
        rules=(CelRule("self.metadata.name.size() <= 63", "the name of a SecurityGroup has at most 63 characters"),),
    )
    spec: SecurityGroupSpec
    status: SecurityGroupStatus = SecurityGroupStatus()
