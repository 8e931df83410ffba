"""Packing lists in CSV, as they come from vendors and through spreadsheets.

Tolerated: comma, semicolon, tab or bar; a byte order mark; UTF-16 and Windows' encodings; lines above the header; empty
lines; columns that mean nothing to us; MAC addresses in every notation. Not tolerated: a row that cannot be a server.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from provisioner.api import Server, documents
from provisioner.api.errors import Refused
from provisioner.api.values import Secret, is_placeholder_serial, is_placeholder_uuid, parse_mac
from provisioner.inventory.lists.bmc_address import read_bmc_address
from provisioner.inventory.lists.csv_header import (
    WITHIN_LINES,
    Header,
    Line,
    find_header,
    lacking,
    read_header,
    understood,
)
from provisioner.inventory.lists.entries import Credentials, Entry, Mistake, Origin, PackingList
from provisioner.inventory.lists.headers import Column, looks_like_header

_PROTOCOLS: Final = {"redfish": "Redfish", "ipmi": "IPMI"}
_ARCHITECTURES: Final = {"x86_64": "x86_64", "x86": "x86_64", "amd64": "x86_64", "x64": "x86_64"} | {
    "arm64": "arm64",
    "aarch64": "arm64",
    "arm": "arm64",
}
_YES_OR_NO: Final = dict.fromkeys(("yes", "y", "true", "wahr", "ja", "1", "x"), True) | dict.fromkeys(
    ("no", "n", "false", "falsch", "nein", "0"), False
)
_SPREADSHEET_NUMBER: Final = re.compile(r"\d([.,]\d+)?[eE]\+?\d{1,3}")
_ROUNDED: Final = re.compile(r"\d([.,]\d+)?[eE]\+\d{1,3}")
"""As above, of what may be no MAC address: a serial number such as 1E5 is none that was rounded."""
_MONTH: Final = "(jan|feb|m[aä]r|mrz|apr|ma[iy]|jun|jul|aug|sept?|o[ck]t|nov|de[cz])"
"""A spreadsheet shortens them: `main-01` and `march-1` are names."""
_SPREADSHEET_DATE: Final = re.compile(
    rf"\d{{1,4}}[-. /]{{1,2}}{_MONTH}\.?([-. /]\d{{2,4}})?|{_MONTH}[-. /]\d{{1,4}}|"
    r"\d{1,2}(?P<mark>[./-])\d{1,2}(?P=mark)\d{4}|\d{4}-\d{2}-\d{2}( 00:00(:00)?)?",
    re.IGNORECASE,
)
_MANGLED: Final[tuple[Column, ...]] = ("name", "rackRef", "position", "serialNumber", "systemUUID", "bmc.systemID")
"""Of what a spreadsheet may have taken for a number or a date."""
_EMPTY: Final = frozenset({"", "-", "n/a", "na", "none", "tbd", "null"})


@dataclass(frozen=True)
class Row:
    """A line of the list: its cells by column, empty ones left out."""

    line: int
    cells: Mapping[Column, str]
    interfaces: Mapping[str, str]
    headers: Mapping[str, str]
    """Header of each column and interface, as the file spells it."""


def decode_text(data: bytes) -> str:
    """Text of a file that a spreadsheet wrote: UTF-8 or UTF-16 with or without mark, else Windows-1252."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", errors="replace")
    if data[:64:2].count(0) > 8 or data[1:64:2].count(0) > 8:  # western text has a zero in every other byte
        return data.decode("utf-16-be" if data[0] == 0 else "utf-16-le", errors="replace")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("cp1252", errors="replace")


def read_csv(
    text: str,
    file: str,
    *,
    rack: str | None = None,
    pool: str | None = None,
    take_passwords: bool = False,
    columns: Mapping[str, str] | None = None,
) -> tuple[PackingList, tuple[Mistake, ...]]:
    """The servers in a CSV text, and every mistake in it.

    `rack` and `pool` are for rows without columns of their own. Unless `take_passwords`, a password column is refused:
    whoever may read a Server would read it. `columns`: headers by the field that they mean (as `headers.field_of`).
    """
    mistakes: list[Mistake] = []
    lines = _parse(text, columns or {})
    header_at = find_header(lines, columns or {})
    if header_at is None:
        expected = "a header with at least a MAC address and one more known column, such as Serial Number"
        return PackingList(()), (Mistake(Origin(file, 1), "no header was recognised", expected, "add one"),)
    rows = lines[header_at + 1 :]
    header = read_header(lines[header_at], file, columns or {}, mistakes)
    origin = Origin(file, header.line)
    missing = tuple(lacking(header, rows, file, has_rack=rack is not None))
    mistakes += missing
    if "password" in header.columns.values() and not take_passwords:
        mistakes.append(_password_refused(Origin(file, header.line, header.text_of("password"))))
    entries, notes = [], list[str]()
    read = [_row(line, cells, header) for line, cells in rows] if not missing else []  # each would lack the same again
    shared = _shared_chassis(read)
    for row in read:
        if row.cells or row.interfaces:
            entry = _Reading(row, file, mistakes, notes, shared).entry(rack, pool)
            entries += [entry] if entry else []
    notes += [f"columns not used: {', '.join(header.unused)}"] if header.unused else []
    notes += [f"columns mapped that this list does not have: {', '.join(header.absent)}"] if header.absent else []
    if not entries and not mistakes:
        mistakes.append(Mistake(origin, "no row follows the header", "a server a row", "add the servers"))
    return PackingList(tuple(entries), tuple(notes)), tuple(mistakes)


def _parse(text: str, mapped: Mapping[str, str]) -> list[Line]:
    """Non-empty lines with their numbers, split at the separator by which most is understood."""
    head = "\n".join([line for line in text.splitlines() if line.strip()][:WITHIN_LINES])
    separator = max(",;\t|", key=lambda mark: understood(_split(head, mark), mapped))
    return _split(text, separator)


def _split(text: str, separator: str) -> list[Line]:
    """Without comments; but a header may stand behind a `#`, as xCAT's tabdump writes it, where there is no other."""
    rows: list[Line] = []
    commented: list[Line] = []
    for line, row in documents.read_csv(text, separator):
        cells = [_clean(cell) for cell in row]
        if cells and cells[0].startswith("#") and looks_like_header([cells[0].lstrip("# "), *cells[1:]]):
            commented.append((line, [cells[0].lstrip("# "), *cells[1:]]))
        elif any(cells) and not cells[0].startswith("#") and not cells[0].lower().startswith("sep="):
            rows.append((line, cells))
    is_needed = commented and not any(looks_like_header(cells) for _, cells in rows[:WITHIN_LINES])
    return sorted([*rows, commented[0]]) if is_needed else rows


def _clean(cell: str) -> str:
    """What a cell shows in a spreadsheet: without invisible characters, and without the marks that make it a text."""
    if not cell.isascii():
        cell = "".join(char for char in cell if unicodedata.category(char) != "Cf")
    cell = cell.strip()
    if cell.startswith('="') and cell.endswith('"'):
        cell = cell[2:-1].strip()
    return cell.removeprefix("'")


def _row(line: int, cells: list[str], header: Header) -> Row:
    filled = {index: cell for index, cell in enumerate(cells) if cell.lower() not in _EMPTY}
    named = {**header.columns, **header.interfaces}
    return Row(
        line=line,
        cells={header.columns[index]: cell for index, cell in filled.items() if index in header.columns},
        interfaces={header.interfaces[index]: cell for index, cell in filled.items() if index in header.interfaces},
        headers={name: header.texts[index] for index, name in named.items()},
    )


def _password_refused(origin: Origin) -> Mistake:
    return Mistake(
        origin,
        "a column of passwords",
        "none: they must not be kept in Server objects",
        "give --bmc-secrets to write them into Secrets of namespace provisioner-bmcs, or remove the column",
    )


@dataclass(frozen=True)
class _Reading:
    """One row on its way to an Entry; what is wrong with it goes to `mistakes`, what is left out of it to `notes`.
    `shared`: serial numbers of chassis that several rows have."""

    row: Row
    file: str
    mistakes: list[Mistake]
    notes: list[str]
    shared: frozenset[str]

    def entry(self, rack: str | None, pool: str | None) -> Entry | None:
        before = len(self.mistakes)
        cells = self.row.cells
        spec = self._spec(_label(cells["rackRef"]) if "rackRef" in cells else rack, pool)
        name = self._name(spec)
        if len(self.mistakes) > before or name is None:
            return None
        return Entry(
            kind=Server.KIND.kind,
            name=name,
            spec=spec,
            origin=Origin(self.file, self.row.line),
            credentials=self._credentials(),
        )

    def _spec(self, rack: str | None, pool: str | None) -> dict[str, Any]:
        cells = self.row.cells
        for column in _MANGLED:
            self._refuse_mangled(column, cells.get(column, ""))
        if rack is None:
            self._wrong(
                "rackRef", "no rack", "the rack in which the server stands", "give --rack NAME or a column Rack"
            )
        if "bootMACAddress" not in cells:
            self._wrong("bootMACAddress", "no MAC address", "the address of the interface that boots", "fill it in")
        spec: dict[str, Any] = {
            "rackRef": rack,
            "position": _position(cells["position"]) if "position" in cells else None,
            "serialNumber": self._serial_number(),
            "systemUUID": self._system_uuid(),
            "architecture": self._architecture(),
            "bootMACAddress": self._mac("bootMACAddress", cells.get("bootMACAddress")),
            "subnetName": cells.get("subnetName"),
            "bootAddress": re.sub(r"/[0-9]{1,2}$", "", cells.get("bootAddress", "")),
            "interfaces": self._interfaces(),
            # A card boots no image of the servers'.
            "nodePoolRef": cells.get("nodePoolRef", pool if "dpu.hostRef" not in cells else None),
            "endorsementKeySHA256": cells.get("endorsementKeySHA256"),
            "bmc": self._bmc(),
            "dpu": self._dpu(),
        }
        return {key: value for key, value in spec.items() if value}

    def _serial_number(self) -> str | None:
        """The node's own, else that of a chassis with no other node."""
        cells = self.row.cells
        for column in ("serialNumber", "chassisSerialNumber"):
            serial = cells.get(column)
            if serial is None or (column == "chassisSerialNumber" and serial in self.shared):
                continue
            if not is_placeholder_serial(serial):
                return serial
            self._leave_out(column, serial)
        return None

    def _system_uuid(self) -> str | None:
        uuid = self.row.cells.get("systemUUID", "").lower()
        if uuid and is_placeholder_uuid(uuid):
            self._leave_out("systemUUID", uuid)
            return None
        return uuid or None

    def _leave_out(self, column: Column, value: str) -> None:
        place = Origin(self.file, self.row.line, self.row.headers.get(column))
        self.notes.append(f"{place}: {value!r} is a vendor's placeholder, which many machines have; it is left out")

    def _refuse_mangled(self, column: Column, text: str) -> None:
        what = "a number" if _ROUNDED.fullmatch(text) else "a date" if _SPREADSHEET_DATE.fullmatch(text) else None
        if what is not None:
            observed = f"{text!r}, {what} that a spreadsheet made of it"
            remedy = "format the column as text, and fill it in again"
            self._wrong(column, observed, "what the vendor wrote", remedy)

    def _dpu(self) -> dict[str, str] | None:
        """Of a row that is a card in another server."""
        cells = self.row.cells
        if "dpu.hostRef" not in cells:
            if "dpu.vtepAddress" in cells:
                remedy = "fill in the column dpu-of"
                self._wrong("dpu.vtepAddress", "no server in which the card sits", "its name", remedy)
            return None
        vtep = {"vtepAddress": cells["dpu.vtepAddress"]} if "dpu.vtepAddress" in cells else {}
        return {"hostRef": _label(cells["dpu.hostRef"]), **vtep}

    def _name(self, spec: Mapping[str, Any]) -> str | None:
        """The name in the row; of a card else its server's with -dpu; else rack and position, else rack and serial
        number."""
        if "name" in self.row.cells:
            return _label(self.row.cells["name"])
        if "dpu" in spec:
            return f"{spec['dpu']['hostRef']}-dpu"
        tail = spec.get("position") or spec.get("serialNumber")
        if tail is None or "rackRef" not in spec:
            self._wrong("name", "no name", "a name, a position or a serial number to name it by", "fill one in")
            return None
        return _label(f"{spec['rackRef']}-{tail}")

    def _architecture(self) -> str | None:
        sent = self.row.cells.get("architecture")
        if sent is None:
            return "arm64" if "dpu.hostRef" in self.row.cells else None
        known = _ARCHITECTURES.get(sent.lower().replace("-", "_"))
        if known is None:
            self._wrong("architecture", repr(sent), "x86_64 or arm64", "correct it")
        return known

    def _interfaces(self) -> list[dict[str, str]]:
        macs = {name: self._mac(name, text) for name, text in self.row.interfaces.items()}
        return [{"name": name, "macAddress": mac} for name, mac in macs.items() if mac]

    def _bmc(self) -> dict[str, Any] | None:
        cells = self.row.cells
        by_plain_http = self._by_plain_http()
        bmc: dict[str, Any] = {
            "address": cells.get("bmc.address"),
            "macAddress": self._mac("bmc.macAddress", cells.get("bmc.macAddress")),
            "credentialsName": cells.get("bmc.credentialsName"),
            "systemID": cells.get("bmc.systemID"),
        }
        # A list that knows the BMC's MAC address but not yet its IP address is usual: there is nothing to talk to yet.
        if not bmc["address"]:
            return None
        scheme = "ipmi" if cells.get("bmc.protocol", "").lower() == "ipmi" else "http" if by_plain_http else "https"
        bmc["address"], system_id = read_bmc_address(bmc["address"], scheme)
        bmc["systemID"] = bmc["systemID"] or system_id
        bmc["protocol"] = self._protocol(bmc["address"])
        bmc["allowPlainHTTP"] = by_plain_http
        if bmc["address"].startswith("http://") and not by_plain_http:
            self._wrong(
                "bmc.address",
                f"{bmc['address']}, by which the BMC's password can be read on the way",
                "an address by https:// or ipmi://",
                "write https://, or, where that network is yours alone, yes in a column BMC plain HTTP",
            )
        return {key: value for key, value in bmc.items() if value}

    def _by_plain_http(self) -> bool:
        sent = self.row.cells.get("bmc.allowPlainHTTP", "no")
        known = _YES_OR_NO.get(sent.lower())
        if known is None:
            self._wrong("bmc.allowPlainHTTP", repr(sent), "yes or no", "correct it")
        return bool(known)

    def _protocol(self, address: str) -> str | None:
        """What the column says, or what the address says; Redfish is not spelt out."""
        sent = self.row.cells.get("bmc.protocol")
        if sent is None:
            return "IPMI" if address.lower().startswith("ipmi://") else None
        known = _PROTOCOLS.get(sent.lower())
        if known is None:
            self._wrong("bmc.protocol", repr(sent), "Redfish or IPMI", "correct it")
        return known

    def _credentials(self) -> Credentials | None:
        password = self.row.cells.get("password")
        return Credentials(self.row.cells.get("username", "root"), Secret(password)) if password else None

    def _mac(self, column: str, text: str | None) -> str | None:
        if text is None:
            return None
        if _SPREADSHEET_NUMBER.fullmatch(text):
            self._wrong(
                column, f"{text!r}, a number that a spreadsheet rounded", "a MAC address", "format the column as text"
            )
            return None
        try:
            return parse_mac(text)
        except Refused as refused:
            self._wrong(column, Exception.__str__(refused), "a MAC address", refused.hint)
            return None

    def _wrong(self, column: str, observed: str, expected: str, remedy: str) -> None:
        origin = Origin(self.file, self.row.line, self.row.headers.get(column))
        self.mistakes.append(Mistake(origin, observed, expected, remedy))


def _shared_chassis(rows: Iterable[Row]) -> frozenset[str]:
    counts = Counter(row.cells.get("chassisSerialNumber") for row in rows)
    return frozenset(serial for serial, count in counts.items() if serial is not None and count > 1)


def _label(text: str) -> str:
    """`R01 / Node.7` → `r01-node-7`: what a name may be made of."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:63].rstrip("-")


def _position(text: str) -> str:
    """`7`, `U7`, `u 07`, `RU7`, `7.0` → `u07`; anything else as it is."""
    match = re.fullmatch(r"(?:r?u)?\s*0*(\d{1,2})(?:[.,]0)?", text.strip().lower())
    return f"u{int(match.group(1)):02d}" if match else text
