"""Column headers of vendors' packing lists: which field each of their spellings means.

Case, spaces, punctuation, parentheses and the order of the words do not matter; common German words are read as the
English ones. What is not known here is mapped by the caller: `--column mac='Netz (PXE)'`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Final, Literal, TypeGuard

Column = Literal[
    "name", "rackRef", "position", "serialNumber", "chassisSerialNumber", "systemUUID", "architecture",
    "bootMACAddress", "bootAddress",
    "subnetName", "nodePoolRef", "endorsementKeySHA256", "bmc.address", "bmc.macAddress", "bmc.credentialsName",
    "bmc.systemID", "bmc.protocol", "bmc.allowPlainHTTP", "username", "password", "dpu.hostRef", "dpu.vtepAddress",
]  # fmt: skip

_SPELLINGS: Final[dict[Column, tuple[str, ...]]] = {
    "bootMACAddress": (
        *("mac", "mac address", "node mac", "boot mac", "pxe mac", "host mac", "lan mac", "lom mac", "ethernet mac"),
        *("system mac", "server mac", "provisioning mac", "pxe boot mac"),
    ),
    "name": ("name", "server", "server name", "host", "hostname", "node", "node name", "system name", "asset name"),
    "rackRef": ("rack", "rack name", "rack id", "rack no", "rack number", "cabinet", "rackRef"),
    "position": (
        *("position", "slot", "u", "ru", "u position", "slot/u position", "rack unit", "rack position", "rack slot"),
        *("slot u", "unit", "he", "he position"),
    ),
    "serialNumber": (
        *("serial", "serial number", "s/n", "sn", "serial no", "serial #", "service tag", "system serial number"),
        *("node serial number", "node serial", "node s/n", "node sn", "system s/n", "server serial number"),
        *("blade serial number", "blade serial", "sled serial number"),
    ),
    "chassisSerialNumber": (
        *("chassis serial number", "chassis serial", "chassis s/n", "chassis sn", "chassis service tag"),
        *("enclosure serial number", "enclosure serial", "enclosure s/n", "frame serial number"),
    ),
    "systemUUID": ("uuid", "system uuid", "smbios uuid"),
    "architecture": ("arch", "architecture", "cpu architecture"),
    "bootAddress": (
        *("ip", "ip address", "node ip", "host ip", "boot ip", "boot address", "server ip", "os ip", "address"),
    ),
    "subnetName": ("subnet", "subnet name", "network"),
    "nodePoolRef": ("pool", "node pool", "nodePoolRef"),
    "endorsementKeySHA256": ("ek sha256", "ek hash", "tpm ek", "tpm ek sha256", "endorsement key sha256"),
    "bmc.address": (
        *("bmc", "bmc ip", "bmc address", "bmc url", "idrac", "idrac ip", "ilo", "ilo ip", "xcc ip", "ipmi ip"),
        *("ipmi address", "redfish", "redfish url", "mgmt ip", "management ip", "oob ip"),
    ),
    "bmc.macAddress": (
        *("bmc mac", "idrac mac", "ilo mac", "xcc mac", "ipmi mac", "mgmt mac", "management mac", "oob mac"),
    ),
    "bmc.credentialsName": ("bmc credentials", "bmc secret", "bmc credentials name", "credentials name"),
    "bmc.systemID": ("bmc system id", "redfish system", "redfish system id", "system id"),
    "bmc.protocol": ("bmc protocol", "protocol"),
    "bmc.allowPlainHTTP": ("bmc plain http", "plain http", "allow plain http", "redfish plain http"),
    "username": (
        *("bmc user", "bmc username", "bmc login", "idrac user", "ipmi user", "ipmi username", "user", "username"),
        "login",
    ),
    "password": (
        *("bmc password", "bmc pass", "bmc pw", "bmc pwd", "bmc default password", "idrac password", "ilo password"),
        *("idrac default password", "ipmi password", "ipmi pass", "default password", "factory password", "password"),
        *("unique password", "pwd"),
    ),
    "dpu.hostRef": ("dpu of", "dpu in", "card in", "parent", "parent server", "parent host", "installed in"),
    "dpu.vtepAddress": ("vtep", "vtep address", "vtep ip", "tunnel ip", "tunnel address", "overlay ip"),
}  # fmt: skip

_GERMAN: Final = (
    *(("adresse", " address"), ("seriennummer", "serial number"), ("seriennr", "serial no"), ("serien", "serial")),
    *(("nummer", " number"), ("geraetename", "name")),
    *(("kennwort", " password"), ("passwort", " password"), ("benutzername", " username"), ("benutzer", " user")),
    *(("schrank", "rack"), ("hoeheneinheit", "rack unit"), ("einbauposition", "position"), ("einbauplatz", "slot")),
    *(("einschub", "slot"), ("subnetz", "subnet"), ("architektur", "architecture"), ("rechnername", "hostname")),
)
_UMLAUTS: Final = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue"})
_SAYS_NOTHING: Final = frozenset({"required", "optional", "mandatory", "pflichtfeld", "erforderlich"})


def _plain(text: str) -> str:
    """Lower case, without accents and invisible characters, German words in English."""
    text = unicodedata.normalize("NFKC", text).casefold().translate(_UMLAUTS)
    text = "".join(
        char for char in unicodedata.normalize("NFD", text) if unicodedata.category(char) not in ("Mn", "Cf")
    )
    for german, english in _GERMAN:
        text = text.replace(german, english)
    return re.sub(r"\bnr\b", "no", text)


def _bare(text: str) -> str:
    return re.sub(r"[^a-z0-9#]+", "", _plain(text))


def _words(text: str) -> frozenset[str]:
    """The words that tell it from others: `MAC address (PXE)` and `PXE MAC` have the same."""
    words = frozenset(re.findall(r"[^\W_]+", _plain(text))) - _SAYS_NOTHING
    return words - {"address"} if words & {"mac", "ip"} else words


_COLUMNS: Final[dict[str, Column]] = {
    _bare(spelling): column for column, spellings in _SPELLINGS.items() for spelling in spellings
}
_COLUMNS_BY_WORDS: Final[dict[frozenset[str], Column]] = {
    _words(spelling): column for column, spellings in _SPELLINGS.items() for spelling in spellings
}
# "MAC 1", "MAC Address 2", "NIC2 MAC", "Port 2 MAC Address", "eth1 mac", "MAC (NIC 2)"
_NUMBERED_MAC: Final = re.compile(
    r"(?:mac(?:address)?|(nic|port|eth|lan)(\d+)mac(?:address)?)(\d*)|mac(?:address)?(nic|port|eth|lan)(\d+)"
)


def column_of(header: str) -> Column | None:
    """The field that a header means; None if it means none that the project knows."""
    return _COLUMNS.get(_bare(header)) or _COLUMNS_BY_WORDS.get(_words(header))


def interface_of(header: str) -> str | None:
    """Name of the further interface whose MAC address the column holds, such as `nic2` for "MAC Address 2"."""
    match = _NUMBERED_MAC.fullmatch(_bare(header))
    if match is None:
        return None
    kind, number, trailing, kind_after, number_after = match.groups()
    if kind_after:
        return f"{kind_after}{number_after}"
    if kind and not trailing:
        return f"{kind}{number}"
    return f"nic{trailing}" if trailing and not kind else None


def field_of(name: str) -> Column | str | None:
    """What the left side of `--column FIELD=HEADER` means: a field by any of its spellings, or `nic2`."""
    if is_column(name):
        return name
    return column_of(name) or interface_of(name) or interface_of(f"{name} mac")


def is_column(field: str) -> TypeGuard[Column]:
    """Whether a field is one of the list's own columns, and no further interface."""
    return field in _SPELLINGS


def field_name(column: Column) -> str:
    """How a field is called in `--column FIELD=HEADER`."""
    return _SPELLINGS[column][0].replace(" ", "-")


def same_header(one: str, other: str) -> bool:
    """Whether two texts are one header: case, spaces and punctuation aside, in any script."""
    folded = [re.sub(r"[\W_]+", "", unicodedata.normalize("NFKC", text).casefold()) for text in (one, other)]
    return folded[0] == folded[1]


def known_headers() -> str:
    """The fields with their spellings, a line each."""
    width = max(len(field_name(column)) for column in _SPELLINGS)
    lines = [f"{field_name(column):<{width}}  {', '.join(spellings)}" for column, spellings in _SPELLINGS.items()]
    return "\n".join([*lines, f"{'nic2':<{width}}  mac 2, nic2 mac, port 2 mac (further interfaces; any number)"])


def looks_like_header(cells: Sequence[str]) -> bool:
    """Whether a line is the list's header: at least two columns are known, a MAC address among them."""
    known = [cell for cell in cells if column_of(cell) or interface_of(cell)]
    return len(known) >= 2 and any("mac" in _bare(cell) for cell in known)
