"""Where the files of one image come from: layers that run already from this machine, all else from image sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import BinaryIO

from provisioner.node.image.answer import Connect
from provisioner.node.image.fetch import fetch_file, fetch_small
from provisioner.node.image.manifest import ImageFile
from provisioner.node.image.running_layers import copy_layer


class Sources:
    """`least_rate`: how fast each source must give, in bytes/s. `running`: as `read_running_layers`. `connect`: as of
    Answer."""

    def __init__(
        self,
        urls: Sequence[str],
        least_rate: int,
        running: Mapping[tuple[str, int], str],
        connect: Connect | None = None,
    ) -> None:
        self._urls, self._least_rate, self._running, self._connect = urls, least_rate, running, connect
        self._faults: list[str] = []
        self._fetched_bytes = 0
        self._layers = 0
        self._layers_here = 0

    def fetch_small(self, path: str, limit_bytes: int, check: Callable[[bytes], object]) -> bytes:
        return fetch_small(self._urls, path, limit_bytes, check, connect=self._connect)

    def fetch_file(self, file: ImageFile, target: BinaryIO, check: Callable[[], None]) -> None:
        faults, given_bytes = fetch_file(
            self._urls, file, target, least_rate=self._least_rate, check=check, connect=self._connect
        )
        self._faults += faults
        self._fetched_bytes += given_bytes

    def obtain_layer(self, layer: ImageFile, target: BinaryIO, check: Callable[[], None]) -> None:
        """Append the layer to `target`: copied, else fetched."""
        self._layers += 1
        device = self._running.get((layer.sha256, layer.size_bytes))
        if device is not None:
            fault = copy_layer(device, layer, target, check)
            if not fault:
                self._layers_here += 1
                return
            self._faults.append(fault)
        self.fetch_file(layer, target, check)

    def describe(self) -> str:
        """What came from where, and what was wrong with the last source that was left for another one, if any was."""
        came = f"{self._layers_here} of {self._layers} layers were here, {self._fetched_bytes / 1e6:.0f} MB fetched"
        return "; ".join((came, *self._faults[-1:]))
