"""The phases of a server's current boot and how long each took, from its status alone. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from provisioner.api.machinery.meta import parse_time
from provisioner.api.nodes.maintenance import AGENT_METHODS
from provisioner.api.servers.boot_stage import BOOT_STAGES, HEARD_STAGES, BootStage, stage_order
from provisioner.api.servers.server import ServerStatus

PHASE_NAMES: Final[dict[BootStage, str]] = {
    "Ordered": "ordered",
    "Firmware": "firmware",
    "IPXE": "iPXE",
    "Stage1": "stage-1",
    "Root": "root",
    "System": "system",
    "Token": "token",
    "Kubelet": "kubelet",
    "Ready": "Ready",
}
"""The stages as people read them."""


@dataclass(frozen=True)
class Phase:
    """One stage of a boot; `seconds` is None while it lasts."""

    stage: BootStage
    began: datetime
    seconds: float | None


@dataclass(frozen=True)
class BootTimeline:
    """The stages seen of one boot, in order. `total_seconds`: from power-on to Ready, None until then.

    Where the agent in the running system boots it anew, nobody powers it on, and the order is where it begins.
    """

    phases: tuple[Phase, ...]
    total_seconds: float | None


def stage_moments(status: ServerStatus) -> tuple[tuple[BootStage, datetime], ...]:
    """When each stage of the current order began, as far as it was seen; later stages never begin before earlier ones.

    What is older than the order belongs to an earlier boot and is left out. Without an order, what was heard counts.
    A machine that starts its next system by kexec passes neither Firmware nor IPXE. The stages before Kubelet are what
    somebody reported: to show, not to decide on.
    """
    order = status.order
    ordered = parse_time(order.ordered_time) if order is not None else None
    moments: dict[BootStage, datetime] = {}
    if status.progress is not None:
        for entry in status.progress.stage_times:
            moment = parse_time(entry.time)
            if entry.stage in HEARD_STAGES and (ordered is None or moment >= ordered):
                moments[entry.stage] = moment
    if order is not None and ordered is not None:
        moments["Ordered"] = ordered
        if status.power is not None and status.power.order_id == order.id and status.power.order_time:
            # The BMC's acceptance is when the firmware starts; its own DHCP request comes seconds later.
            moments["Firmware"] = parse_time(status.power.order_time)
        if status.join is not None and status.join.order_id == order.id and status.join.fetched_time:
            moments["Kubelet"] = parse_time(status.join.fetched_time)
        if status.ready_time is not None and parse_time(status.ready_time) >= ordered:
            moments["Ready"] = parse_time(status.ready_time)
    rising: list[tuple[BootStage, datetime]] = []
    for stage in sorted(moments, key=stage_order):
        moment = moments[stage]
        rising.append((stage, max(moment, rising[-1][1]) if rising else moment))
    return tuple(rising)


def is_proven(stage: BootStage, status: ServerStatus) -> bool:
    """Whether the moment of `stage_moments` is by the word of ours, the BMC or the join service, and not a report that
    anybody can send."""
    if stage not in HEARD_STAGES:
        return True
    order, power = status.order, status.power
    is_accepted = (
        order is not None and power is not None and power.order_id == order.id and power.order_time is not None
    )
    return stage == "Firmware" and is_accepted


def boot_timeline(status: ServerStatus) -> BootTimeline:
    """The phases of the current boot with their durations.

    A stage that nobody saw (iPXE in a ROM sends no firmware DHCP) is missing; its time counts to the one before.
    """
    moments = stage_moments(status)
    phases = []
    for i, (stage, began) in enumerate(moments):
        if stage == "Ready":
            break
        ended = moments[i + 1][1] if i + 1 < len(moments) else None
        phases.append(Phase(stage, began, None if ended is None else (ended - began).total_seconds()))
    total = None
    if moments and moments[-1][0] == "Ready":
        by_agent = status.order is not None and status.order.method in AGENT_METHODS
        begun = [began for stage, began in moments if by_agent or stage != "Ordered"]
        total = (moments[-1][1] - begun[0]).total_seconds()
    return BootTimeline(tuple(phases), total)


def format_timeline(timeline: BootTimeline, now: datetime | None = None) -> str:
    """One line: `firmware 6 s · iPXE 2 s · stage-1 4 s …   Ready 38 s`. With `now`, the running phase shows its age.

    The wait for the BMC is shown only if it took a second or more, or still lasts.
    """
    words = []
    for phase in timeline.phases:
        seconds = phase.seconds
        if phase.stage == "Ordered" and seconds is not None and seconds < 1:
            continue
        if seconds is not None:
            words.append(f"{PHASE_NAMES[phase.stage]} {seconds:.0f} s")
        elif now is not None:
            words.append(f"{PHASE_NAMES[phase.stage]} {max(0.0, (now - phase.began).total_seconds()):.0f} s …")
        else:
            words.append(f"{PHASE_NAMES[phase.stage]} …")
    line = " · ".join(words)
    return line if timeline.total_seconds is None else f"{line}   Ready {timeline.total_seconds:.0f} s"


assert set(PHASE_NAMES) == set(BOOT_STAGES)  # noqa: S101  a new stage needs a name for people
