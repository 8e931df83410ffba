"""A boot that is over as spans, from the Server's status alone. Pure.

Ids follow from the order's id: whichever replica tells of a boot, and however often, it is one trace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Final

from provisioner.api.machinery.meta import read_time
from provisioner.api.servers.boot_stage import BootStage
from provisioner.api.servers.boot_timeline import boot_timeline, is_proven, stage_moments
from provisioner.api.servers.server import Server

Value = str | int | float | bool

_ARCHITECTURES: Final = {"x86_64": "amd64"}
"""As OpenTelemetry's conventions call them, where that is another word."""


@dataclass(frozen=True, kw_only=True)
class Span:
    """error: why the boot ended without being Ready; None if it did not."""

    name: str
    span_id: int
    parent_id: int | None
    began: datetime
    ended: datetime
    attributes: Mapping[str, Value]
    error: str | None = None


@dataclass(frozen=True)
class BootTrace:
    """The root span first."""

    trace_id: int
    spans: tuple[Span, ...]


def trace_of_boot(server: Server, *, given_up: datetime | None = None, error: str | None = None) -> BootTrace | None:
    """The boot of the current order, which came to Ready, or was `given_up` then for a reason. None if nothing can be
    told of it, or if it goes on.

    Each stage says whether it began, and ended, by a word that is proven: what machines report is not.
    """
    order, status = server.status.order, server.status
    moments = dict(stage_moments(status))
    end = given_up if given_up is not None else moments.get("Ready")
    if order is None or end is None or "Ordered" not in moments:
        return None
    # What was reported can lie about its time: no stage ends after the boot did.
    begins = {stage: min(moment, end) for stage, moment in moments.items()}
    root = _id(order.id, "boot", 8)
    names: list[BootStage] = [phase.stage for phase in boot_timeline(status).phases]
    stages = []
    for stage, after in zip(names, [*names[1:], None], strict=True):
        attributes: dict[str, Value] = {
            "provisioner.boot.stage": stage,
            "provisioner.boot.stage.began_proven": is_proven(stage, status),
            "provisioner.boot.stage.ended_proven": after is None or is_proven(after, status),
        }
        ended, last = (begins[after] if after is not None else end), after is None
        stages.append(
            Span(
                name=f"boot {stage}",
                span_id=_id(order.id, stage, 8),
                parent_id=root,
                began=begins[stage],
                ended=ended,
                attributes=attributes,
                error=error if last else None,
            )
        )
    whole = Span(
        name="boot",
        span_id=root,
        parent_id=None,
        began=begins["Ordered"],
        ended=end,
        attributes=_attributes(server),
        error=error,
    )
    return BootTrace(_id(order.id, "trace", 16), (whole, *stages))


def trace_of_change(old: Server, new: Server) -> BootTrace | None:
    """The boot that this change of a Server ended: its Node is Ready, or another order took its place before."""
    before, after = old.status, new.status
    if after.ready_time is not None and after.ready_time != before.ready_time and _came_to_ready(new):
        return trace_of_boot(new)
    if before.order is None or after.order is None or before.order.id == after.order.id or _came_to_ready(old):
        return None
    return trace_of_boot(old, given_up=read_time(after.order.ordered_time), error=after.order.reason)


def _came_to_ready(server: Server) -> bool:
    return any(stage == "Ready" for stage, _ in stage_moments(server.status))


def _attributes(server: Server) -> dict[str, Value]:
    """By OpenTelemetry's conventions where they have a word (host.*, k8s.*). No words of machines, no secrets."""
    order, status = server.status.order, server.status
    known: dict[str, Value | None] = {
        "host.name": server.name,
        "host.arch": _ARCHITECTURES.get(server.spec.architecture, server.spec.architecture),
        "k8s.node.name": status.node_ref or server.name,
        "provisioner.rack": server.spec.rack_ref,
        "provisioner.pool": order.node_pool_ref if order is not None else None,
        "provisioner.image": order.image_ref if order is not None else None,
        "provisioner.order.id": order.id if order is not None else None,
        "provisioner.order.reason": order.reason if order is not None else None,
        "provisioner.order.attempt": order.attempt if order is not None else None,
        "provisioner.order.method": order.method if order is not None else None,
        "provisioner.maintenance": order.maintenance_ref if order is not None else None,
        "provisioner.boot.seconds": boot_timeline(status).total_seconds,
    }
    return {name: value for name, value in known.items() if value is not None}


def _id(order_id: str, what: str, size: int) -> int:
    """Of `size` bytes, and never 0, which is no id."""
    return int.from_bytes(sha256(f"{order_id}/{what}".encode()).digest()[:size]) or 1
