"""Addresses of BMCs as packing lists and other tools have them. Pure."""

from __future__ import annotations

import re
import unicodedata
from ipaddress import IPv4Address, IPv6Address
from typing import Final, NamedTuple

from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.rules import BMC_HOST
from provisioner.api.machinery.wording import clip

EXPECTED: Final = "the address of a BMC"
_REMEDY: Final = "write it as 10.90.0.11, https://bmc.example or ipmi://10.90.0.11"

_FORM: Final = re.compile(
    r"(?:(?P<driver>[a-z][a-z0-9.-]*)(?:\+(?P<transport>https?))?://)?(?P<host>[^/]*)(?P<path>/.*)?", re.IGNORECASE
)
_OWN: Final = frozenset({"http", "https", "ipmi"})
_BY_REDFISH: Final = re.compile(r"(?:redfish|idrac|ilo|irmc|xcc)[0-9]*(?:-[a-z]+)?")
"""Drivers of Ironic and Metal3: `redfish-virtualmedia+https://…`, `idrac-redfish://…`, `ilo5://…`."""
_BY_IPMI: Final = frozenset({"ipmitool", "lanplus", "rmcp", "rmcpplus"})
_SYSTEM: Final = re.compile(r"/(?:redfish/v1/)?Systems/(?P<id>[^/]+)/?", re.IGNORECASE)
_PREFIX_LENGTH: Final = re.compile(r"/[0-9]{1,3}")
_LITERAL: Final = re.compile(r"\[(?P<address>[^\]]*)\](?P<mark>:?)(?P<port>.*)")
_PORT: Final = re.compile(r"[0-9]{1,5}")
_DIGITS_AND_DOTS: Final = re.compile(r"[0-9.]+")
_HOST: Final = re.compile(BMC_HOST)


class BmcAddress(NamedTuple):
    """`url` as spec.bmc.address has it; `system_id`: of the system that the address names, None if it names none."""

    url: str
    system_id: str | None = None


def scheme_for(protocol: str | None, *, by_plain_http: bool) -> str:
    """Scheme of an address without one, by what is said of the BMC beside it."""
    return "ipmi" if (protocol or "").lower() == "ipmi" else "http" if by_plain_http else "https"


def protocol_of(url: str) -> str | None:
    """What the address says; Redfish is not spelt out."""
    return "IPMI" if url.lower().startswith("ipmi://") else None


def read_bmc_address(text: str, scheme: str) -> BmcAddress:
    """`scheme` is that of an address without one.

    Raises: Refused for what is no address of a BMC; without its user name and password.
    """
    if "@" in unicodedata.normalize("NFKC", text):
        written = text.partition("://")[0].lower() if "://" in text else ""
        shown = f"{written}://***@…" if written in _OWN else "***@…"
        raise Refused(
            f"{shown}, with credentials that everybody may read who may read a Server",
            hint="write the address alone, and put user name and password into a Secret that bmc.credentialsName names",
        )
    if re.search(r"\s", text):
        raise _refused(text, "has a space in it", "write one address, without spaces")
    match = _FORM.fullmatch(text)
    if match is None:
        raise _refused(text, "is no address", _REMEDY)
    driver, path = (match["driver"] or "").lower(), match["path"] or ""
    if _BY_REDFISH.fullmatch(driver):
        scheme = (match["transport"] or "https").lower()
    elif driver in _BY_IPMI:
        scheme = "ipmi"
    elif driver in _OWN:
        scheme = driver
    elif driver:
        raise _refused(text, f"has a scheme {driver} that is not known", _REMEDY)
    elif _PREFIX_LENGTH.fullmatch(path):
        path = ""  # 10.90.0.11/24, as tools that manage addresses write it
    _check_host(text, match["host"])
    system = _SYSTEM.fullmatch(path)
    return BmcAddress(
        f"{scheme}://{_bracketed(match['host'])}{'' if system else path}", system["id"] if system else None
    )


def _check_host(text: str, authority: str) -> None:
    """Host and port of an address. Raises: Refused."""
    if "%" in authority:
        raise _refused(
            text, "has a zone, which means something on one machine alone", "leave out the % and what follows"
        )
    if _is_ip(authority, IPv6Address):
        return
    literal = _LITERAL.fullmatch(authority)
    host, mark, port = (literal["address"], literal["mark"], literal["port"]) if literal else authority.partition(":")
    if mark and not (_PORT.fullmatch(port) and 0 < int(port) < 65536):
        if ":" in port:
            raise _refused(text, "is no IPv6 address", "write it as [fd00::12]")
        raise _refused(text, f"has a port {port}" if port else "has no port after its colon", "write one of 1 to 65535")
    if literal and (not _is_ip(host, IPv6Address) or (port and not mark)):
        raise _refused(text, "is no IPv6 address", "write it as [fd00::12]")
    if not host:
        raise _refused(text, "has no host", _REMEDY)
    if _DIGITS_AND_DOTS.fullmatch(host) and not _is_ip(host, IPv4Address):
        cut = "; a spreadsheet may have taken its dots" if host.isdecimal() else ""
        raise _refused(text, f"is no IPv4 address{cut}", "write four numbers of 0 to 255, without zeros at their front")
    if not _HOST.fullmatch(host):
        raise _refused(text, "has a host that is neither a name nor an address", _REMEDY)


def _is_ip(host: str, kind: type[IPv4Address] | type[IPv6Address]) -> bool:
    try:
        kind(host)
    except ValueError:
        return False
    return True


def _refused(text: str, why: str, remedy: str) -> Refused:
    return Refused(f"{clip(text, 80)!r} {why}", hint=remedy)


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
