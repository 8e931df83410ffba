"""Column headers of vendors' packing lists: which field each of their spellings means."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal

Column = Literal[
    "name", "rackRef", "position", "serialNumber", "systemUUID", "architecture", "bootMACAddress", "bootAddress",
    "subnetName", "nodePoolRef", "endorsementKeySHA256", "bmc.address", "bmc.macAddress", "bmc.credentialsName",
    "bmc.systemID", "bmc.protocol", "username", "password",
]  # fmt: skip

_SPELLINGS: Final[dict[Column, tuple[str, ...]]] = {
    "name": ("name", "server", "server name", "host", "hostname", "node", "node name", "system name", "asset name"),
    "rackRef": ("rack", "rack name", "rack id", "rack no", "rack number", "cabinet", "rackRef"),
    "position": (
        *("position", "slot", "u", "ru", "u position", "slot/u position", "rack unit", "rack position", "rack slot"),
        "unit",
    ),
    "serialNumber": (
        *("serial number", "serial", "s/n", "sn", "serial no", "serial #", "service tag", "system serial number"),
        *("chassis serial number", "node serial number", "node s/n", "system s/n", "server serial number"),
    ),
    "systemUUID": ("uuid", "system uuid", "smbios uuid"),
    "architecture": ("architecture", "arch", "cpu architecture"),
    "bootMACAddress": (
        *("mac address", "mac", "node mac", "node mac address", "boot mac", "boot mac address", "pxe mac", "host mac"),
        *("pxe mac address", "host mac address", "lan mac", "lom mac", "ethernet mac", "system mac", "server mac"),
        "provisioning mac",
    ),
    "bootAddress": (
        "ip",
        "ip address",
        "node ip",
        "host ip",
        "boot ip",
        "boot address",
        "server ip",
        "os ip",
        "address",
    ),
    "subnetName": ("subnet", "subnet name", "network"),
    "nodePoolRef": ("pool", "node pool", "nodePoolRef"),
    "endorsementKeySHA256": ("ek sha256", "ek hash", "tpm ek", "tpm ek sha256", "endorsement key sha256"),
    "bmc.address": (
        *("bmc", "bmc ip", "bmc address", "bmc ip address", "bmc url", "idrac", "idrac ip", "ilo ip", "xcc ip"),
        *("ipmi ip", "ipmi address", "redfish", "redfish url", "mgmt ip", "management ip", "oob ip"),
    ),
    "bmc.macAddress": (
        *("bmc mac", "bmc mac address", "idrac mac", "idrac mac address", "ilo mac", "xcc mac", "ipmi mac"),
        *("ipmi mac address", "mgmt mac", "management mac", "oob mac"),
    ),
    "bmc.credentialsName": ("bmc credentials", "bmc secret", "bmc credentials name", "credentials name"),
    "bmc.systemID": ("bmc system id", "redfish system", "redfish system id", "system id"),
    "bmc.protocol": ("bmc protocol", "protocol"),
    "username": (
        *("bmc user", "bmc username", "bmc login", "idrac user", "ipmi user", "ipmi username", "user", "username"),
        "login",
    ),
    "password": (
        *("bmc password", "bmc pass", "bmc pw", "bmc pwd", "bmc default password", "idrac password", "ilo password"),
        *("idrac default password", "ipmi password", "ipmi pass", "default password", "factory password", "password"),
        *("unique password", "pwd"),
    ),
}


def _bare(text: str) -> str:
    return re.sub(r"[^a-z0-9#]+", "", text.lower())


_COLUMNS: Final[dict[str, Column]] = {
    _bare(spelling): column for column, spellings in _SPELLINGS.items() for spelling in spellings
}
# "MAC 1", "MAC Address 2", "NIC2 MAC", "Port 2 MAC Address", "eth1 mac"
_NUMBERED_MAC: Final = re.compile(r"(?:mac(?:address)?|(nic|port|eth|lan)(\d+)mac(?:address)?)(\d*)")


def column_of(header: str) -> Column | None:
    """The field that a header means; None if it means none that the project knows."""
    return _COLUMNS.get(_bare(header))


def interface_of(header: str) -> str | None:
    """Name of the further interface whose MAC address the column holds, such as `nic2` for "MAC Address 2"."""
    match = _NUMBERED_MAC.fullmatch(_bare(header))
    if match is None:
        return None
    kind, number, trailing = match.groups()
    if kind and not trailing:
        return f"{kind}{number}"
    return f"nic{trailing}" if trailing and not kind else None


def looks_like_header(cells: Sequence[str]) -> bool:
    """Whether a line is the list's header: at least two columns are known, a MAC address among them."""
    known = [cell for cell in cells if column_of(cell) or interface_of(cell)]
    return len(known) >= 2 and any("mac" in _bare(cell) for cell in known)
