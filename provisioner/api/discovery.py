"""Unknown machines: from what one says of itself to a Server object that waits to be accepted.

Everything here was sent by a stranger. Only the MAC address goes into the spec (it is how the machine is recognised
when it asks again); serial number and UUID stay in the status, so that a neighbour who claims the serial number of
somebody else's server occupies nothing. Pure: the boot service does the writing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from ipaddress import IPv4Address, IPv4Network
from typing import Final

from provisioner.api.errors import Refused
from provisioner.api.meta import ObjectMeta, rfc3339
from provisioner.api.rack import Rack
from provisioner.api.server import Architecture, Discovery, Server, ServerSpec, ServerStatus
from provisioner.api.values import MacAddress, parse_mac

MAX_UNKNOWN_SERVERS: Final = 256
"""How many discovered Servers may wait for acceptance: a neighbour with many MAC addresses cannot fill etcd."""

NAME_PREFIX: Final = "unknown-"

_MAX_CLAIM_LENGTH: Final = 128
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# What mainboards say that nobody gave a serial number or UUID of their own.
_PLACEHOLDERS: Final = frozenset(
    {"", "0", "none", "n/a", "na", "unknown", "not specified", "default string", "to be filled by o.e.m.", "123456789"}
    | {"system serial number", "system product name", "chassis serial number", "0123456789", "xxxxxxxxxx", "empty"}
)
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
class Place:
    """A subnet of a rack."""

    rack: str
    subnet: str


def read_claims(sent: Mapping[str, str], *, source_address: str | None = None) -> Claims:
    """Claims from iPXE's settings (mac, uuid, serial, manufacturer, product, buildarch).

    Raises: Refused if `mac` is not the address of an interface. Anything else that makes no sense is left out.
    """
    uuid = sent.get("uuid", "").strip().lower()
    return Claims(
        mac=parse_mac(sent.get("mac", "")[:32]),
        architecture=_ARCHITECTURES.get(sent.get("buildarch", "").strip().lower(), "x86_64"),
        serial_number=_printable(sent.get("serial", "")),
        system_uuid=uuid if _UUID.fullmatch(uuid) and len(set(uuid) - {"-"}) > 1 else None,
        manufacturer=_printable(sent.get("manufacturer", "")),
        product=_printable(sent.get("product", "")),
        source_address=_printable(source_address or "", limit=45),
    )


def _printable(text: str, limit: int = _MAX_CLAIM_LENGTH) -> str | None:
    cleaned = " ".join(re.sub(r"[^!-~]+", " ", text[: 4 * limit]).split())[:limit].strip()
    return None if cleaned.lower() in _PLACEHOLDERS else cleaned


def discovered_name(mac: MacAddress) -> str:
    """`unknown-525400123456`: the same machine is the same object, whoever of the boot hosts creates it."""
    return NAME_PREFIX + mac.replace(":", "")


def place_of(address: str, racks: Iterable[Rack]) -> Place | None:
    """The subnet that holds `address` (a giaddr or an address lent) or has it as relay; None without one."""
    try:
        wanted = IPv4Address(address)
    except ValueError:
        return None
    for rack in racks:
        for subnet in rack.spec.subnets:
            if address in subnet.relays or wanted in IPv4Network(subnet.cidr, strict=False):
                return Place(rack.name, subnet.name)
    return None


def is_discovered(server: Server) -> bool:
    """Whether the server is an unknown machine that still waits for a person."""
    return server.name.startswith(NAME_PREFIX) and server.spec.acceptance == "Pending"


def refuse_flood(waiting: int, *, limit: int = MAX_UNKNOWN_SERVERS) -> None:
    """Raises: Refused if `limit` unknown machines are `waiting` already; the boot service then only serves the wait."""
    if waiting >= limit:
        raise Refused(
            f"unknown machine not recorded: {waiting} unknown machines wait already, at most {limit} may",
            hint="accept or delete those that `kubectl get servers --field-selector spec.acceptance=Pending` shows",
        )


def discovered_server(claims: Claims, *, place: Place | None, now: datetime) -> Server:
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
            )
        ),
    )


@dataclass(frozen=True)
class TokenBucket:
    """A rate limit without a clock of its own: `rate_per_second` on average, `burst` at once."""

    rate_per_second: float
    burst: float
    tokens: float
    updated_seconds: float

    @classmethod
    def full(cls, *, rate_per_second: float, burst: float, now_seconds: float) -> TokenBucket:
        return cls(rate_per_second, burst, burst, now_seconds)

    def take(self, now_seconds: float) -> tuple[TokenBucket, bool]:
        """The bucket afterwards, and whether there was a token. `now_seconds` is monotonic; going back adds nothing."""
        elapsed = max(0.0, now_seconds - self.updated_seconds)
        tokens = min(self.burst, self.tokens + elapsed * self.rate_per_second)
        taken = tokens >= 1.0
        updated = max(now_seconds, self.updated_seconds)
        return TokenBucket(self.rate_per_second, self.burst, tokens - taken, updated), taken
