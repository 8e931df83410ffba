"""Redfish through sushy, as a `PowerController`. Its errors say in words what a person would look for."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Final

import sushy
import sushy.exceptions

from provisioner.api.machinery.errors import Retryable
from provisioner.outbound.deadline import OutboundFailed
from provisioner.power.bmc.boot_override import BootOverride
from provisioner.power.bmc.power_controller import (
    BmcAccess,
    BmcCutOff,
    BmcRefused,
    BmcUnreachable,
    ObservedPower,
    OverrideTarget,
    fit,
    host_and_port,
)
from provisioner.power.bmc.redfish_connection import (
    BUSY_STATUS,
    CALL_SECONDS,
    CLOSE_SECONDS,
    CONNECT_SECONDS,
    READ_SECONDS,
    BmcConnector,
    BoundedCall,
    explain,
    fingerprint_of,
)
from provisioner.power.bmc.redfish_session import BmcSession

_SYSTEMS_NAMED: Final = 8
_NONSENSE: Final = (sushy.exceptions.SushyError, AttributeError, KeyError, TypeError, ValueError, IndexError)
"""What an answer that makes no sense leads to, such as BMCs give while they start: sushy takes a document to have the
shape that it should have."""
_NO_COMPUTER: Final = "set spec.bmc.systemID to the system that is the server, or update the BMC's firmware"


class RedfishPower:
    """One BMC. The first call connects; the session is kept until `close`, and opened again if the BMC forgot it.

    One thread at a time calls it; `close` may be called by another at any time. Between calls nothing is kept of what
    the BMC said but its session, and the path of the system.
    """

    def __init__(
        self,
        access: BmcAccess,
        *,
        connect_seconds: float = CONNECT_SECONDS,
        read_seconds: float = READ_SECONDS,
        call_seconds: float = CALL_SECONDS,
    ) -> None:
        self._access = access
        self._seconds = {"connect_seconds": connect_seconds, "read_seconds": read_seconds}
        self._call_seconds = call_seconds
        self._bounds = BoundedCall()
        self._session = BmcSession(access.username, access.password.reveal())
        self._root: Any = None
        self._system_path: str | None = None
        self._in_use = threading.Lock()
        self._closed = False

    def get_power_state(self) -> ObservedPower:
        with self._call():
            system = self._refreshed()
            state = system.power_state
            if "PowerState" not in system.json:  # nor a Reset action: it is no server, and this says so
                system.get_allowed_reset_system_values()
        if state is None:
            raise BmcUnreachable(f"BMC {self._access.address} does not say whether its server has power")
        # A server that turns on, turns off or pauses has power still.
        return "Off" if state == sushy.PowerState.OFF else "On"

    def set_boot_override(self, target: OverrideTarget, http_boot_uri: str | None = None) -> str | None:
        with self._call():
            override = BootOverride(self._access.address, self._refreshed(), self._access.firmware)
            return override.write(target, http_boot_uri)

    def power_on(self) -> None:
        self._reset_as(sushy.ResetType.ON, sushy.ResetType.FORCE_ON)

    def power_off(self, *, force: bool) -> None:
        if force:
            self._reset_as(sushy.ResetType.FORCE_OFF)
        else:
            self._reset_as(sushy.ResetType.GRACEFUL_SHUTDOWN, sushy.ResetType.PUSH_POWER_BUTTON)

    def reset(self) -> None:
        self._reset_as(sushy.ResetType.FORCE_RESTART, sushy.ResetType.POWER_CYCLE)

    def close(self) -> None:
        """End the session; it is not opened again. A call that is under way ends it when it returns."""
        self._closed = True
        if self._in_use.acquire(blocking=False):
            try:
                self._disconnect()
            finally:
                self._in_use.release()

    def _disconnect(self) -> None:
        self._root = None
        # A time of its own: the call that failed may have used up all that it had.
        with contextlib.suppress(Exception), self._bounds.within(CLOSE_SECONDS):
            self._session.end()

    def _refreshed(self) -> Any:
        if self._root is None:
            self._connect()
        return self._root.get_system(self._system_path)

    def _connect(self) -> None:
        access = self._access
        host_and_port(access.address, "https", 443)
        fingerprint = fingerprint_of(access.certificate) if access.certificate else None
        connector = BmcConnector(
            access.address, fingerprint, self._bounds, allow_plain_http=access.allow_plain_http, **self._seconds
        )
        root = sushy.Sushy(access.address, auth=self._session, connector=connector)
        self._system_path = self._find_system(root.get_system_collection().members_identities)
        # All that is asked of it from here on is where sessions are opened.
        root._json = {name: root.json[name] for name in ("Links",) if name in root.json}  # noqa: SLF001
        self._root = root

    def _find_system(self, paths: Sequence[str]) -> str:
        access = self._access
        wanted = access.system_id
        found = [path for path in paths if wanted in (None, os.path.basename(path))]  # noqa: PTH119 (a URL's path)
        if len(found) == 1 or (found and wanted is not None):
            return found[0]
        if not paths:
            raise BmcUnreachable(f"BMC {access.address} gave no usable answer: it lists no system", after_seconds=10.0)
        lacks = f"has no system {wanted!r}, only" if wanted is not None else f"has {len(paths)} systems:"
        raise BmcRefused(
            f"BMC {access.address} {lacks} {fit(list(paths[:_SYSTEMS_NAMED]))}",
            reason="SystemNotFound",
            hint="correct spec.bmc.systemID" if wanted is not None else "set spec.bmc.systemID to the last part of one",
        )

    def _reset_as(self, *preferred: sushy.ResetType) -> None:
        with self._call():
            system = self._refreshed()
            allowed = system.get_allowed_reset_system_values()
            chosen = next((reset_type for reset_type in preferred if reset_type in allowed), None)
            if chosen is None:
                raise BmcRefused(
                    f"BMC {self._access.address} offers none of {[kind.value for kind in preferred]}, "
                    f"only {sorted(kind.value for kind in allowed)}",
                    reason="ResetNotSupported",
                    hint="update the BMC's firmware, or press the button",
                )
            system.reset_system(chosen)

    @contextlib.contextmanager
    def _call(self) -> Iterator[None]:
        try:
            with self._in_use:
                if self._closed:
                    raise Retryable(f"the connection to BMC {self._access.address} was closed here meanwhile")
                with self._words(), self._bounds.within(self._call_seconds):
                    yield
        finally:
            if self._closed:
                self.close()

    @contextlib.contextmanager
    def _words(self) -> Iterator[None]:
        """Put sushy's errors into ours."""
        try:
            yield
        except sushy.exceptions.AccessError as error:
            self._disconnect()
            raise self._of_access(error) from error
        except sushy.exceptions.HTTPError as error:
            raise self._of_http(error) from error
        except (sushy.exceptions.ConnectionError, OutboundFailed) as error:
            raise self._of_connection(error) from error
        except sushy.exceptions.MissingActionError as error:
            raise BmcRefused(
                f"BMC {self._access.address} has system {self._system_path}, which cannot be reset: it is no computer",
                reason="SystemNotFound",
                hint=_NO_COMPUTER,
            ) from error
        except _NONSENSE as error:
            said = fit(f"{type(error).__name__}: {error}")
            words = f"BMC {self._access.address} gave no usable answer: {said}"
            raise BmcUnreachable(words, after_seconds=10.0) from error

    def _of_access(self, error: sushy.exceptions.AccessError) -> BmcRefused:
        """By what the BMC says of it: a password that is right is not to be corrected."""
        access, said = self._access, _said_with(error)
        who = f"BMC {access.address} refused user {access.username!r} (HTTP {error.status_code})"
        if "passwordchangerequired" in said:
            return BmcRefused(
                f"{who} until the password is changed; the one that it was given is right",
                reason="PasswordChangeRequired",
                hint=f"change it on the BMC (its web page, or a PATCH of the account below /redfish/v1/AccountService/"
                f"Accounts), then write the new one to Secret {access.credentials_name}",
            )
        if "locked" in said or "lockout" in said:
            return BmcRefused(
                f"{who}: the account is locked",
                reason="AccountLocked",
                hint=f"wait until the BMC unlocks it, or unlock it there; correct the password in Secret "
                f"{access.credentials_name} if it is wrong",
            )
        if "insufficientprivilege" in said:
            return BmcRefused(
                f"BMC {access.address} lets user {access.username!r} in, but not do this (HTTP {error.status_code})",
                reason="PrivilegeRefused",
                hint="give the user the role Operator or Administrator on the BMC",
            )
        return BmcRefused(
            who,
            reason="CredentialsRefused",
            hint=f"correct username and password in Secret {access.credentials_name}",
        )

    def _of_connection(self, error: Exception) -> BmcUnreachable | BmcRefused:
        address, cause = self._access.address, explain(error)
        if cause.certificate:
            return BmcRefused(
                f"BMC {address} did not present the certificate that was expected: {cause.words}",
                reason="CertificateRefused",
                hint="set spec.bmc.certificate to the one that the BMC has now, once you know why it changed",
            )
        if cause.bound:
            remedy = "reset the BMC or update its firmware; if that does not help, do not trust it"
            return BmcCutOff(f"BMC {address} was cut off: {cause.words}; {remedy}", after_seconds=10.0)
        return BmcUnreachable(f"BMC {address} does not answer: {cause.words}", after_seconds=5.0)

    def _of_http(self, error: sushy.exceptions.HTTPError) -> BmcUnreachable | BmcRefused:
        access = self._access
        said = fit(error.detail or "no reason given")
        if error.status_code in BUSY_STATUS or error.status_code >= 500:
            return BmcUnreachable(f"BMC {access.address} is busy (HTTP {error.status_code}): {said}", after_seconds=5.0)
        if error.status_code == 404:
            # It forgot the path that it gave us: look it up again.
            self._disconnect()
            return BmcUnreachable(f"BMC {access.address} lost the system that it had (HTTP 404)", after_seconds=5.0)
        if error.status_code == 412:
            return BmcUnreachable(f"BMC {access.address} was changed by somebody else meanwhile", after_seconds=1.0)
        return BmcRefused(
            f"BMC {access.address} refused the request (HTTP {error.status_code}): {said}",
            reason="RequestRefused",
            hint="check that spec.bmc names a Redfish service, and what it supports",
        )


def _said_with(error: sushy.exceptions.HTTPError) -> str:
    """Ids and words of all messages of an error, in lower case."""
    more = error.extended_info if isinstance(error.extended_info, list) else [error.extended_info]
    messages = [each for each in more if isinstance(each, dict)]
    parts = [error.code, error.detail, *(each.get(name) for each in messages for name in ("MessageId", "Message"))]
    return " ".join(part.lower() for part in parts if isinstance(part, str))
