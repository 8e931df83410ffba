"""VPCs as they are compiled, kept until something that they are made of changes: one for all the DPUs of a VPC."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Final

from provisioner.network.control.compile.view import VPCView

Make = Callable[[str], VPCView | None]

MOST_REMEMBERED: Final = 65536
"""Keys of which it is known when they changed last."""


class Views:
    """By key of the VPC. A change of one leaves the others: a tenant that changes its own again and again has nobody
    else's made anew. Usable from several threads."""

    def __init__(self, make: Make) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._making = threading.Lock()
        self._changes = 0
        self._changed: dict[str, int] = {}
        self._all_changed = 0
        self._kept: dict[str, VPCView] = {}

    def get(self, key: str) -> VPCView | None:
        """None of a VPC that is not there, or has no VNI."""
        with self._lock:
            if key in self._kept:
                return self._kept[key]
        with self._making:  # what another thread makes meanwhile is not made twice
            with self._lock:
                if key in self._kept:
                    return self._kept[key]
                began = self._changes
            made = self._make(key)
            with self._lock:
                if made is not None and max(self._all_changed, self._changed.get(key, 0)) <= began:
                    self._kept[key] = made
            return made

    def forget(self, keys: Iterable[str]) -> None:
        """To be called after a change of what these are made of."""
        with self._lock:
            self._changes += 1
            if len(self._changed) >= MOST_REMEMBERED:
                self._changed.clear()
                self._all_changed = self._changes
            for key in keys:
                self._kept.pop(key, None)
                self._changed[key] = self._changes

    def forget_attachment(self, attachment: str) -> None:
        """Those in which it is, though it may be gone; and what is being made."""
        with self._lock:
            self._changes += 1
            self._all_changed = self._changes
            for key in [key for key, view in self._kept.items() if attachment in view.by_attachment]:
                del self._kept[key]
