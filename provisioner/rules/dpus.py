"""What a server and the BlueField cards in it have to wait for of each other. Pure.

A card has its power from its server: that is switched on first, and its firmware waits, asking what to boot, until the
card runs by which its network goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from provisioner.api import Server
from provisioner.cluster.source import is_true_in
from provisioner.rules.bootability import Obstacle


def host_of(server: Mapping[str, Any] | None) -> str | None:
    """The server in which a DPU sits, of its JSON; None of what is no DPU."""
    name = (((server or {}).get("spec") or {}).get("dpu") or {}).get("hostRef")
    return str(name) if name else None


def carries_boot_of(dpu: Server, server: Server) -> bool:
    """Whether a card is the way by which a server boots and joins: accepted, in that server, and told to be."""
    card = dpu.spec.dpu
    return (
        card is not None
        and card.host_ref == server.name
        and card.host_boot == "Proxied"
        and dpu.spec.acceptance == "Accepted"
        and dpu.metadata.deletion_timestamp is None
    )


def hosts(server: Mapping[str, Any]) -> Iterable[str]:
    """Keys of an index: `host_of`, if any."""
    return filter(None, [host_of(server)])


def awaited_by(server: Mapping[str, Any] | None) -> str | None:
    """The server whose boot waits for this one, by its JSON: a DPU that is to run, and does not yet."""
    spec = (server or {}).get("spec") or {}
    is_to_run = (
        spec.get("acceptance") == "Accepted" and spec.get("nodePoolRef") and spec.get("powerState", "On") == "On"
    )
    return host_of(server) if is_to_run and not is_true_in(server, "Ready") else None


def awaiting(server: Mapping[str, Any]) -> Iterable[str]:
    """Keys of an index: `awaited_by`, if any."""
    return filter(None, [awaited_by(server)])


def hosts_that_wait_otherwise(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> set[str]:
    """The servers for whose boot a change of a Server, by its JSON, is one of a DPU that they wait for."""
    before, after = awaited_by(old), awaited_by(new)
    return {host for host in (before, after) if host is not None} if before != after else set()


def find_awaited_dpu(server: str, dpus: Sequence[str]) -> Obstacle | None:
    """`dpus`: names of those in `server` that are awaited."""
    if not dpus:
        return None
    name = min(dpus)
    return Obstacle(
        "WaitsForDPU",
        f"DPU '{name}', by which the network of Server '{server}' goes, is not Ready yet",
        f"see kubectl describe server {name}; to boot without it: "
        f"""kubectl patch server {name} --type=merge -p '{{"spec":{{"acceptance":"Rejected"}}}}'""",
    )
