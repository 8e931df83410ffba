"""How slurmrestds are asked: with the credentials of a Secret, few calls at a time, each in its own thread."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Final, NamedTuple

from provisioner.api.machinery.errors import NotFound
from provisioner.api.machinery.values import Secret
from provisioner.api.pools.pool_settings import SlurmJobs
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import SECRETS
from provisioner.jobs.slurm.answers import Dialect, SlurmFailed, SlurmNoAnswer
from provisioner.jobs.slurm.rest import SlurmAccess, SlurmRest
from provisioner.outbound.bulkhead import Bulkhead, LanePolicy, NoRoom
from provisioner.outbound.lanes import Lanes

CREDENTIALS_SECONDS: Final = 30.0
"""A Secret is read again so often, and once slurmrestd refuses what it held."""
BACKEND: Final = "slurmrestd"
POLICY: Final = LanePolicy(calls=2, failures=3, first_seconds=5.0, cap_seconds=60.0)


class Key(NamedTuple):
    """A slurmrestd as a pool asks it: who else asks may be shown other jobs."""

    url: str
    credentials_name: str
    certificate: str | None


def key_of(settings: SlurmJobs) -> Key:
    return Key(settings.url, settings.credentials_name, settings.certificate)


class SlurmConnections:
    """Usable from several threads. `namespace`: where the Secrets with credentials are.

    `lanes`: what waits for a slurmrestd raises NeedsLane but in its own thread; without, each caller waits itself.
    """

    def __init__(
        self,
        cluster: Cluster,
        bulkhead: Bulkhead,
        lanes: Lanes | None,
        *,
        namespace: str,
        monotonic: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._bulkhead = bulkhead
        self._lanes = lanes
        self._namespace = namespace
        self._monotonic = monotonic
        self._credentials: dict[str, tuple[float, str, Secret]] = {}  # by Secret: when they were read, user, token
        self._dialects: dict[str, Dialect] = {}

    def enter(self, key: Key) -> None:
        """Go on if this thread may wait for that slurmrestd. Raises: NeedsLane."""
        if self._lanes is not None:
            self._lanes.enter(key.url)

    def refusal(self, key: Key) -> NoRoom | None:
        """Why it is not asked now; None if it would be."""
        return self._bulkhead.refusal(_backend(key))

    def is_given_up(self, key: Key) -> bool:
        return self._bulkhead.breaker(_backend(key)) != "Closed"

    def connect(self, key: Key) -> SlurmRest:
        """Raises: SlurmFailed if its Secret is of no use."""
        name = key.credentials_name
        source = f"{self._namespace}/{name}"
        read = self._credentials.get(name)
        if read is None or self._monotonic() - read[0] >= CREDENTIALS_SECONDS:
            read = self._credentials[name] = (self._monotonic(), *self._read_credentials(name, source))
        access = SlurmAccess(key.url, read[1], read[2], source, key.certificate)
        return SlurmRest(
            access,
            self._dialects,
            refused=lambda: self._forget(name),
            around=lambda: self._call(key),
        )

    @contextmanager
    def _call(self, key: Key) -> Iterator[None]:
        """One request. Raises: NoRoom at once; NeedsLane where it would take the time of others."""
        refused = self.refusal(key)
        if refused is not None:
            raise refused
        self.enter(key)
        with self._bulkhead.call(_backend(key), counts=SlurmNoAnswer):
            yield

    def _read_credentials(self, name: str, source: str) -> tuple[str, Secret]:
        self._forget(name)
        try:
            secret = self._cluster.get(SECRETS, name, namespace=self._namespace)
            data = {key: base64.b64decode(value).decode() for key, value in (secret.get("data") or {}).items()}
            return data["username"].strip(), Secret(data["token"].strip())
        except NotFound as error:
            raise _unusable(source, "does not exist") from error
        except (KeyError, binascii.Error, UnicodeDecodeError) as error:
            raise _unusable(source, "lacks username or token") from error

    def _forget(self, name: str) -> None:
        self._credentials.pop(name, None)


@lru_cache(maxsize=1024)
def _backend(key: Key) -> str:
    """A slurmrestd as one pool asks it: another pool's certificate or token that does not fit is not its failure."""
    fingerprint = hashlib.sha256(key.certificate.encode()).hexdigest()[:8] if key.certificate else ""
    return f"{key.url}#{key.credentials_name}" + f"-{fingerprint}" * bool(fingerprint)


def _unusable(source: str, why: str) -> SlurmFailed:
    return SlurmFailed(
        f"Secret {source} {why}: create it with the keys username and token (scontrol token username=… lifespan=…)",
        after_seconds=60.0,
    )
