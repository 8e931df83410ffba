"""What is read of a Node: its boot, its conditions, its taints and what it was prepared for. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from provisioner.api.machinery.meta import read_time
from provisioner.api.nodes.contract import read_boot_id
from provisioner.cluster.source import conditions_of


@dataclass(frozen=True, kw_only=True)
class ObservedCondition:
    """A condition as any writer may have left it: reason, message and time may be missing."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    time: datetime | None = None
    """lastTransitionTime; None if it is absent or cannot be read."""


@dataclass(frozen=True, kw_only=True)
class CheckedNode:
    """A Node. `boot_id` is lower case, None while no kubelet has reported."""

    name: str
    uid: str | None = None
    boot_id: str | None = None
    runtime_version: str = ""
    unschedulable: bool = False
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Mapping[str, Any], ...] = ()
    conditions: tuple[ObservedCondition, ...] = ()

    @property
    def ready(self) -> bool:
        found = find(self.conditions, "Ready")
        return found is not None and found.status == "True"

    def has_taint(self, key: str, *, but_effect: str | None = None) -> bool:
        """Whether it has a taint of that key, of another effect than `but_effect`."""
        return any(taint.get("key") == key and taint.get("effect") != but_effect for taint in self.taints)


def find(conditions: Iterable[ObservedCondition], type_: str) -> ObservedCondition | None:
    """The last one of that type that is True, else the last one: foreign writers leave duplicates."""
    found = [condition for condition in conditions if condition.type == type_]
    return next((c for c in reversed(found) if c.status == "True"), found[-1] if found else None)


def read_node(body: Mapping[str, Any] | None) -> CheckedNode | None:
    """A Node as the API server gives it."""
    if body is None:
        return None
    metadata, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
    info = status.get("nodeInfo") or {}
    return CheckedNode(
        name=metadata["name"],
        uid=metadata.get("uid"),
        boot_id=read_boot_id(body),
        runtime_version=str(info.get("containerRuntimeVersion") or ""),
        unschedulable=bool(spec.get("unschedulable")),
        annotations=metadata.get("annotations") or {},
        taints=tuple(spec.get("taints") or ()),
        conditions=tuple(_condition(each) for each in conditions_of(body)),
    )


def _condition(body: Mapping[str, Any]) -> ObservedCondition:
    return ObservedCondition(
        type=str(body.get("type") or ""),
        status=str(body.get("status") or ""),
        reason=str(body.get("reason") or ""),
        message=str(body.get("message") or ""),
        time=read_time(body.get("lastTransitionTime")),
    )
