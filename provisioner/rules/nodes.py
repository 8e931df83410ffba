"""A Node, as every stage reads it. Pure.

Nothing of it is believed that could harm another server: the machine writes its annotations and its status itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Final

from provisioner.api.machinery.codec import read_annotation
from provisioner.api.machinery.meta import read_time
from provisioner.api.nodes.contract import (
    BOOT_INTENT_ANNOTATION,
    BOOT_REPORT_ANNOTATION,
    HOLD_REQUESTED,
    MAINTENANCE_TAINT,
    NODE_FACTS_ANNOTATION,
    PREPARED_ORDER_ANNOTATION,
    MaintenanceEffect,
    read_boot_id,
)
from provisioner.api.nodes.facts import BootIntent, BootReport, NodeFacts
from provisioner.cluster.source import conditions_of, is_true_in, spec_of

MAX_TAINT_VALUE: Final = 63
_TEXTS: Final = ("type", "status", "reason", "message")


@dataclass(frozen=True, kw_only=True)
class ObservedCondition:
    """A condition as any writer may have left it: reason, message and time may be missing."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    time: datetime | None = None
    """lastTransitionTime; None if it is absent or cannot be read."""

    @property
    def is_true(self) -> bool:
        return self.status == "True"


@dataclass(frozen=True)
class NodeView:
    """A Node as the API server gives it: each part is read when it is first asked for.

    Foreign writers leave several conditions of one type. One that is True is enough: a node that lives, or is held,
    must not be taken for another.
    """

    body: Mapping[str, Any]

    @cached_property
    def name(self) -> str:
        name: str = self.body["metadata"]["name"]
        return name

    @cached_property
    def uid(self) -> str:
        """Empty for one that was never written."""
        return self.body["metadata"].get("uid") or ""

    @cached_property
    def boot_id(self) -> str | None:
        """The kernel's, in lower case; None while no kubelet has reported one."""
        return read_boot_id(self.body)

    @cached_property
    def annotations(self) -> Mapping[str, str]:
        return self.body["metadata"].get("annotations") or {}

    @cached_property
    def conditions(self) -> tuple[ObservedCondition, ...]:
        """All of them, in their order."""
        return tuple(_condition(each) for each in conditions_of(self.body))

    def condition(self, type_: str) -> ObservedCondition | None:
        """The last one of that type that is True, else the last one; None without any."""
        found = [_condition(each) for each in conditions_of(self.body, type_)]
        return next((each for each in reversed(found) if each.is_true), found[-1] if found else None)

    def says(self, type_: str) -> bool:
        """Whether a condition of that type is True."""
        return is_true_in(self.body, type_)

    @cached_property
    def ready(self) -> bool:
        return self.says("Ready")

    @cached_property
    def held(self) -> bool:
        """Whether a person asks to keep it out of use."""
        return self.says(HOLD_REQUESTED)

    @cached_property
    def has_reported(self) -> bool:
        """Whether a kubelet wrote its status."""
        said = {each.get("status") for each in conditions_of(self.body, "Ready")}
        return self.boot_id is not None or bool(said & {"True", "False"})

    @cached_property
    def runtime_version(self) -> str:
        """Of the container runtime; empty if it is not told."""
        info = (self.body.get("status") or {}).get("nodeInfo") or {}
        return str(info.get("containerRuntimeVersion") or "")

    @cached_property
    def unschedulable(self) -> bool:
        """Whether a person has cordoned it."""
        return bool(spec_of(self.body).get("unschedulable"))

    @cached_property
    def taints(self) -> tuple[Mapping[str, Any], ...]:
        return tuple(spec_of(self.body).get("taints") or ())

    def has_taint(self, key: str, *, but_effect: str | None = None) -> bool:
        """Whether it has a taint of that key, of another effect than `but_effect`."""
        return any(taint.get("key") == key and taint.get("effect") != but_effect for taint in self.taints)

    @cached_property
    def maintenance_taints(self) -> tuple[Mapping[str, Any], ...]:
        """One while a Maintenance closes it; more if somebody has put others there."""
        return tuple(taint for taint in self.taints if taint.get("key") == MAINTENANCE_TAINT)

    @cached_property
    def taint(self) -> str | None:
        """Value of the maintenance taint; None without the taint."""
        return self.maintenance_taints[0].get("value") or "" if self.maintenance_taints else None

    @cached_property
    def taint_effect(self) -> str | None:
        """Its effect; of several that somebody put there, none of ours."""
        return self.maintenance_taints[0].get("effect") if len(self.maintenance_taints) == 1 else None

    def is_tainted(self, maintenance: str, effect: MaintenanceEffect) -> bool:
        """Whether it has the taint of that Maintenance, with that effect."""
        return self.taint == taint_value(maintenance) and self.taint_effect == effect

    @cached_property
    def prepared_order(self) -> str | None:
        """Id of the boot order for which the join controller has prepared it."""
        return self.annotations.get(PREPARED_ORDER_ANNOTATION)

    @cached_property
    def intent(self) -> BootIntent | None:
        """What its agent is told to do; None also if that cannot be read."""
        return read_annotation(BootIntent, self.annotations.get(BOOT_INTENT_ANNOTATION))

    @cached_property
    def has_intent(self) -> bool:
        return BOOT_INTENT_ANNOTATION in self.annotations

    @cached_property
    def report(self) -> BootReport | None:
        """What its agent says that it did; None also if that cannot be read."""
        return read_annotation(BootReport, self.annotations.get(BOOT_REPORT_ANNOTATION))

    @cached_property
    def facts(self) -> NodeFacts | None:
        """What its agent found on the machine in the boot that runs; None also if that cannot be read."""
        facts = read_annotation(NodeFacts, self.annotations.get(NODE_FACTS_ANNOTATION))
        return facts if facts is not None and facts.boot_id.lower() == self.boot_id else None


def read_node(body: Mapping[str, Any] | None) -> NodeView | None:
    """A Node as the API server gives it; None where there is none."""
    return NodeView(body) if body is not None else None


def taint_value(maintenance: str) -> str:
    """The maintenance taint's value for a Maintenance: its name; the end of it where it is too long for a value."""
    return maintenance if len(maintenance) <= MAX_TAINT_VALUE else maintenance[-MAX_TAINT_VALUE:].lstrip("-.")


def _condition(body: Mapping[str, Any]) -> ObservedCondition:
    texts = {key: found if isinstance(found := body.get(key), str) else "" for key in _TEXTS}
    return ObservedCondition(**texts, time=read_time(body.get("lastTransitionTime")))
