"""Where a BMC is and how one gets in."""

from __future__ import annotations

from dataclasses import dataclass

from provisioner.api.server import BmcFirmware, BmcProtocol
from provisioner.api.values import Secret


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
