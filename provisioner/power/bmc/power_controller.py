"""What the controller needs of a BMC, whatever it speaks; and how BMCs fail.

ProvisionerError
├── Retryable
│   └── BmcUnreachable   no connection, no answer in time, or the BMC says that it is busy
└── NeedsHuman
    └── BmcRefused       wrong password or certificate, or a BMC that cannot do what is asked
"""

from __future__ import annotations

from typing import Literal, Protocol

from provisioner.api.errors import NeedsHuman, Retryable

ObservedPower = Literal["On", "Off"]
OverrideEnabled = Literal["Once", "Continuous"]
OverrideTarget = Literal["Pxe", "UefiHttp", "None"]


class BmcUnreachable(Retryable):
    """The BMC cannot be asked just now."""

    reason = "BMCUnreachable"


class BmcRefused(NeedsHuman):
    """The BMC will not do it until a person changes something; `reason` is a condition's."""

    def __init__(self, message: str, *, reason: str, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.reason = reason


class PowerController(Protocol):
    """Power of one server. Every call is bounded in time. All raise BmcUnreachable and BmcRefused."""

    def get_power_state(self) -> ObservedPower:
        """Whether the server has power; it still has while it turns off."""

    def set_boot_override(
        self, enabled: OverrideEnabled, target: OverrideTarget, http_boot_uri: str | None = None
    ) -> None:
        """What the server boots next, or always. `http_boot_uri` only with UefiHttp; DHCP says it if absent."""

    def power_on(self) -> None:
        """Power on; nothing happens if it is on."""

    def power_off(self, *, force: bool) -> None:
        """Ask the system to shut down, or cut the power. Returns when the BMC has accepted it."""

    def reset(self) -> None:
        """Restart at once, without asking the system."""

    def close(self) -> None:
        """End the session on the BMC, which has few. Never raises."""
