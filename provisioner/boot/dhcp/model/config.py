"""What an operator sets about DHCP. Everything else comes from the inventory."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address
from typing import Final

from provisioner.api.machinery.errors import Refused
from provisioner.boot.tftp.firmware import FIRMWARE_FILES

LONGEST_TEXT: Final = 127
"""File names and URLs, so that they fit the BOOTP field and every reply fits 576 bytes (see template.py)."""
MOST_WORKERS: Final = 16
CLIENT_PORT: Final = 68
LEASE_SECONDS: Final = 86_400
DISCOVERY_LEASE_SECONDS: Final = 120
"""Of unknown machines."""


@dataclass(frozen=True, kw_only=True)
class DhcpConfig:
    """Settings of the responder.

    `server_address` is the server identifier, the source of every reply and the TFTP server (next-server). Replicas
    that share one inventory share this address too, so that each may answer for the others.
    `interfaces` are those with servers attached directly; relays reach the server address and need none of them.
    Raises: Refused if a setting cannot work.
    """

    server_address: str
    interfaces: tuple[str, ...] = ()
    workers: int = 2
    server_port: int = 67
    web_url: str | None = None
    """Where iPXE finds its first script, and UEFI HTTP boot the first-stage files; `http://<server address>` if absent.
    Without a slash at the end."""

    def __post_init__(self) -> None:
        try:
            IPv4Address(self.server_address)
        except AddressValueError as error:
            raise Refused(
                f"DHCP setting server_address is {self.server_address!r}", hint="give an IPv4 address such as 10.80.0.1"
            ) from error
        if not 1 <= self.workers <= MOST_WORKERS:
            raise Refused(f"DHCP setting workers is {self.workers}", hint=f"give 1 to {MOST_WORKERS}")
        for text in (self.script, *map(self.firmware, FIRMWARE_FILES)):
            if not text.isascii() or not 0 < len(text) <= LONGEST_TEXT:
                raise Refused(
                    f"DHCP boot file {text!r} is empty, not ASCII or longer than {LONGEST_TEXT} characters",
                    hint="use a shorter host name or path",
                )

    @property
    def script(self) -> str:
        """URL of iPXE's first script."""
        return f"{self._web}/boot.ipxe"

    def firmware(self, file: str) -> str:
        """URL of a first-stage file."""
        return f"{self._web}/tftp/{file}"

    @property
    def _web(self) -> str:
        return self.web_url or f"http://{self.server_address}"
