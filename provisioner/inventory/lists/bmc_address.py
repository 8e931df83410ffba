"""Addresses of BMCs as packing lists and other tools have them. Pure."""

from __future__ import annotations

import re
from ipaddress import IPv6Address
from typing import Final, NamedTuple

_FORM: Final = re.compile(
    r"(?:(?P<driver>[a-z][a-z0-9.-]*)(?:\+(?P<transport>https?))?://)?(?P<host>[^/]*)(?P<path>/.*)?", re.IGNORECASE
)
_OWN: Final = frozenset({"http", "https", "ipmi"})
_BY_REDFISH: Final = re.compile(r"(?:redfish|idrac|ilo|irmc|xcc)[0-9]*(?:-[a-z]+)?")
"""Drivers of Ironic and Metal3: `redfish-virtualmedia+https://…`, `idrac-redfish://…`, `ilo5://…`."""
_BY_IPMI: Final = frozenset({"ipmitool", "lanplus", "rmcp", "rmcpplus"})
_SYSTEM: Final = re.compile(r"/(?:redfish/v1/)?Systems/(?P<id>[^/]+)/?", re.IGNORECASE)
_PREFIX_LENGTH: Final = re.compile(r"/[0-9]{1,3}")


class BmcAddress(NamedTuple):
    """`url` as spec.bmc.address has it; `system_id`: of the system that the address names, None if it names none."""

    url: str
    system_id: str | None = None


def read_bmc_address(text: str, scheme: str) -> BmcAddress:
    """`scheme` is that of an address without one. What is no address that is known here comes back as it is."""
    match = _FORM.fullmatch(text)
    if match is None:
        return BmcAddress(text)
    driver, path = (match["driver"] or "").lower(), match["path"] or ""
    if _BY_REDFISH.fullmatch(driver):
        scheme = (match["transport"] or "https").lower()
    elif driver in _BY_IPMI:
        scheme = "ipmi"
    elif driver in _OWN:
        scheme = driver
    elif driver:
        return BmcAddress(text)
    elif _PREFIX_LENGTH.fullmatch(path):
        path = ""  # 10.90.0.11/24, as tools that manage addresses write it
    system = _SYSTEM.fullmatch(path)
    return BmcAddress(
        f"{scheme}://{_bracketed(match['host'])}{'' if system else path}", system["id"] if system else None
    )


def bracketed(address: str) -> str:
    """The same with its host in brackets, if that is an IPv6 address without them."""
    scheme, mark, rest = address.rpartition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{mark}{_bracketed(host)}{slash}{path}"


def _bracketed(host: str) -> str:
    try:
        return f"[{IPv6Address(host)}]"
    except ValueError:
        return host
