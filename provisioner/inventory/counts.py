"""Status of racks: counts of their servers, kept while these change."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from datetime import datetime
from ipaddress import IPv4Network
from typing import Any

from provisioner.api import Rack
from provisioner.api.machinery.codec import to_json
from provisioner.api.machinery.conditions import condition_of
from provisioner.api.machinery.wording import quantity
from provisioner.cluster.source import Lookup, is_true_in

Object = Mapping[str, Any]


Tally = Mapping[str, int]
"""How many servers a rack has of each sort: all, ready, pending."""


class RackCounts:
    """Tallies of all racks. Usable from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tallies: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def change(self, old: Object | None, new: Object | None) -> set[str]:
        """Count a server as `new` and no longer as `old`; returns the racks whose tally that changes."""
        before, after = _sorts(old), _sorts(new)
        if before == after:
            return set()
        with self._lock:
            for rack, sorts in before.items():
                self._tallies[rack].subtract(sorts)
            for rack, sorts in after.items():
                self._tallies[rack].update(sorts)
            for rack in before:
                self._tallies[rack] = +self._tallies[rack]
                if not self._tallies[rack]:
                    del self._tallies[rack]
        return {*before, *after}

    def of(self, rack: str) -> Tally:
        with self._lock:
            return Counter(self._tallies.get(rack, {}))


def _sorts(server: Object | None) -> Mapping[str, Sequence[str]]:
    """In which rack a server counts, and as what there."""
    if server is None or not server["spec"].get("rackRef"):
        return {}
    spec, ready = server["spec"], ["ready"] if is_true_in(server, "Ready") else []
    pending = ["pending"] if spec.get("acceptance", "Pending") == "Pending" else []
    return {spec["rackRef"]: ["all", *ready, *pending]}


def rack_status(rack: Rack, tally: Tally, others: Iterable[Rack], now: datetime) -> dict[str, Any]:
    """Counts, and Ready: whether the rack's subnets are its own and every server in it is Ready."""
    own, ready, pending = (tally.get(sort, 0) for sort in ("all", "ready", "pending"))
    overlaps = _overlaps(rack, others)
    if overlaps:
        words = f"{'; '.join(overlaps)}; give each rack subnets of its own"
        ready_condition = condition_of(rack, "Ready", False, "SubnetsOverlap", words, now)
    elif not own:
        ready_condition = condition_of(rack, "Ready", True, "NoServers", "No server is registered in it", now)
    else:
        waiting = f"; {pending} pending acceptance: kubectl provision accept SERVER" if pending else ""
        message = f"{ready} of {quantity(own, 'server')} Ready{waiting}"
        reason = "ServersReady" if ready == own else "ServersNotReady"
        ready_condition = condition_of(rack, "Ready", ready == own, reason, message, now)
    return {"servers": own, "readyServers": ready, "pendingServers": pending, "conditions": [to_json(ready_condition)]}


def network_keys(rack: Object) -> Iterable[Hashable]:
    """For an index of racks: each subnet as itself, and as lying in every wider network."""
    for network in _networks(rack):
        yield "is", network
        yield from (("lies in", network.supernet(new_prefix=length)) for length in range(network.prefixlen))


def overlapping_racks(rack: Object, racks: Lookup) -> list[Object]:
    """Other racks that have a subnet inside or around one of this rack's, by name; `racks` by `network_keys`."""
    found: dict[str, Object] = {}
    for network in _networks(rack):
        wider = (network.supernet(new_prefix=length) for length in range(network.prefixlen))
        for key in (("lies in", network), *(("is", other) for other in wider)):
            found |= {other["metadata"]["name"]: other for other in racks.get(key)}
    found.pop(rack["metadata"]["name"], None)
    return [other for _, other in sorted(found.items())]


def _networks(rack: Object) -> Iterable[IPv4Network]:
    return [IPv4Network(subnet["cidr"]) for subnet in rack["spec"].get("subnets") or ()]


def _overlaps(rack: Rack, others: Iterable[Rack]) -> Sequence[str]:
    """Subnets of this rack that hold addresses of another rack's, in words; one subnet may span racks."""
    found = []
    for other in others:
        if other.name == rack.name:
            continue
        for mine in rack.spec.subnets:
            for theirs in other.spec.subnets:
                same = IPv4Network(mine.cidr), IPv4Network(theirs.cidr)
                if same[0] != same[1] and same[0].overlaps(same[1]):
                    theirs_shown = f"subnet {theirs.name} ({theirs.cidr}) of Rack {other.name}"
                    found.append(f"subnet {mine.name} ({mine.cidr}) overlaps {theirs_shown}")
    return found
