"""What NVIDIA's drivers told the kernel log in this boot: XIDs of GPUs, SXids of NVSwitches, and why the driver did not
start. Read as it comes.
"""

from __future__ import annotations

import re
import time
from typing import Any

from provisioner.node.machine.kernel_log.records import KernelRecords

MOST_XIDS = 32
"""Kept: as many different pairs of GPU and XID; what comes after them is a count."""
MOST_COMPLAINTS = 4
COMPLAINT_LENGTH = 160

_DRIVER = r"^(?:\[[ \d.]+\] )?(?:NVRM: (?:GPU\d+ )?|nvidia [0-9a-f:.]+: |nvidia-nvswitch\d+: )"
"""How lines of the drivers begin. The rest of one fits into the name of a process, which the kernel logs at a fault."""
_XID = re.compile(_DRIVER + r"(S?)Xid \((?:PCI:)?([0-9a-fA-F:.]{5,16})\b[^)]{0,80}\): ([0-9]{1,5})\b(.*)", re.DOTALL)
"""Behind the address stand the instances of MIG: ` GPU-I:05 GPU-CI:00`."""
_LOOKS_LIKE_ONE = re.compile(_DRIVER + r".*\bS?Xid\b")
_DETAILS = re.compile(r"\W*(?:Severity \d|Data \{)")
"""Further lines of an SXid that was told of."""
_SEVERITY = re.compile(r"\b(Non-?fatal|Fatal)\b", re.IGNORECASE)
_TELL_THEIR_SEVERITY = range(144, 151)
"""XIDs of NVLink 5."""
_RECOVERED = re.compile(r"\b154, .* to 0x0 \(None\)")
"""Whoever resets a GPU is told by an XID that nothing more is to be done: no error."""
_COMPLAINTS = re.compile(
    r"RmInitAdapter failed|API mismatch|fallen off the bus|is not supported by|not supported by the NVIDIA|"
    r"firmware load for nvidia/|GSP firmware|GSP-?RM|nvidia: (?:disagrees|Unknown symbol|module verification|probe)|"
    r"nvidia\.ko|Loading of unsigned module|Loading of module with unavailable key"
)


class KernelLog:
    """What was found so far. `xids`: the first of each pair of GPU and XID, with how many lines it has; one that the
    driver calls nonfatal is of another pair, as is one of an NVSwitch. `unread`: lines that look like an XID, and could
    not be read."""

    def __init__(self, path: str, records: KernelRecords | None = None) -> None:
        """records: the reader of `path` that others share; else one of its own."""
        self._records = records or KernelRecords(path)
        self._records.add(self._take)
        self.xids: dict[tuple[Any, ...], dict[str, Any]] = {}
        self.xids_left_out = 0
        self.unread: list[str] = []
        self.unread_count = 0
        self.complaints: list[str] = []

    @property
    def is_readable(self) -> bool:
        return self._records.is_readable

    def look(self) -> None:
        """Read what came since the last look."""
        self._records.look()

    def _take(self, words: bytes, moment: float) -> None:
        if not (b"NVRM" in words or b"nvidia" in words or b"module" in words):
            return
        text = words.decode("utf-8", "replace")
        if xid := _XID.search(text):
            if not _RECOVERED.search(text) and not (xid[1] and _DETAILS.match(xid[4])):
                self._count(xid, moment)
        elif _LOOKS_LIKE_ONE.search(text):
            self.unread_count += 1
            _keep(self.unread, text)
        elif _COMPLAINTS.search(text):
            _keep(self.complaints, text)

    def _count(self, found: re.Match[str], moment: float) -> None:
        address, number = pci_address(found[2]), int(found[3])
        kind: dict[str, str] = {"kind": "SXid"} if found[1] else {}
        said = _SEVERITY.search(found[4]) if kind or number in _TELL_THEIR_SEVERITY else None
        severity = ("Fatal" if said[1].lower() == "fatal" else "Nonfatal") if said else ""
        if severity and (kind or severity == "Nonfatal"):
            kind["severity"] = severity
        key = (address, number, *kind.values())
        if key in self.xids:
            self.xids[key]["count"] += 1
            return
        if len(self.xids) >= MOST_XIDS:
            self.xids_left_out += 1
            if not self._make_room(number):
                return
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))
        self.xids[key] = {"address": address, "xid": number, "count": 1, "time": when, **kind}

    def _make_room(self, number: int) -> bool:
        """By the last of an XID that many GPUs have had: the first of another must not be lost among them."""
        numbers = [key[1] for key in self.xids]
        most = max(numbers, key=numbers.count)
        if number in numbers or numbers.count(most) < 2:
            return False
        del self.xids[next(key for key in reversed(self.xids) if key[1] == most)]
        return True


def _keep(lines: list[str], text: str) -> None:
    line = "".join(c if c.isprintable() else " " for c in text)[:COMPLAINT_LENGTH].strip()
    if line not in lines and len(lines) < MOST_COMPLAINTS:
        lines.append(line)


def pci_address(said: str) -> str:
    """`0000:1b:00` and `0000:1B:00.0` as sysfs has it, 0000:1b:00.0."""
    address = said.lower().strip(":.")
    return address if "." in address else f"{address}.0"
