"""What DHCP meets that a person must mend, told where people look: Events on the objects, and one line of counts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import structlog

from provisioner.boot.dhcp import Observation
from provisioner.boot.metrics.dhcp import CountedResponder
from provisioner.cluster.events import Events

log = structlog.get_logger(__name__)

REPEAT_SECONDS: Final = 60.0
"""A machine asks again every few seconds: the same trouble of a server, or in a rack, is told so often at most."""
STANDING_SECONDS: Final = 5.0
"""A Rack and its Servers change one after the other: what is gone again so soon was no problem."""
COUNT_SECONDS: Final = 60.0

_REASONS: Final[Mapping[str, str]] = {
    "Declined": "AddressDeclined", "WrongSubnet": "WrongSubnet", "InfiniBand": "InfiniBandNotServed"
}  # fmt: skip
"""Of the Event, by the kind of sighting."""

Find = Callable[[str, str], Mapping[str, Any] | None]
"""The object of a kind (Rack or Server) with a name, if there is one."""


class DhcpTrouble:
    """`saw` and `look` may be called from different threads."""

    def __init__(self, events: Events, find: Find, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._events = events
        self._find = find
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._told: dict[tuple[str, str], float] = {}
        self._standing: dict[str, tuple[str, float | None]] = {}
        self._counted: Mapping[str, int] = {}
        self._count_at = monotonic() + COUNT_SECONDS

    def saw(self, seen: Observation) -> None:
        """Tell on a Server that it declined its address, or asked in a subnet that is not its own; on a Rack that a
        client asks there which is not served."""
        reason = _REASONS.get(seen.kind)
        kind, name = ("Rack", seen.rack) if seen.kind == "InfiniBand" else ("Server", seen.server)
        body = self._find(kind, name) if reason is not None and name is not None else None
        if reason is None or body is None or not self._is_due(f"{kind}/{name}", reason):
            return
        message = describe(seen, body)
        log.warning("machine had trouble with DHCP", about=f"{kind}/{name}", reason=reason, message=message)
        self._events.record(body, "Warning", reason, message)

    def look(self, dhcp: CountedResponder) -> None:
        """Tell what cannot be served as it is written, and at times what was counted. Call it every second or so."""
        now = self._monotonic()
        problems = dhcp.problems()
        for key in [key for key in self._standing if key not in problems]:
            del self._standing[key]
        for key, text in problems.items():
            before, since = self._standing.get(key, ("", None))
            if before != text:
                self._standing[key] = (text, now)
            elif since is not None and now - since >= STANDING_SECONDS:
                self._standing[key] = (text, None)  # told
                self._tell_problem(key, text)
        if now >= self._count_at:
            self._count_at = now + COUNT_SECONDS
            self._tell_counts(dhcp.tally().counters)

    def _tell_problem(self, key: str, text: str) -> None:
        kind, _, name = key.partition("/")
        body = self._find(kind, name)
        if body is not None:
            self._events.record(body, "Warning", "NotServedByDHCP", text)

    def _tell_counts(self, counters: Mapping[str, int]) -> None:
        changed = {name: n - self._counted.get(name, 0) for name, n in sorted(counters.items())}
        changed = {name: more for name, more in changed.items() if more}
        self._counted = counters
        if changed:
            log.info("DHCP packets were counted", seconds=COUNT_SECONDS, more=changed)

    def _is_due(self, about: str, reason: str) -> bool:
        now = self._monotonic()
        with self._lock:
            for key in [key for key, moment in self._told.items() if now - moment >= REPEAT_SECONDS]:
                del self._told[key]
            if (about, reason) in self._told:
                return False
            self._told[about, reason] = now
            return True


def describe(seen: Observation, server: Mapping[str, Any]) -> str:
    """The trouble of a Server, or in a Rack, in words that are the same each time. Pure."""
    if seen.kind == "InfiniBand":
        return (
            f"an IPoIB client ({seen.client_identifier}) asks for an address in subnet '{seen.subnet}': not served, "
            f"servers boot by Ethernet alone; put the machine's Ethernet or BlueField port first in its boot order "
            f"and turn network boot off on its InfiniBand ports"
        )
    name = server["metadata"]["name"]
    spec, status = server.get("spec") or {}, server.get("status") or {}
    where = f"subnet '{seen.subnet}' of Rack '{seen.rack}'"
    if seen.kind == "Declined":
        return (
            f"Server '{name}' found its address {seen.address} in use in {where}; "
            f"find the machine that has it (arping {seen.address} on that network), or pin another spec.bootAddress"
        )
    own = f"subnet '{status.get('subnetName') or spec.get('subnetName')}' of Rack '{spec.get('rackRef')}'"
    return (
        f"Server '{name}' asked for an address in {where}, and its own {status.get('address')} is of {own}; "
        f"cable its boot interface to its own rack, or correct spec.rackRef or spec.subnetName"
    )
