"""The session on one BMC, which has few of them."""

from __future__ import annotations

import contextlib
import ssl
from typing import Final
from urllib.parse import urlsplit

import requests
import urllib3
from sushy import exceptions
from sushy.auth import SessionOrBasicAuth

from provisioner.power.bmc.redfish_connection import BUSY_STATUS, is_path, layers

SESSIONS_LOOKED_AT: Final = 32
"""So many of those that a BMC lists are looked at for ours; the others are left to its time-out."""


class BmcSession(SessionOrBasicAuth):  # type: ignore[misc]  # sushy has no types
    """The session on one BMC, which has few of them; Basic authentication where the BMC opens none.

    sushy forgets a session as soon as the BMC refuses its token, and leaves it open if the BMC still knew it. Here a
    session is remembered until the BMC was asked to end it and has answered, and no other is opened before.
    """

    def __init__(self, username: str, password: str) -> None:
        super().__init__(username, password)
        self._login_lost = False
        """The BMC may have opened a session whose token or name never came here."""

    def refresh_session(self) -> None:
        if self.can_refresh_session():
            self._do_authenticate()

    def close(self) -> None:
        """Nothing: a root object of sushy's calls it whenever it is collected. `end` is meant for others."""

    def end(self) -> str | None:
        """End the session, if there is one. Returns its path if the BMC refuses to because of the token.

        Raises: SushyError, if the BMC gives no answer or is busy; the session is remembered then.
        """
        if self._login_lost:
            self._end_lost_login()
        path, refused = self._session_resource_id, None
        if path is None:
            return None
        try:
            self._connector.delete(path, headers={"X-Auth-Token": self._session_key}, allow_reauth=False)
        except exceptions.AccessError:
            refused = path
        except exceptions.HTTPError as error:
            if error.status_code in BUSY_STATUS:
                raise
        self.reset_session_attrs()
        return refused

    def _do_authenticate(self) -> None:
        """Called by sushy for the first request, and when the BMC refuses a token."""
        refused = self.end()
        try:
            super()._do_authenticate()
        except exceptions.ConnectionError as error:
            self._login_lost = not _never_sent(error)
            raise
        self._session_resource_id: str | None = _own_path(self._session_resource_id)
        self._login_lost = self._session_key is not None and self._session_resource_id is None
        if refused is not None:
            # Mostly the BMC has ended it long ago; one that only did not recognise the token holds it open.
            with contextlib.suppress(exceptions.SushyError):
                self._connector.delete(refused, allow_reauth=False)

    def _end_lost_login(self) -> None:
        """End the sessions of our user. Where Basic authentication is refused they are left to the BMC's time-out."""
        connector = self._connector
        connector.set_http_basic_auth(self._username, self._password)
        try:
            sessions = connector.get(self._root_resource.get_sessions_path(), allow_reauth=False).json()
            for path in [member["@odata.id"] for member in sessions["Members"][:SESSIONS_LOOKED_AT]]:
                if connector.get(path, allow_reauth=False).json().get("UserName") == self._username:
                    connector.delete(path, allow_reauth=False)
        except exceptions.HTTPError as error:
            if error.status_code in BUSY_STATUS:
                raise
        except (KeyError, TypeError, AttributeError, ValueError):
            pass  # what is listed is no sessions
        finally:
            self.reset_session_attrs()
        self._login_lost = False


def _own_path(location: object) -> str | None:
    """The path of a session that was opened. BMCs write it with a host name, often one that nobody else knows them by:
    it counts for nothing."""
    path = urlsplit(location).path if isinstance(location, str) else ""
    return path if is_path(path) else None


def _never_sent(error: BaseException) -> bool:
    """Whether there was no connection to send the request by."""
    unconnected = (requests.exceptions.ConnectTimeout, urllib3.exceptions.NewConnectionError, ssl.SSLError)
    return any(isinstance(layer, unconnected) for layer in layers(error))
