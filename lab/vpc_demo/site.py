"""What the demo consists of: three servers whose cards serve two tenants, and the objects that say so.

Each function of a card is one host: a machine, or a part of one, that sees nothing but this function. Hosts of both
tenants have the same addresses, of both kinds: IP and MAC.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from lab.virtual_network.rack import mac_of
from provisioner.api.machinery.schema import API_VERSION

Object = dict[str, Any]

PEOPLE: Final = {"blue": "ann", "green": "gus"}
"""Who may do what a tenant may, by tenant."""
PREFIXES: Final = ("10.1.0.0/24", "fd00:1::/64")
"""Of the VPC `main` of each tenant."""
STORAGE_PREFIX: Final = "10.2.0.0/24"
UNDERLAY_MTU_BYTES: Final = 1550


@dataclass(frozen=True)
class Host:
    """A function of a server's card, in a VPC of its tenant."""

    tenant: str
    server: str
    function: str
    vpc: str
    addresses: tuple[str, ...]

    @property
    def name(self) -> str:
        """As the screen calls it, and as it introduces itself to who connects to it."""
        return f"{self.tenant} {self.server}"

    @property
    def part(self) -> str:
        """What its namespace's name ends with."""
        return f"{self.tenant}-{self.server}"


@dataclass(frozen=True)
class Card:
    """A DPU: its addresses on the underlay, and in the network of the API server."""

    server: str
    vtep: str
    management: str

    @property
    def name(self) -> str:
        return f"{self.server}-dpu"


CARDS: Final = tuple(
    Card(server=f"r01-u{number:02d}", vtep=f"192.0.2.{number}", management=f"10.80.0.{10 + number}")
    for number in (1, 2, 3)
)


def _host(tenant: str, number: int, vpc: str, *addresses: str) -> Host:
    return Host(tenant, f"r01-u{number:02d}", "pf0" if tenant == "blue" else "pf1", vpc, addresses)


HOSTS: Final = (
    _host("blue", 1, "main", "10.1.0.3", "fd00:1::3"),
    _host("green", 1, "main", "10.1.0.3", "fd00:1::3"),
    _host("blue", 2, "main", "10.1.0.5", "fd00:1::5"),
    _host("green", 2, "main", "10.1.0.5", "fd00:1::5"),
    _host("blue", 3, "main", "10.1.0.7", "fd00:1::7"),
    _host("green", 3, "storage", "10.2.0.3"),
)


def hosts_of(server: str) -> tuple[Host, ...]:
    """By function, in their order."""
    return tuple(sorted((host for host in HOSTS if host.server == server), key=lambda host: host.function))


def registration() -> list[Object]:
    """What an administrator says: which VNIs there are, which machines, whose they are, and who the tenants' people
    are."""
    return [
        _object("NetworkPool", "default", {"vniRanges": [{"first": 10000, "last": 10999}]}),
        *(each for card in CARDS for each in _machine(card)),
        *(each for tenant, person in PEOPLE.items() for each in _tenancy(tenant, person)),
    ]


def wishes(tenant: str) -> list[Object]:
    """What a tenant makes: its VPCs, and of each of its hosts an attachment."""
    vpcs = {"main": list(PREFIXES)} | ({"storage": [STORAGE_PREFIX]} if tenant == "green" else {})
    return [
        *(_object("VPC", name, {"cidrs": cidrs}, tenant) for name, cidrs in vpcs.items()),
        *(attachment(host) for host in HOSTS if host.tenant == tenant),
    ]


def attachment(host: Host) -> Object:
    """Named after the server."""
    spec = {
        "vpcRef": host.vpc,
        "serverRef": host.server,
        "function": host.function,
        "addresses": list(host.addresses),
    }
    return _object("VPCAttachment", host.server, spec, host.tenant)


def web_group() -> Object:
    """Blue's security group: nothing but TCP to port 80 comes in."""
    rule = {"direction": "Ingress", "protocol": "TCP", "ports": ["80"]}
    return _object("SecurityGroup", "web", {"rules": [rule]}, "blue")


def _machine(card: Card) -> tuple[Object, Object]:
    mac = mac_of(card.vtep, "pf0")
    server = {"rackRef": "r01", "bootMACAddress": mac, "tenant": "blue", "acceptance": "Accepted"}
    lent = {"name": "pf1", "tenant": "green", "macAddress": mac}
    dpu = {
        "rackRef": "r01",
        "architecture": "arm64",
        "bootMACAddress": mac.replace("52:54:00", "52:54:01"),
        "acceptance": "Accepted",
        "dpu": {"hostRef": card.server, "vtepAddress": card.vtep, "functions": [lent]},
    }
    return _object("Server", card.server, server), _object("Server", card.name, dpu)


def _tenancy(tenant: str, person: str) -> tuple[Object, Object]:
    group = "rbac.authorization.k8s.io"
    return (
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": tenant}},
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": person, "namespace": tenant},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "edit"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": person}],
        },
    )


def _object(kind: str, name: str, spec: Object, namespace: str | None = None) -> Object:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}
