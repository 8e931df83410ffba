"""What the eye needs of a server: one state, with a word, a mark and a pattern: colour is never the only sign."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from provisioner.api.servers.boot_stage import BOOT_STAGES, LATE, is_late
from provisioner.api.servers.server import OrderReason
from provisioner.cluster.source import conditions_of
from provisioner.rules.cause import find_cause_in

StateKey = Literal[
    "failed", "pending", "blocked", "booting", "checking", "kept", "maintenance", "held", "production", "off"
]


@dataclass(frozen=True)
class State:
    """How it is shown: in words, of several servers, and in one character. `waits`: whether somebody may want to know
    what for."""

    key: StateKey
    word: str
    many: str
    mark: str
    waits: bool = True


STATES: Final[Mapping[StateKey, State]] = {
    state.key: state
    for state in (
        State("failed", "failed", "failed", "!"),
        State("blocked", "cannot boot", "cannot boot", "×"),
        State("pending", "waits to be accepted", "wait to be accepted", "?"),
        State("booting", "boots", "boot", "▲"),
        State("checking", "is checked before use", "are checked before use", "◐"),
        State("maintenance", "in maintenance", "in maintenance", "◆"),
        State("held", "held by a person", "held by a person", "="),
        State("kept", "verified, kept out of use", "verified, kept out of use", "○"),
        State("production", "in production", "in production", "✓", waits=False),
        State("off", "retired or off", "retired or off", "–", waits=False),
    )
}
"""In the order in which somebody looks at them."""

LOST: Final = frozenset((LATE, "NodeNotReady"))
"""Causes that say that the boot, or the system, was lost."""

ON_ITS_WAY: Final = frozenset((*BOOT_STAGES, *get_args(OrderReason), "WaitsForDPU"))
"""Causes for which a server that was ordered to boot needs nothing but time."""


def state_of(body: Mapping[str, Any]) -> StateKey:
    """Of a Server's JSON: by its lifecycle, and by the conditions that say how that goes."""
    spec, status, told = (
        body.get("spec") or {},
        body.get("status") or {},
        {each["type"]: each for each in conditions_of(body)},
    )
    lifecycle, acceptance = status.get("lifecycle"), spec.get("acceptance", "Pending")
    cause = find_cause_in(body)
    if acceptance == "Rejected" or lifecycle == "Retired":
        return "off"
    if lifecycle == "Maintenance":
        return "maintenance"
    if lifecycle == "Held":
        return "held"
    if acceptance != "Accepted":
        return "pending"
    late = is_late(*((told.get(type_) or {}).get("reason") for type_ in ("Ready", "Booted")))
    if cause is not None and (cause.type == "PoweredOn" or (cause.type == "Joined" and late)):
        return "blocked"
    if cause is not None and cause.reason in LOST:
        return "failed"
    if lifecycle == "InProduction":
        return "production"
    if lifecycle == "Verified":
        return "kept"
    if lifecycle == "Booted":
        return "failed" if (told.get("Verified") or {}).get("status") == "False" else "checking"
    if status.get("order") is None:
        return "blocked"
    needs_somebody = cause is not None and cause.type in ("Ready", "Accepted") and cause.reason not in ON_ITS_WAY
    return "blocked" if needs_somebody else "booting"
