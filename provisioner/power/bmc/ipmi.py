"""IPMI 2.0 as a `PowerController`. Its errors say in words what a person would look for.

Each call is a session of its own, which is closed at its end: BMCs have few, and end idle ones after a minute.
Source: IPMI specification 2.0, sections 28.2 (chassis status), 28.3 (chassis control), 28.12 (boot options).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

from provisioner.power.bmc.ipmi_processes import IpmiNoAnswer, IpmiProcesses
from provisioner.power.bmc.power_controller import (
    BmcAccess,
    BmcRefused,
    BmcUnreachable,
    ObservedPower,
    OverrideTarget,
    host_and_port,
)

PORT: Final = 623
CALL_SECONDS: Final = 25.0
_USERNAME_BYTES: Final = 16
_PASSWORD_BYTES: Final = 20

_FLAGS_VALID, _FLAGS_EFI = 0x80, 0x20
_BOOT_BY_PXE: Final = 0x04

_WRONG_CREDENTIALS: Final = ("Incorrect password", "Unauthorized name", "Invalid role", "Invalid username")
_NO_PRIVILEGE: Final = ("Unauthorized role", "privelege level")  # the latter is pyghmi's spelling
_BUSY: Final = ("Insufficient resources",)
_NO_CIPHER: Final = (
    *("Invalid authentication algorithm", "Invalid integrity algorithm", "Invalid confidentiality algorithm"),
    *("No Cipher suite", "IPMI 1.5 only"),
)


@dataclass(frozen=True)
class Command:
    """One command of a session. `once`: it is not repeated if no answer comes. `optional`: it may fail."""

    netfn: int
    command: int
    data: tuple[int, ...] = ()
    once: bool = False
    optional: bool = False


_CHASSIS_STATUS: Final = Command(0x00, 0x01)
_POWER_DOWN: Final = Command(0x00, 0x02, (0,))
_POWER_UP: Final = Command(0x00, 0x02, (1,))
_HARD_RESET: Final = Command(0x00, 0x02, (3,), once=True)
_SOFT_SHUTDOWN: Final = Command(0x00, 0x02, (5,))
# The override shall outlive a machine that takes more than 60 s to get to its boot; not every BMC knows the parameter.
_KEEP_FLAGS: Final = Command(0x00, 0x08, (3, 8), optional=True)
_GET_FLAGS: Final = Command(0x00, 0x09, (5, 0, 0), optional=True)


class IpmiPower:
    """One BMC. Nothing is kept open between calls."""

    def __init__(self, access: BmcAccess, processes: IpmiProcesses, *, call_seconds: float = CALL_SECONDS) -> None:
        self._access = access
        self._processes = processes
        self._seconds = call_seconds

    def get_power_state(self) -> ObservedPower:
        status = self._send(_CHASSIS_STATUS)
        if not status:
            raise BmcUnreachable(f"BMC {self._access.address} does not say whether its server has power")
        return "On" if status[0] & 1 else "Off"

    def set_boot_override(self, target: OverrideTarget, http_boot_uri: str | None = None) -> str | None:
        if target != "Pxe":
            raise BmcRefused(
                f"BMC {self._access.address} cannot be told {target} by IPMI",
                reason="NotSupported",
                hint="set spec.bmc.bootMethod to Pxe, or spec.bmc.protocol to Redfish",
            )
        flags = _FLAGS_VALID | (_FLAGS_EFI if self._access.firmware == "UEFI" else 0)
        seen = self._send(_KEEP_FLAGS, Command(0x00, 0x08, (5, flags, _BOOT_BY_PXE, 0, 0, 0)), _GET_FLAGS)
        # Version, parameter, flags, device. A BMC that reads nothing back has taken it for all that can be known.
        if len(seen) > 3 and (seen[3] >> 2 & 0xF) != _BOOT_BY_PXE >> 2:
            raise BmcRefused(
                f"BMC {self._access.address} accepted to boot by {target}, and has device {seen[3] >> 2 & 0xF:#x}",
                reason="NotSupported",
                hint="update the BMC's firmware, set spec.bmc.protocol to Redfish, or spec.bmc.bootMethod to Disk",
            )
        return None

    def power_on(self) -> None:
        self._send(_POWER_UP)

    def power_off(self, *, force: bool) -> None:
        self._send(_POWER_DOWN if force else _SOFT_SHUTDOWN)

    def reset(self) -> None:
        self._send(_HARD_RESET)

    def close(self) -> None:
        """Nothing is open."""

    def _send(self, *commands: Command) -> list[int]:
        """The data that the last one was answered with. Raises: BmcUnreachable, BmcRefused."""
        access = self._access
        self._refuse_too_long()
        host, port = host_and_port(access.address, "ipmi", PORT)
        request = {
            "host": host,
            "port": port,
            "username": access.username,
            "password": access.password.reveal(),
            "commands": [asdict(command) for command in commands],
        }
        try:
            said = self._processes.ask(request, seconds=self._seconds)
        except IpmiNoAnswer as error:
            raise BmcUnreachable(f"BMC {access.address} does not answer: {error}", after_seconds=5.0) from error
        if "error" in said:
            raise self._of_error(said["error"])
        last: dict[str, Any] = said["answers"][-1]
        if last["code"] and len(said["answers"]) == len(commands) and commands[-1].optional:
            return []
        if last["code"]:
            raise self._of_code(last["code"])
        data: list[int] = last["data"]
        return data

    def _refuse_too_long(self) -> None:
        access = self._access
        name, password = len(access.username.encode()), len(access.password.reveal().encode())
        if name > _USERNAME_BYTES or password > _PASSWORD_BYTES:
            raise BmcRefused(
                f"Secret {access.credentials_name} does not fit into IPMI: the user name has {name} bytes, of at most "
                f"{_USERNAME_BYTES}, and the password {password}, of at most {_PASSWORD_BYTES}",
                reason="CredentialsUnusable",
                hint="give the BMC's user a shorter password, or set spec.bmc.protocol to Redfish",
            )

    def _of_error(self, words: str) -> BmcUnreachable | BmcRefused:
        access = self._access
        if _any_of(_WRONG_CREDENTIALS, words):
            return BmcRefused(
                f"BMC {access.address} refused user {access.username!r}: {words}",
                reason="CredentialsRefused",
                hint=f"correct username and password in Secret {access.credentials_name}; may the user log in by LAN?",
            )
        if _any_of(_NO_PRIVILEGE, words):
            return self._no_privilege(words)
        if _any_of(_NO_CIPHER, words):
            return BmcRefused(
                f"BMC {access.address} offers no login that is safe enough: {words}",
                reason="NotSupported",
                hint="allow cipher suite 17 or 3 on the BMC (IPMI 2.0 with HMAC-SHA256 or HMAC-SHA1, and AES)",
            )
        if _any_of(_BUSY, words):
            return BmcUnreachable(f"BMC {access.address} is busy: {words}", after_seconds=5.0)
        return BmcUnreachable(f"BMC {access.address} does not answer: {words}", after_seconds=5.0)

    def _of_code(self, code: int) -> BmcUnreachable | BmcRefused:
        address = self._access.address
        match code:
            case 0xC0 | 0xC3 | 0xCE | 0xD0 | 0xD2:
                return BmcUnreachable(f"BMC {address} is busy (completion code {code:#04x})", after_seconds=5.0)
            case 0xD5:
                words = f"BMC {address} says that its server's power changed meanwhile (completion code {code:#04x})"
                return BmcUnreachable(words, after_seconds=1.0)
            case 0xD4:
                return self._no_privilege(f"completion code {code:#04x}")
        return BmcRefused(
            f"BMC {address} refused the request (completion code {code:#04x})",
            reason="RequestRefused",
            hint="check what the BMC supports by IPMI, or set spec.bmc.protocol to Redfish",
        )

    def _no_privilege(self, words: str) -> BmcRefused:
        access = self._access
        return BmcRefused(
            f"BMC {access.address} lets user {access.username!r} in, but not switch the power: {words}",
            reason="PrivilegeRefused",
            hint="give the user the privilege Operator or Administrator on the BMC's LAN channel",
        )


def _any_of(parts: tuple[str, ...], words: str) -> bool:
    return any(part.lower() in words.lower() for part in parts)
