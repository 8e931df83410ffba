"""FirmwareProfiles as a boot host reads them: few, and asked for only by answers to challenges."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from provisioner.api.servers.firmware_profile import FirmwareProfile
from provisioner.cluster.client import Cluster

READ_SECONDS: Final = 15.0
"""After which an approval counts everywhere."""


class ProfileSource:
    """All FirmwareProfiles of a moment ago. Usable from any thread."""

    def __init__(self, cluster: Cluster, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._cluster, self._monotonic = cluster, monotonic
        self._lock = threading.Lock()
        self._read: tuple[float, Sequence[FirmwareProfile]] | None = None

    def __call__(self) -> Sequence[FirmwareProfile]:
        """Raises: Retryable if the API server is away."""
        with self._lock:
            if self._read is not None and self._monotonic() - self._read[0] < READ_SECONDS:
                return self._read[1]
            profiles = tuple(self._cluster.read_all(FirmwareProfile))
            self._read = (self._monotonic(), profiles)
            return profiles
