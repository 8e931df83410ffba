"""Status of racks and node pools: counts of their servers, from the JSON in the cache. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from ipaddress import IPv4Network
from typing import Any

from provisioner.api import Condition, NodePool, Rack
from provisioner.api.codec import to_json
from provisioner.api.conditions import settle_condition
from provisioner.api.meta import rfc3339

Object = Mapping[str, Any]


def is_ready(server: Object) -> bool:
    """Whether a Server's condition Ready is True; the last one counts, as kubectl's patches may leave two."""
    conditions = (server.get("status") or {}).get("conditions") or ()
    return [condition.get("status") for condition in conditions if condition.get("type") == "Ready"][-1:] == ["True"]


def rack_status(rack: Rack, servers: Iterable[Object], others: Iterable[Rack], now: datetime) -> dict[str, Any]:
    """Counts, and Ready: whether the rack's subnets are its own and every server in it is Ready."""
    own = [server for server in servers if server["spec"].get("rackRef") == rack.name]
    ready = sum(1 for server in own if is_ready(server))
    pending = sum(1 for server in own if server["spec"].get("acceptance", "Pending") == "Pending")
    overlaps = _overlaps(rack, others)
    if overlaps:
        wanted = _ready(rack, False, "SubnetsOverlap", f"{'; '.join(overlaps)}; give each rack subnets of its own", now)
    elif not own:
        wanted = _ready(rack, True, "NoServers", "No server is registered in it", now)
    else:
        waiting = f"; {pending} wait for acceptance: kubectl provision accept SERVER" if pending else ""
        message = f"{ready} of {len(own)} servers are Ready{waiting}"
        wanted = _ready(
            rack, ready == len(own), "ServersReady" if ready == len(own) else "ServersNotReady", message, now
        )
    return {"servers": len(own), "readyServers": ready, "pendingServers": pending, "conditions": [to_json(wanted)]}


def pool_status(pool: NodePool, servers: Iterable[Object], now: datetime) -> dict[str, Any]:
    """Counts of the pool's accepted servers that are to be on; Ready if all of them are, with the pool's image."""
    own = [
        server
        for server in servers
        if server["spec"].get("nodePoolRef") == pool.name
        and server["spec"].get("acceptance") == "Accepted"
        and server["spec"].get("powerState", "On") == "On"
    ]
    ready = sum(1 for server in own if is_ready(server))
    updated = sum(1 for server in own if (server.get("status") or {}).get("imageRef") == pool.spec.image_ref)
    unavailable = len(own) - ready
    message = f"{ready} of {len(own)} servers are Ready, {updated} run image {pool.spec.image_ref}"
    done = unavailable == 0 and updated == len(own)
    reason = (
        "NoServers" if not own else "ServersReady" if done else "ServersNotReady" if unavailable else "ImageOutdated"
    )
    wanted = _ready(pool, done, reason, message, now)
    return {
        "desired": len(own),
        "updated": updated,
        "unavailable": unavailable,
        "conditions": [to_json(wanted)],
    }


def _ready(resource: Rack | NodePool, is_true: bool, reason: str, message: str, now: datetime) -> Condition:
    wanted = Condition(
        type="Ready",
        status="True" if is_true else "False",
        reason=reason,
        message=message,
        last_transition_time=rfc3339(now),
        observed_generation=resource.metadata.generation,
    )
    return settle_condition(resource.status.conditions, wanted)


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
