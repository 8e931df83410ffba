"""What was heard by EVPN and is believed, in a file: another agent goes on with it. Root's own file, read with care."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, ip_network
from pathlib import Path
from typing import Any, Final

from provisioner.network.evpn.learn import MOST_ROUTES_READ, EvpnRoute

_LARGEST_BYTES: Final = 64 << 20


@dataclass(frozen=True)
class HeldRoutes:
    """`awaited`: those that stay though nobody announces them, until `until`, in seconds since 1970."""

    held: frozenset[EvpnRoute] = frozenset()
    awaited: frozenset[EvpnRoute] = frozenset()
    until: float = 0.0


def read(path: Path) -> HeldRoutes:
    """Nothing of a file that is not there, or is not as `write` leaves it."""
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_BYTES + 1)
        if len(content) > _LARGEST_BYTES:
            return HeldRoutes()
        said = json.loads(content)
        return HeldRoutes(_routes(said["held"]), _routes(said["awaited"]), float(said["until"]))
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return HeldRoutes()


def write(path: Path, routes: HeldRoutes) -> None:
    """Raises: OSError."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    text = json.dumps({"held": _plain(routes.held), "awaited": _plain(routes.awaited), "until": routes.until})
    partial = path.with_suffix(".partial")
    partial.write_text(text)
    partial.replace(path)


def _plain(routes: Iterable[EvpnRoute]) -> list[list[Any]]:
    return [[each.vni, each.prefix, each.vtep] for each in sorted(routes)]


def _routes(said: Any) -> frozenset[EvpnRoute]:
    """Raises: ValueError, TypeError."""
    return frozenset(
        EvpnRoute(int(vni), str(ip_network(str(prefix))), str(IPv4Address(str(vtep))))
        for vni, prefix, vtep in said[:MOST_ROUTES_READ]
    )
