"""What it takes to reach a BMC, what the controller needs of it, whatever it speaks, and how BMCs fail.

ProvisionerError
├── Retryable
│   └── BmcUnreachable   no connection, no answer in time, or the BMC says that it is busy
│       └── BmcCutOff    it answered with more than an answer may have
└── NeedsHuman
    └── BmcRefused       wrong password or certificate, or a BMC that cannot do what is asked
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, Protocol
from urllib.parse import urlsplit

from provisioner.api.machinery.errors import NeedsHuman, Retryable
from provisioner.api.machinery.values import Secret
from provisioner.api.servers.server import BmcFirmware, BmcProtocol
from provisioner.rules.bootability import REMEDY, without_remedy

ObservedPower = Literal["On", "Off"]
OverrideTarget = Literal["Pxe", "UefiHttp"]


MESSAGE_LENGTH: Final = 700


def fit(words: object, length: int = 200) -> str:
    """What a BMC says, as it may be shown: printable, on one line, at most `length` characters."""
    said = str(words)
    clipped = said if len(said) <= length else f"{said[: length - 1]}…"
    return without_remedy("".join(c if c.isprintable() else " " for c in clipped))


class BmcUnreachable(Retryable):
    """The BMC cannot be asked just now. Whatever it said in `message` is made fit to be shown."""

    reason = "BMCUnreachable"

    def __init__(self, message: str, *, after_seconds: float = 1.0) -> None:
        super().__init__(fit(message, MESSAGE_LENGTH), after_seconds=after_seconds)


class BmcCutOff(BmcUnreachable):
    """The BMC answered with more than an answer may have: it was not listened to any further."""

    reason = "BMCCutOff"


class BmcRefused(NeedsHuman):
    """The BMC will not do it until a person changes something; `reason` is a condition's. As above, `message` is made
    fit to be shown."""

    def __init__(self, message: str, *, reason: str, hint: str) -> None:
        super().__init__(fit(message, MESSAGE_LENGTH), hint=hint)
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.args[0]}{REMEDY}{self.hint}"


_HOST: Final = re.compile(r"[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]")


def host_and_port(address: str, scheme: str, usual_port: int) -> tuple[str, int]:
    """Of `scheme://host:port`, `host:port` or `host`. Raises: BmcRefused."""
    given, _, rest = address.rpartition("://")
    authority = rest.partition("/")[0]
    host = _HOST.match(authority)
    written = (
        f"write it as {given or scheme}://{host[0]}" if host else f"write an address such as {scheme}://10.90.0.11"
    )
    if authority.count(":") > 1 and "[" not in authority:
        why, written = "an IPv6 address needs brackets", f"write it as {given or scheme}://[{authority}]"
    else:
        try:
            url = urlsplit(f"{scheme}://{authority}")
            if url.hostname:
                return url.hostname, url.port or usual_port
            why = "it names no host"
        except ValueError as error:
            why = str(error)
    raise BmcRefused(
        f"spec.bmc.address {fit(address)!r} cannot be used: {why}", reason="AddressInvalid", hint=fit(written)
    )


@dataclass(frozen=True, kw_only=True)
class BmcAccess:
    """What it takes to talk to one BMC. `credentials_name` is the Secret, for messages."""

    address: str
    username: str
    password: Secret
    credentials_name: str
    protocol: BmcProtocol = "Redfish"
    certificate: str | None = None
    allow_plain_http: bool = False
    system_id: str | None = None
    firmware: BmcFirmware = "UEFI"


class PowerController(Protocol):
    """Power of one server. Every call is bounded in time. All raise BmcUnreachable and BmcRefused."""

    def get_power_state(self) -> ObservedPower:
        """Whether the server has power; it still has while it turns off."""

    def set_boot_override(self, target: OverrideTarget, http_boot_uri: str | None = None) -> str | None:
        """What the server boots next, once. `http_boot_uri` only with UefiHttp; DHCP says it if absent.

        Returns the URI that the BMC took; None where it takes none. What was set has been read back.
        """

    def power_on(self) -> None:
        """Power on; nothing happens if it is on."""

    def power_off(self, *, force: bool) -> None:
        """Ask the system to shut down, or cut the power. Returns when the BMC has accepted it."""

    def reset(self) -> None:
        """Restart at once, without asking the system."""

    def close(self) -> None:
        """End the session on the BMC, which has few. Never raises."""
