"""bgpd, and what it runs with. Whoever makes the image starts it (docs/evpn.md): without zebra, on a DPU without a
listener of its own, and so that it never touches the kernel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from provisioner.api.machinery.wording import quantity
from provisioner.network.evpn.configuration import (
    Configuration,
    Section,
    agree,
    commands,
    neighbours,
    read_running,
    to_refresh,
)
from provisioner.network.evpn.vty import PATIENCE_SECONDS, BgpdFailed, ask


class Bgpd:
    """One bgpd, by the folder that has its socket. One that does not answer within `patience_seconds` has failed."""

    def __init__(self, directory: Path, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._socket = directory / "bgpd.vty"
        self._patience_seconds = patience_seconds
        self._to_refresh: set[str] = set()

    def running(self) -> dict[Section, tuple[str, ...]]:
        """Raises: BgpdFailed."""
        return read_running(self._ask("show running-config"))

    def apply(self, wanted: Configuration) -> int:
        """Bring it to `wanted`, and read back. Returns: how many lines that took; 0: it was so.

        Raises: BgpdFailed, also if what it prints afterwards is something else.
        """
        before = self.running()
        told = commands(wanted, before)
        # Kept until it is done: after a failure in the middle bgpd runs with what it was told, and nothing differs.
        self._to_refresh.update(to_refresh(wanted, before))
        self._to_refresh &= neighbours(wanted)
        if told:
            self._ask("configure terminal", *told)
            self._read_back(wanted)
        for neighbour in sorted(self._to_refresh):
            self._ask(f"clear bgp l2vpn evpn {neighbour} soft")
            self._to_refresh.discard(neighbour)
        return len(told)

    def _read_back(self, wanted: Configuration) -> None:
        after = self.running()
        if not agree(wanted, after):
            rest = commands(wanted, after)
            raise BgpdFailed(
                f"bgpd runs with something else than it was told: `{rest[0] if rest else '?'}` is missing or too "
                f"much, and {quantity(max(len(rest) - 1, 0), 'more line')}: see `show running-config` and who else "
                "changes it"
            )

    def refresh(self) -> None:
        """Have the routes of all neighbours pass their route-maps once more. Raises: BgpdFailed."""
        self._ask("clear bgp l2vpn evpn * soft")

    def routes(self) -> dict[str, Any]:
        """Routes of type 5, its own and others', as bgpd says. Raises: BgpdFailed."""
        return self._json("show bgp l2vpn evpn route type prefix json")

    def sessions(self) -> dict[str, Any]:
        """Raises: BgpdFailed."""
        return self._json("show bgp l2vpn evpn summary json")

    def _json(self, words: str) -> dict[str, Any]:
        text = self._ask(words)
        try:
            said = json.loads(text or "{}")  # nothing is said of BGP where nothing is configured
        except (ValueError, RecursionError) as error:
            raise BgpdFailed(f"`{words}` was answered by what is no JSON: {error}") from error
        if not isinstance(said, dict):
            raise BgpdFailed(f"`{words}` was answered by no JSON object")
        return said

    def _ask(self, *words: str) -> str:
        return ask(self._socket, words, self._patience_seconds)
