"""Packing lists in CSV, as they come from vendors and through spreadsheets.

Tolerated: comma, semicolon, tab or bar; a byte order mark; UTF-16 and Windows' encodings; lines above the header; empty
lines; columns that mean nothing to us; MAC addresses in every notation. Not tolerated: a row that cannot be a server.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from provisioner.api import Server
from provisioner.api.machinery import documents
from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.values import Secret, is_placeholder_serial, is_placeholder_uuid
from provisioner.inventory.lists.bmc_address import EXPECTED, protocol_of, read_bmc_address, scheme_for
from provisioner.inventory.lists.cells import (
    AS_WRITTEN,
    clean,
    is_spreadsheet_error,
    placeholder_note,
    read_mac,
    read_position,
    read_uuid,
    refuse_spreadsheets,
)
from provisioner.inventory.lists.csv_header import (
    WITHIN_LINES,
    Header,
    Line,
    find_header,
    lacking,
    read_header,
    understood,
)
from provisioner.inventory.lists.entries import (
    CHASSIS_ANNOTATION,
    BmcCredentials,
    ListEntry,
    Mistake,
    Origin,
    PackingList,
)
from provisioner.inventory.lists.headers import Column, looks_like_header

T = TypeVar("T")

_PROTOCOLS: Final = {"redfish": "Redfish", "ipmi": "IPMI"}
_ARCHITECTURES: Final = {"x86_64": "x86_64", "x86": "x86_64", "amd64": "x86_64", "x64": "x86_64"} | {
    "arm64": "arm64",
    "aarch64": "arm64",
    "arm": "arm64",
}
_YES_OR_NO: Final = dict.fromkeys(("yes", "y", "true", "wahr", "ja", "1", "x"), True) | dict.fromkeys(
    ("no", "n", "false", "falsch", "nein", "0"), False
)
_EMPTY: Final = frozenset({"", "-", "n/a", "na", "none", "tbd", "null"})


@dataclass(frozen=True)
class CsvRow:
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
    lines, comments = _parse(text, columns or {})
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
        place = Origin(file, header.line, header.text_of("password"))
        expected = "none: they must not be kept in Server objects"
        remedy = "give --bmc-secrets to write them into Secrets of namespace provisioner-bmcs, or remove the column"
        mistakes.append(Mistake(place, "a column of passwords", expected, remedy))
    entries, notes = [], list[str]()
    read = [_row(line, cells, header) for line, cells in rows] if not missing else []  # each would lack the same again
    shared = _shared_chassis(read)
    for row in read:
        if row.cells or row.interfaces:
            entry = _Reading(row, file, mistakes, notes, shared).entry(rack, pool)
            entries += [entry] if entry else []
    notes += _skipped(comments, header, file)
    notes += [f"columns not used: {', '.join(header.unused)}"] if header.unused else []
    notes += [f"columns mapped that this list does not have: {', '.join(header.absent)}"] if header.absent else []
    if not entries and not mistakes:
        mistakes.append(Mistake(origin, "no row follows the header", "a server a row", "add the servers"))
    return PackingList(tuple(entries), tuple(notes)), tuple(mistakes)


def _parse(text: str, mapped: Mapping[str, str]) -> tuple[list[Line], list[Line]]:
    """Non-empty lines with their numbers, split at the separator by which most is understood; and the comments."""
    head = "\n".join([line for line in text.splitlines() if line.strip()][:WITHIN_LINES])
    separator = max(",;\t|", key=lambda mark: understood(_split(head, mark)[0], mapped))
    return _split(text, separator)


def _split(text: str, separator: str) -> tuple[list[Line], list[Line]]:
    """Lines and comments; but a header may stand behind a `#`, as xCAT's tabdump writes it, where there is no other."""
    rows: list[Line] = []
    headers: list[Line] = []
    comments: list[Line] = []
    for line, row in documents.read_csv(text, separator):
        cells = [clean(cell) for cell in row]
        if not any(cells) or cells[0].lower().startswith("sep="):
            continue
        if not cells[0].startswith("#") or is_spreadsheet_error(cells[0]):
            rows.append((line, cells))
        elif looks_like_header(bare := [cells[0].lstrip("# "), *cells[1:]]):
            headers.append((line, bare))
        else:
            comments.append((line, cells))
    is_needed = headers and not any(looks_like_header(cells) for _, cells in rows[:WITHIN_LINES])
    return (sorted([*rows, headers[0]]) if is_needed else rows), comments


def _skipped(comments: Iterable[Line], header: Header, file: str) -> list[str]:
    """Notes of comments that may have been meant as servers: they have as many cells as the header."""
    most = sum(1 for text in header.texts if text)
    return [
        f"{Origin(file, line)}: skipped as a comment, for it begins with #; it has as many cells as the header"
        for line, cells in comments
        if line > header.line and sum(1 for cell in cells if cell) >= most
    ]


def _row(line: int, cells: list[str], header: Header) -> CsvRow:
    filled = {index: cell for index, cell in enumerate(cells) if cell.lower() not in _EMPTY}
    named = {**header.columns, **header.interfaces}
    return CsvRow(
        line=line,
        cells={header.columns[index]: cell for index, cell in filled.items() if index in header.columns},
        interfaces={header.interfaces[index]: cell for index, cell in filled.items() if index in header.interfaces},
        headers={name: header.texts[index] for index, name in named.items()},
    )


@dataclass(frozen=True)
class _Reading:
    """One row on its way to an Entry; what is wrong with it goes to `mistakes`, what is left out of it to `notes`.
    `shared`: serial numbers of chassis that several rows have."""

    row: CsvRow
    file: str
    mistakes: list[Mistake]
    notes: list[str]
    shared: frozenset[str]
    refused: set[str] = field(default_factory=set)
    """Columns whose cell is a mistake already."""

    def entry(self, rack: str | None, pool: str | None) -> ListEntry | None:
        before = len(self.mistakes)
        cells = self.row.cells
        spec = self._spec(_label(cells["rackRef"]) if "rackRef" in cells else rack, pool)
        name = self._name(spec)
        chassis = cells.get("chassisSerialNumber")
        if len(self.mistakes) > before or name is None:
            return None
        return ListEntry(
            kind=Server.KIND.kind,
            name=name,
            spec=spec,
            origin=Origin(self.file, self.row.line),
            annotations={CHASSIS_ANNOTATION: chassis} if chassis and not is_placeholder_serial(chassis) else {},
            credentials=self._credentials(),
        )

    def _spec(self, rack: str | None, pool: str | None) -> dict[str, Any]:
        cells = self.row.cells
        self._refuse_spreadsheets()
        if rack is None:
            self._wrong(
                "rackRef", "no rack", "the rack in which the server stands", "give --rack NAME or a column Rack"
            )
        if "bootMACAddress" not in cells:
            self._wrong("bootMACAddress", "no MAC address", "the address of the interface that boots", "fill it in")
        spec: dict[str, Any] = {
            "rackRef": rack,
            "position": read_position(cells["position"]) if "position" in cells else None,
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
        uuid = read_uuid(self.row.cells.get("systemUUID", ""))
        if uuid and is_placeholder_uuid(uuid):
            self._leave_out("systemUUID", uuid)
            return None
        return uuid or None

    def _leave_out(self, column: Column, value: str) -> None:
        place = Origin(self.file, self.row.line, self.row.headers.get(column))
        self.notes.append(placeholder_note(str(place), value))

    def _refuse_spreadsheets(self) -> None:
        for column, text in (*self.row.cells.items(), *self.row.interfaces.items()):
            try:
                refuse_spreadsheets(column, text)
            except Refused as refused:
                self._wrong(column, Exception.__str__(refused), AS_WRITTEN, refused.hint)
                self.refused.add(column)

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
        return self._word("architecture", sent, sent.lower().replace("-", "_"), _ARCHITECTURES, "x86_64 or arm64")

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
        try:
            bmc["address"], system_id = read_bmc_address(
                bmc["address"], scheme_for(cells.get("bmc.protocol"), by_plain_http=by_plain_http)
            )
        except Refused as refused:
            self._wrong("bmc.address", Exception.__str__(refused), EXPECTED, refused.hint)
            return None
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
        return bool(self._word("bmc.allowPlainHTTP", sent, sent.lower(), _YES_OR_NO, "yes or no"))

    def _protocol(self, address: str) -> str | None:
        """What the column says, or what the address says; Redfish is not spelt out."""
        sent = self.row.cells.get("bmc.protocol")
        if sent is None:
            return protocol_of(address)
        return self._word("bmc.protocol", sent, sent.lower(), _PROTOCOLS, "Redfish or IPMI")

    def _word(self, column: Column, sent: str, word: str, known: Mapping[str, T], expected: str) -> T | None:
        """What a cell means that holds one of a few words."""
        if word not in known:
            self._wrong(column, repr(sent), expected, "correct it")
        return known.get(word)

    def _credentials(self) -> BmcCredentials | None:
        password = self.row.cells.get("password")
        return BmcCredentials(self.row.cells.get("username", "root"), Secret(password)) if password else None

    def _mac(self, column: str, text: str | None) -> str | None:
        if text is None:
            return None
        try:
            return read_mac(text)
        except Refused as refused:
            self._wrong(column, Exception.__str__(refused), "a MAC address", refused.hint)
            return None

    def _wrong(self, column: str, observed: str, expected: str, remedy: str) -> None:
        if column in self.refused:
            return
        origin = Origin(self.file, self.row.line, self.row.headers.get(column))
        self.mistakes.append(Mistake(origin, observed, expected, remedy))


def _shared_chassis(rows: Iterable[CsvRow]) -> frozenset[str]:
    counts = Counter(row.cells.get("chassisSerialNumber") for row in rows)
    return frozenset(serial for serial, count in counts.items() if serial is not None and count > 1)


def _label(text: str) -> str:
    """`R01 / Node.7` → `r01-node-7`: what a name may be made of."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:63].rstrip("-")
