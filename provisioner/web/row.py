"""What the pages of the whole fleet know of one server. Pure: of a Server's JSON, and the Maintenance that holds it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from provisioner.api.machinery.codec import from_json
from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.wording import clip, plain
from provisioner.api.nodes.maintenance import AGENT_METHODS, Maintenance
from provisioner.api.servers.boot_stage import BootStage
from provisioner.api.servers.boot_timeline import PHASE_NAMES, boot_timeline
from provisioner.api.servers.server_status import ServerStatus
from provisioner.rules.cause import find_cause_in
from provisioner.rules.pool_of_server import current_pool_in
from provisioner.web.states import STATES, StateKey, state_of

WORDS_LENGTH: Final = 240
HIGHEST_UNIT: Final = 60
"""Rack units that the page has places for."""
_UNIT: Final = re.compile(r"(\d{1,3})\D*$")
_OF_A_BOOT: Final = ("order", "power", "progress", "join", "readyTime")


@dataclass(frozen=True, kw_only=True, slots=True)
class FinishedBoot:
    """How long each phase of a boot that became Ready took, in seconds. by_agent: nobody powered it on."""

    phases: Mapping[BootStage, float]
    total_seconds: float
    by_agent: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerRow:
    """unit: the rack unit of its position, None if that names none. host: the server in which it sits, of a DPU.
    words: what it waits for, and why, in one line; empty if for nothing. reason: the same in one word, which many
    servers share."""

    name: str
    rack: str
    position: str
    unit: int | None
    host: str | None
    state: StateKey
    stage: BootStage | None
    pool: str
    image: str
    words: str
    reason: str
    maintenance: str | None
    boot: FinishedBoot | None
    searched: str

    @property
    def label(self) -> str:
        """For who hears the page, and who points at the server: all in one line."""
        stage = f", stage {PHASE_NAMES[self.stage]}" if self.state == "booting" and self.stage else ""
        return f"{self.name}: {STATES[self.state].word}{stage}{f'. {self.words}' if self.words else ''}"


def row_of(body: Mapping[str, Any], maintenance: Maintenance | None) -> ServerRow:
    """maintenance: the one that holds the server."""
    spec, status = body.get("spec") or {}, body.get("status") or {}
    name, state = body["metadata"]["name"], state_of(body)
    stage = status.get("bootStage")
    position = plain(spec.get("position") or "")
    pool, image = current_pool_in(body) or "", status.get("imageRef") or ""
    reason, words = _waits_for(body, state, maintenance)
    searched = (
        *(name, spec.get("rackRef"), pool, image, status.get("address"), spec.get("bootMACAddress")),
        *(spec.get("serialNumber"), position),
    )
    return ServerRow(
        name=name,
        rack=spec.get("rackRef") or "",
        position=position,
        unit=unit_of(position),
        host=(spec.get("dpu") or {}).get("hostRef"),
        state=state,
        stage=stage if stage in PHASE_NAMES else None,
        pool=pool,
        image=image,
        words=clip(plain(words), WORDS_LENGTH),
        reason=reason,
        maintenance=maintenance.name if maintenance is not None else None,
        boot=finished_boot(status),
        searched=" ".join(str(each) for each in searched if each).lower(),
    )


def unit_of(position: str) -> int | None:
    """`u07` and `7` are 7. None where no number from 1 to 60 ends the position."""
    found = _UNIT.search(position)
    unit = int(found[1]) if found else 0
    return unit if 0 < unit <= HIGHEST_UNIT else None


def _waits_for(body: Mapping[str, Any], state: StateKey, maintenance: Maintenance | None) -> tuple[str, str]:
    if maintenance is not None:
        blocker = min(maintenance.status.blockers, key=lambda b: b.since_time, default=None)
        if blocker is not None:
            return blocker.kind, blocker.message
        cause = find_cause_in(body)
        if cause is not None and cause.is_deeper:
            return cause.reason, cause.message
        phase = maintenance.status.phase or "Waiting"
        return phase, maintenance.status.next_step or f"Maintenance {maintenance.name} is {phase.lower()}"
    if not STATES[state].waits:
        return "", ""
    if state == "pending":
        return "Acceptance", "waits until somebody accepts it"
    cause = find_cause_in(body)
    return (cause.reason, cause.message) if cause is not None else ("", "")


def finished_boot(status: Mapping[str, Any]) -> FinishedBoot | None:
    """Of a Server's status, as JSON. None unless the current boot became Ready, or if it cannot be read."""
    if "readyTime" not in status:
        return None
    part = {key: status[key] for key in _OF_A_BOOT if key in status}
    try:
        read = from_json(ServerStatus, part)
        timeline = boot_timeline(read)
    except (Refused, ValueError, TypeError):  # a time that is none: of an object that an older CRD let in
        return None
    if timeline.total_seconds is None:
        return None
    phases = {phase.stage: phase.seconds for phase in timeline.phases if phase.seconds is not None}
    by_agent = read.order is not None and read.order.method in AGENT_METHODS
    return FinishedBoot(phases=phases, total_seconds=timeline.total_seconds, by_agent=by_agent)
