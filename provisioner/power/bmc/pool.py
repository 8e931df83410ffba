"""Open connections to BMCs, one per server, made anew when the BMC's address or password changes."""

from __future__ import annotations

import base64
import binascii
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from provisioner.api.machinery.errors import NotFound, Retryable
from provisioner.api.machinery.values import Secret
from provisioner.api.servers.server import BMC
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import BMC_SECRETS, SECRETS
from provisioner.power.bmc.ipmi import IpmiPower
from provisioner.power.bmc.ipmi_processes import IpmiProcesses
from provisioner.power.bmc.power_controller import BmcAccess, BmcRefused, PowerController
from provisioner.power.bmc.redfish import RedfishPower

CLOSE_SECONDS: Final = 5.0
LOCKOUT_SECONDS: Final = 600.0
"""A password that was refused is not tried again for so long unless it changes: BMCs lock accounts."""


@dataclass(frozen=True)
class _Entry:
    access: BmcAccess
    controller: PowerController
    refused: BmcRefused | None = None
    refused_at: float = 0.0


class BmcPool:
    """Usable from several threads; each server by one thread at a time. `clock` is monotonic, in seconds."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        clock: Callable[[], float],
        connect: Callable[[BmcAccess], PowerController] | None = None,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._ipmi = IpmiProcesses()
        self._connect = connect or self._open
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}
        self._closed = False

    def get(self, server: str, bmc: BMC) -> PowerController:
        """The BMC of a server, not necessarily connected.

        Raises: BmcRefused if its credentials are missing, or were refused lately and have not changed since;
        Retryable after `close`.
        """
        with self._lock:
            self._check_open(bmc)
            entry = self._entries.get(server)
        if entry is not None and entry.refused is None and _same_place(entry.access, bmc):
            return entry.controller
        access = self._read_access(bmc)
        if entry is not None:
            locked_out = self._clock() - entry.refused_at < LOCKOUT_SECONDS
            if entry.refused is not None and entry.access == access and locked_out:
                raise entry.refused
            entry.controller.close()
        controller = self._connect(access)
        with self._lock:
            self._check_open(bmc)
            self._entries[server] = _Entry(access, controller)
        return controller

    def refuse(self, server: str, error: BmcRefused) -> None:
        """The BMC refused its credentials: do not offer them again soon."""
        with self._lock:
            entry = self._entries.get(server)
            if entry is not None:
                self._entries[server] = _Entry(entry.access, entry.controller, error, self._clock())

    def drop(self, server: str) -> None:
        """The server is gone, or its connection is of no use any more."""
        with self._lock:
            entry = self._entries.pop(server, None)
        if entry is not None:
            entry.controller.close()

    def close(self) -> None:
        """End the sessions, as many as `CLOSE_SECONDS` allow; BMCs end the others after a while by themselves."""
        with self._lock:
            self._closed = True
            servers = list(self._entries)
        self._ipmi.close()
        deadline = self._clock() + CLOSE_SECONDS
        for server in servers:
            if self._clock() > deadline:
                return
            self.drop(server)

    def _check_open(self, bmc: BMC) -> None:
        if self._closed:
            raise Retryable(f"BMC {bmc.address} is left alone: this controller ends")

    def _open(self, access: BmcAccess) -> PowerController:
        return IpmiPower(access, self._ipmi) if access.protocol == "IPMI" else RedfishPower(access)

    def _read_access(self, bmc: BMC) -> BmcAccess:
        name = bmc.credentials_name
        if name is None:
            raise BmcRefused(
                "spec.bmc.credentialsName is not set",
                reason="CredentialsMissing",
                hint=f"name a Secret in {BMC_SECRETS} with the keys username and password",
            )
        try:
            secret = self._cluster.get(SECRETS, name, namespace=BMC_SECRETS)
            data = {key: base64.b64decode(value).decode() for key, value in (secret.get("data") or {}).items()}
            username, password = data["username"], data["password"]
        except NotFound as error:
            raise _unusable(name, "does not exist") from error
        except (KeyError, binascii.Error, UnicodeDecodeError) as error:
            raise _unusable(name, "lacks username or password") from error
        return BmcAccess(
            address=bmc.address,
            username=username,
            password=Secret(password),
            credentials_name=f"{BMC_SECRETS}/{name}",
            protocol=bmc.protocol,
            firmware=bmc.firmware,
            certificate=bmc.certificate,
            allow_plain_http=bmc.allow_plain_http,
            system_id=bmc.system_id,
        )


def _same_place(access: BmcAccess, bmc: BMC) -> bool:
    return (
        access.protocol == bmc.protocol
        and access.address == bmc.address
        and access.certificate == bmc.certificate
        and access.allow_plain_http == bmc.allow_plain_http
        and access.system_id == bmc.system_id
        and access.firmware == bmc.firmware
        and access.credentials_name.partition("/")[2] == bmc.credentials_name
    )


def _unusable(name: str, what: str) -> BmcRefused:
    return BmcRefused(
        f"Secret {BMC_SECRETS}/{name} {what}",
        reason="CredentialsMissing",
        hint=f"kubectl -n {BMC_SECRETS} create secret generic {name} --from-literal=username=… "
        "--from-file=password=FILE",
    )
