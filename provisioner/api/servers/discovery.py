"""Unknown machines: from what one says of itself to a Server object that waits to be accepted.

Everything here was sent by a stranger. Only the MAC address goes into the spec (it is how the machine is recognised
when it asks again); serial number and UUID stay in the status, so that a neighbour who claims the serial number of
somebody else's server occupies nothing. Pure: the boot service does the writing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import IPv4Address, IPv4Network
from typing import Any, Final

from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.meta import ObjectMeta, rfc3339
from provisioner.api.machinery.values import MacAddress, is_placeholder_serial, is_placeholder_uuid, parse_mac
from provisioner.api.servers.rack import Rack
from provisioner.api.servers.server import Architecture, Discovery, Server, ServerSpec, ServerStatus
from provisioner.api.servers.trace import TRACE_ANNOTATION

MAX_WAITING_IN_SUBNET: Final = 128
MAX_WAITING: Final = 1024
"""How many discovered Servers may wait for acceptance, in one subnet and in all: a neighbour with many MAC addresses
fills neither etcd nor another subnet. Of those that asked by DHCP as many more may wait; others give way to them."""

URL_LASTS: Final = timedelta(hours=1)
DHCP_LASTS: Final = timedelta(hours=24)
"""How long a discovered Server that nobody touches is kept: one that only fetched a URL, and one that asked by DHCP."""

NAME_PREFIX: Final = "unknown-"

_MAX_CLAIM_LENGTH: Final = 128
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ARCHITECTURES: Final[dict[str, Architecture]] = {"i386": "x86_64", "x86_64": "x86_64", "arm64": "arm64"}


@dataclass(frozen=True)
class Claims:
    """What a machine says of itself, bounded and printable. None of it is proven."""

    mac: MacAddress
    architecture: Architecture = "x86_64"
    serial_number: str | None = None
    system_uuid: str | None = None
    manufacturer: str | None = None
    product: str | None = None
    source_address: str | None = None


@dataclass(frozen=True)
class RackPlace:
    """A subnet of a rack; None for a Server that names none."""

    rack: str | None
    subnet: str | None


def read_claims(sent: Mapping[str, str], *, source_address: str | None = None) -> Claims:
    """Claims from iPXE's settings (mac, uuid, serial, manufacturer, product, buildarch).

    Raises: Refused if `mac` is not the address of an interface. Anything else that makes no sense is left out.
    """
    uuid = sent.get("uuid", "").strip().lower()
    return Claims(
        mac=parse_mac(sent.get("mac", "")[:32]),
        architecture=_ARCHITECTURES.get(sent.get("buildarch", "").strip().lower(), "x86_64"),
        serial_number=_printable(sent.get("serial", "")),
        system_uuid=uuid if _UUID.fullmatch(uuid) and not is_placeholder_uuid(uuid) else None,
        manufacturer=_printable(sent.get("manufacturer", "")),
        product=_printable(sent.get("product", "")),
        source_address=_printable(source_address or "", limit=45),
    )


def _printable(text: str, limit: int = _MAX_CLAIM_LENGTH) -> str | None:
    cleaned = " ".join(re.sub(r"[^!-~]+", " ", text[: 4 * limit]).split())[:limit].strip()
    is_placeholder = is_placeholder_serial(cleaned) or cleaned.lower() == "system product name"
    return None if is_placeholder else cleaned or None


def discovered_name(mac: MacAddress) -> str:
    """`unknown-525400123456`: the same machine is the same object, whoever of the boot hosts creates it."""
    return NAME_PREFIX + mac.replace(":", "")


class DiscoverySubnets:
    """The subnets with a discovery range, by the addresses that unknown machines in them ask from.

    A lookup costs one step for each length of prefix, however many racks there are.
    """

    def __init__(self, racks: Iterable[Rack]) -> None:
        self._relays: dict[str, RackPlace] = {}
        self._networks: dict[int, dict[int, RackPlace]] = {}
        for rack in racks:
            for subnet in rack.spec.subnets:
                if subnet.discovery_range_start is None:
                    continue
                place, network = RackPlace(rack.name, subnet.name), IPv4Network(subnet.cidr, strict=False)
                same_length = self._networks.setdefault(network.prefixlen, {})
                same_length.setdefault(int(network.network_address) >> (32 - network.prefixlen), place)
                for relay in subnet.relays:
                    self._relays.setdefault(relay, place)

    def find(self, address: str | None) -> RackPlace | None:
        """The subnet that holds `address`, or has it as relay; None if that is none where machines are discovered."""
        try:
            number = int(IPv4Address(address or ""))
        except ValueError:
            return None
        for length in sorted(self._networks, reverse=True):
            place = self._networks[length].get(number >> (32 - length))
            if place is not None:
                return place
        return self._relays.get(address or "")


def is_discovered(server: Server) -> bool:
    """Whether the server is an unknown machine that still waits for a person."""
    return server.name.startswith(NAME_PREFIX) and server.spec.acceptance == "Pending"


def refuse_flood(waiting_here: int, waiting: int, *, by_dhcp: bool) -> None:
    """Raises: Refused if too many unknown machines wait, in a machine's own subnet or in all.

    by_dhcp: whether this one was heard to ask for an address. For such a one there is room where others fill theirs.
    """
    factor = 2 if by_dhcp else 1
    for count, limit, where in ((waiting_here, MAX_WAITING_IN_SUBNET, " in its subnet"), (waiting, MAX_WAITING, "")):
        if count >= factor * limit:
            raise Refused(
                f"unknown machine not recorded: {count} unknown machines wait already{where}, at most {limit} may",
                hint="accept or delete those that `kubectl get servers --field-selector spec.acceptance=Pending` shows",
            )


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A discovered Server that waits for a person. `by_dhcp`: it was heard to ask for an address."""

    name: str
    place: RackPlace
    created: datetime
    by_dhcp: bool


def is_waiting(server: Mapping[str, Any]) -> bool:
    """Whether this Server (its JSON) is an unknown machine that still waits for a person."""
    return bool(server["metadata"]["name"].startswith(NAME_PREFIX) and server["spec"].get("acceptance") == "Pending")


def place_of(server: Mapping[str, Any]) -> RackPlace:
    """Rack and subnet that a Server (its JSON) names."""
    return RackPlace(server["spec"].get("rackRef"), server["spec"].get("subnetName"))


def is_untouched(server: Mapping[str, Any]) -> bool:
    """Whether the Server (its JSON) is as discovery made it: nobody accepted, changed or labelled it. Somebody may have
    looked at its boot."""
    metadata = server["metadata"]
    return (
        is_waiting(server)
        and metadata.get("generation") == 1
        and not any(metadata.get(key) for key in ("labels", "finalizers", "ownerReferences"))
        and not metadata.get("annotations", {}).keys() - {TRACE_ANNOTATION}
    )


def give_way(
    untouched: Iterable[Waiting], waiting: Mapping[RackPlace, int], now: datetime
) -> tuple[list[str], float | None]:
    """Which of the discovered Servers that nobody touched are to go, and after how many seconds the next one is.

    Those that are too old go: a machine that still asks appears anew. And where more wait than may, the oldest of those
    that were never heard of by DHCP. `waiting`: how many wait in each subnet, the touched ones among them.
    """
    gone: list[str] = []
    left = dict(waiting)
    strangers: list[Waiting] = []
    again: float | None = None
    for each in sorted(untouched, key=lambda each: each.created):
        lasts = (each.created + (DHCP_LASTS if each.by_dhcp else URL_LASTS) - now).total_seconds()
        if lasts <= 0:
            gone.append(each.name)
            left[each.place] -= 1
            continue
        again = lasts if again is None else min(again, lasts)
        if not each.by_dhcp:
            strangers.append(each)
    for each in strangers:
        if left[each.place] > MAX_WAITING_IN_SUBNET or sum(left.values()) > MAX_WAITING:
            gone.append(each.name)
            left[each.place] -= 1
    return gone, again


def discovered_server(claims: Claims, *, place: RackPlace | None, now: datetime, by_dhcp: bool = False) -> Server:
    """The Server object for an unknown machine: Pending, in the rack of its subnet if that is known.

    The API server ignores the status at creation: create the object, then apply `status.discovery`.
    """
    return Server(
        metadata=ObjectMeta(name=discovered_name(claims.mac)),
        spec=ServerSpec(
            rack_ref=place.rack if place else None,
            subnet_name=place.subnet if place else None,
            architecture=claims.architecture,
            boot_mac_address=claims.mac,
            acceptance="Pending",
        ),
        status=ServerStatus(
            discovery=Discovery(
                manufacturer=claims.manufacturer,
                product=claims.product,
                serial_number=claims.serial_number,
                system_uuid=claims.system_uuid,
                address=claims.source_address,
                first_seen_time=rfc3339(now),
                dhcp_time=rfc3339(now) if by_dhcp else None,
            )
        ),
    )
