"""What only one machine can have: MAC addresses, serial number, UUID, addresses, a place in a rack."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from provisioner.api import Server
from provisioner.api.machinery.values import is_placeholder_serial, is_placeholder_uuid, normal_system_uuid
from provisioner.api.servers.discovery import NAME_PREFIX
from provisioner.inventory.lists.bmc_address import bracketed
from provisioner.inventory.lists.entries import CHASSIS_ANNOTATION, ListEntry, Mistake, Origin

Object = Mapping[str, Any]

SYSTEM_UUID: Final = "system UUID"
POSITION: Final = "position"
_USUAL_PORTS: Final = {"https": 443, "ipmi": 623}
_PORTS: Final = {**_USUAL_PORTS, "http": 80}


class Claim(NamedTuple):
    """Something that at most one machine has: `("MAC address", "52:54:00:12:34:56")`.

    Of what has parts, such as a BMC of several systems or a position of several nodes, `part` claims one of them, and
    an empty one claims all. `together`: machines that have one of these in common share the value rightly, as the nodes
    of one chassis share its position.
    """

    what: str
    value: str
    part: str = ""
    together: frozenset[str] = frozenset()

    @property
    def whole(self) -> Claim:
        return self._replace(part="", together=frozenset())

    def clashes(self, other: Claim) -> bool:
        """Whether two machines cannot make these claims."""
        either_is_whole = not self.part or not other.part
        return self.whole == other.whole and (either_is_whole or self.part == other.part)

    def __str__(self) -> str:
        part = "in either byte order" if self.what == SYSTEM_UUID else self.part
        return f"{self.what} {self.value}" + (f" ({part})" if part else "")


def claims_of(
    spec: Object, status: Object | None = None, annotations: Mapping[str, str] | None = None
) -> Iterator[Claim]:
    """Everything unique that a Server claims, by the JSON of its spec, status and annotations. Cards are numbered
    apart from the servers in which they sit."""
    bmc = spec.get("bmc") or {}
    # One BMC may serve several systems of a chassis. Without a systemID it is whichever one the BMC has.
    system = f"system {bmc['systemID']}" if bmc.get("systemID") else ""
    macs = [spec.get("bootMACAddress"), *(interface.get("macAddress") for interface in spec.get("interfaces") or ())]
    # A repetition within one machine is for the CRD's own rules to refuse.
    for mac in dict.fromkeys(macs):
        if mac:
            yield Claim("MAC address", mac)
    if bmc.get("macAddress") and bmc["macAddress"] not in macs:
        yield Claim("MAC address", bmc["macAddress"], system)
    serial = _known_serial(spec.get("serialNumber"))
    if serial:
        yield Claim("serial number of a DPU" if spec.get("dpu") else "serial number", serial)
    if spec.get("systemUUID") and not is_placeholder_uuid(spec["systemUUID"]):
        yield system_uuid_claim(spec["systemUUID"])
    if spec.get("endorsementKeySHA256"):
        yield Claim("endorsement key", spec["endorsementKeySHA256"])
    address = spec.get("bootAddress") or (status or {}).get("address")
    if address:
        yield Claim("address", address)
    if bmc.get("address"):
        yield Claim("BMC address", bmc_endpoint(bmc["address"]), system)
    if spec.get("position") and spec.get("rackRef") and not spec.get("dpu"):
        chassis = _known_serial((annotations or {}).get(CHASSIS_ANNOTATION))
        endpoint = f"BMC {bmc_endpoint(bmc['address'])}" if bmc.get("address") else ""
        together = frozenset(filter(None, (f"chassis {chassis}" if chassis else "", endpoint)))
        node = f"serial number {serial}" if serial else " ".join(filter(None, (endpoint, system)))
        yield Claim(POSITION, f"{spec['position']} of rack {spec['rackRef']}", node, together)


def _known_serial(serial: str | None) -> str:
    """In capitals; empty if there is none, or a vendor's placeholder for one."""
    return "" if not serial or is_placeholder_serial(serial) else serial.upper()


def system_uuid_claim(uuid: str) -> Claim:
    """The claim of a system UUID, the same in whichever case and byte order it is written."""
    return Claim(SYSTEM_UUID, normal_system_uuid(uuid))


def bmc_endpoint(address: str) -> str:
    """The BMC that an address names, the same however it is written: `https://BMC/redfish` and `ipmi://bmc` are `bmc`.

    By both protocols on their usual ports it is one BMC; another port may be another one behind the same address.
    """
    try:
        address = bracketed(address)
        url = urlsplit(address if "://" in address else f"ipmi://{address}")
        host, port = (url.hostname or "").rstrip("."), url.port or _PORTS[url.scheme]
    except (ValueError, KeyError):
        return address.rstrip("/").lower()  # no URL: the power controller says so
    with contextlib.suppress(ValueError):
        parsed = ip_address(host)
        host = f"[{parsed}]" if parsed.version == 6 else str(parsed)
    return host if port == _USUAL_PORTS.get(url.scheme) else f"{host}:{port}"


def is_waiting_stranger(body: Object) -> bool:
    """Whether an object is a discovered machine that nobody accepted: registration takes its place."""
    pending = body["spec"].get("acceptance", "Pending") == "Pending"
    return bool(body["kind"] == Server.KIND.kind and body["metadata"]["name"].startswith(NAME_PREFIX) and pending)


@dataclass(frozen=True)
class _Holder:
    name: str
    place: str
    origin: Origin | None

    def __str__(self) -> str:
        return f"{self.name} ({self.place})"


class Duplicates(NamedTuple):
    """`mistakes`: what two machines cannot share; `notes`: what they can, but seldom do."""

    mistakes: tuple[Mistake, ...]
    notes: tuple[str, ...]


def find_duplicates(entries: Iterable[ListEntry], existing: Iterable[Object]) -> Duplicates:
    """Every claim that two machines make: two rows of the file, or a row and an object in the cluster; both are named.

    An object in the cluster that the file names too counts as it will be. Machines discovered at `existing` that nobody
    accepted claim nothing: the file registers them.
    """
    holders: dict[Claim, list[tuple[Claim, _Holder]]] = defaultdict(list)
    by_name = {(body["kind"], body["metadata"]["name"]): body for body in existing}
    first_named: dict[tuple[str, str], Origin] = {}
    mistakes: list[Mistake] = []
    notes: list[str] = []
    for entry in entries:
        key = (entry.kind, entry.name)
        if key in first_named:
            observed = f"{entry.kind} {entry.name} occurs again; it is on {first_named[key]} already"
            mistakes.append(Mistake(entry.origin, observed, "each name once", _remedy_of_name(entry)))
            continue
        first_named[key] = entry.origin
        before = by_name.pop(key, {"metadata": {}, "spec": {}, "status": {}})
        annotations = {**(before["metadata"].get("annotations") or {}), **entry.annotations}
        holder = _Holder(f"{entry.kind} {entry.name}", str(entry.origin), entry.origin)
        for claim in claims_of({**before["spec"], **entry.spec}, before.get("status"), annotations):
            holders[claim.whole].append((claim, holder))
    for (kind, name), body in by_name.items():
        if not is_waiting_stranger(body):
            for claim in claims_of(body["spec"], body.get("status"), body["metadata"].get("annotations")):
                if claim.whole in holders:
                    holders[claim.whole].append((claim, _Holder(f"{kind} {name}", "in the cluster", None)))
    for whole, claimed in holders.items():
        if frozenset.intersection(*(claim.together for claim, _ in claimed)):
            continue
        by_part = _by_part(whole, claimed)
        if whole.what == POSITION and len(by_part) > 1:
            notes.append(_note_of_position(whole, claimed))
        for claim, claimants in by_part.items():
            origin = next((holder.origin for holder in reversed(claimants) if holder.origin), None)
            if len(claimants) > 1 and origin is not None:
                first, *others = claimants
                observed = f"{claim} of {first} is also that of {', '.join(map(str, others))}"
                mistakes.append(Mistake(origin, observed, "one machine to have it", _remedy(claim, others)))
    return Duplicates(tuple(mistakes), tuple(notes))


def _by_part(whole: Claim, claimed: list[tuple[Claim, _Holder]]) -> dict[Claim, list[_Holder]]:
    """Who clashes with each other: all, where somebody claims the whole, and otherwise those of the same part."""
    if any(not claim.part for claim, _ in claimed):
        return {whole: [holder for _, holder in claimed]}
    parts: dict[Claim, list[_Holder]] = defaultdict(list)
    for claim, holder in claimed:
        parts[claim._replace(together=frozenset())].append(holder)
    return parts


def _note_of_position(whole: Claim, claimed: list[tuple[Claim, _Holder]]) -> str:
    *others, last = (str(holder) for _, holder in claimed)
    return (
        f"{', '.join(others)} and {last} are at {whole}: if they are nodes of one chassis, add {_NAME_THE_CHASSIS}; if "
        "not, correct the position"
    )


_NAME_THE_CHASSIS: Final = f"a column Chassis Serial Number (annotation {CHASSIS_ANNOTATION})"

_OF_NODES: Final = {
    POSITION: f"if they are nodes of one chassis: add {_NAME_THE_CHASSIS}, or BMC System ID where they share a BMC",
    "serial number": "if it is that of a chassis with several nodes: --column chassis-serial-number=HEADER, and a "
    "column Node Serial Number for their own",
    "BMC address": "where one BMC serves several nodes by Redfish: add a column BMC System ID (spec.bmc.systemID)",
}
"""How to list the nodes of one chassis, by what they seem to share."""


def _remedy(claim: Claim, others: list[_Holder]) -> str:
    in_cluster = [other.name for other in others if other.origin is None]
    remedy = f"correct the {claim.what} of one of them"
    if in_cluster:
        name = in_cluster[0].lower().replace(" ", "/")
        remedy = f"correct the {claim.what}, or if {in_cluster[0]} is gone: kubectl delete {name}"
    of_nodes = _OF_NODES.get(claim.what)
    return f"{remedy}; {of_nodes}" if of_nodes and not claim.part else remedy


def _remedy_of_name(entry: ListEntry) -> str:
    """A row without a name is named after its place, or else its serial number."""
    for field, words in (("position", "position"), ("serialNumber", "serial number")):
        if str(entry.spec.get(field)).lower() == entry.name.removeprefix(f"{entry.spec.get('rackRef')}-"):
            return f"correct the {words} of one of them, or remove it; for the nodes of one chassis add a column Name"
    return "rename or remove one of them"
