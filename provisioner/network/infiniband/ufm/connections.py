"""How UFMs are asked: with the credentials of a Secret, one call at a time, and none for a while after failures."""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from provisioner.api.machinery.errors import NotFound
from provisioner.api.machinery.values import Secret
from provisioner.api.network.infiniband_fabric import UFM
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import FABRIC_SECRETS, SECRETS
from provisioner.network.infiniband.ufm.rest import PERSON_SECONDS, UfmAccess, UfmFailed, UfmNoAnswer, UfmRest
from provisioner.outbound.bulkhead import Bulkhead, LanePolicy, NoRoom

CREDENTIALS_SECONDS: Final = 30.0
"""A Secret is read again so often, and once UFM refuses what it held."""
POLICY: Final = LanePolicy(calls=1, failures=3, first_seconds=5.0, cap_seconds=60.0)


class UfmConnections:
    """Used by one worker."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.bulkhead = Bulkhead("UFM", POLICY, clock=time.monotonic)
        self._credentials: dict[str, tuple[float, str, Secret]] = {}

    def connect(self, ufm: UFM) -> UfmRest:
        """Raises: UfmFailed if its Secret is of no use; what the API server raises."""
        name, source = ufm.credentials_name, f"{FABRIC_SECRETS}/{ufm.credentials_name}"
        read = self._credentials.get(name)
        if read is None or time.monotonic() - read[0] >= CREDENTIALS_SECONDS:
            read = self._credentials[name] = (time.monotonic(), *self._read(name, source))
        access = UfmAccess(url=ufm.url, username=read[1], password=read[2], source=source, certificate=ufm.certificate)
        return UfmRest(access, around=lambda: self._call(f"{ufm.url}#{name}"), refused=lambda: self._forget(name))

    @contextmanager
    def _call(self, key: str) -> Iterator[None]:
        """One request. Raises: UfmFailed at once if it may not be made."""
        try:
            with self.bulkhead.call(key, counts=UfmNoAnswer):
                yield
        except NoRoom as error:
            raise UfmFailed(str(error), after_seconds=error.after_seconds) from error

    def _read(self, name: str, source: str) -> tuple[str, Secret]:
        self._forget(name)
        try:
            data = self._cluster.get(SECRETS, name, namespace=FABRIC_SECRETS).get("data") or {}
            username, password = (base64.b64decode(data[key]).decode().strip() for key in ("username", "password"))
        except NotFound as error:
            raise _unusable(source, "does not exist") from error
        except (KeyError, binascii.Error, UnicodeDecodeError) as error:
            raise _unusable(source, "lacks username or password") from error
        if not username or not password or ":" in username:
            raise _unusable(source, "has a user name or a password that cannot be sent")
        return username, Secret(password)

    def _forget(self, name: str) -> None:
        self._credentials.pop(name, None)


def _unusable(source: str, why: str) -> UfmFailed:
    return UfmFailed(
        f"Secret {source} {why}: create it with the keys username and password", after_seconds=PERSON_SECONDS
    )
