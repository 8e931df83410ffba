"""One boot beside what is usual in its pool: a line for each phase, with the places of its bars. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from provisioner.api.servers.boot_stage import HEARD_STAGES, STAGE_TIMEOUT_SECONDS, BootStage
from provisioner.api.servers.boot_timeline import PHASE_NAMES, boot_timeline
from provisioner.api.servers.server import ServerStatus
from provisioner.web.medians import UsualBoot

WIDTH: Final = 1000.0
"""Of the chart, in its own units."""
NOTEWORTHY: Final = 1.5
"""A phase that takes so many times its median, and 5 s longer, is pointed out."""
NOTEWORTHY_SECONDS: Final = 5.0


@dataclass(frozen=True, kw_only=True)
class ChartLine:
    """lasts: it is under way; `seconds` are those until now. heard: nobody proves when it began. The bar of this boot
    and that of the median: from where on, how wide."""

    name: str
    began: datetime
    seconds: float
    usual: float | None
    lasts: bool
    heard: bool
    slow: bool
    bar: tuple[float, float]
    usual_bar: tuple[float, float] | None


@dataclass(frozen=True, kw_only=True)
class BootChart:
    """total: from power-on (or the order, of an agent's boot) to Ready, None until then."""

    lines: tuple[ChartLine, ...]
    total_seconds: float | None
    usual: UsualBoot | None


def boot_chart(status: ServerStatus, usual: UsualBoot | None, now: datetime) -> BootChart:
    """Of the current boot."""
    timeline = boot_timeline(status)
    if not timeline.phases:
        return BootChart(lines=(), total_seconds=timeline.total_seconds, usual=usual)
    start = timeline.phases[0].began
    lengths = [
        phase.seconds if phase.seconds is not None else max(0.0, (now - phase.began).total_seconds())
        for phase in timeline.phases
    ]
    offsets = [(phase.began - start).total_seconds() for phase in timeline.phases]
    medians = usual.phases if usual is not None else {}
    whole = max(offsets[-1] + lengths[-1], sum(medians.get(phase.stage, 0.0) for phase in timeline.phases), 1e-3)
    lines, usual_offset = [], 0.0
    for phase, length, offset in zip(timeline.phases, lengths, offsets, strict=True):
        median = medians.get(phase.stage)
        lines.append(
            ChartLine(
                name=PHASE_NAMES[phase.stage],
                began=phase.began,
                seconds=length,
                usual=median,
                lasts=phase.seconds is None,
                heard=is_heard(phase.stage, status),
                slow=_is_slow(phase.stage, length, median, lasts=phase.seconds is None),
                bar=_bar(offset, length, whole),
                usual_bar=_bar(usual_offset, median, whole) if median is not None else None,
            )
        )
        usual_offset += median or 0.0
    return BootChart(lines=tuple(lines), total_seconds=timeline.total_seconds, usual=usual)


def is_heard(stage: BootStage, status: ServerStatus) -> bool:
    """Whether that it began is what the network or the machine said, which nobody proves."""
    order, power = status.order, status.power
    if stage == "Firmware" and order is not None and power is not None and power.order_id == order.id:
        return power.order_time is None
    return stage in HEARD_STAGES


def _is_slow(stage: BootStage, seconds: float, median: float | None, *, lasts: bool) -> bool:
    if median is None:
        return lasts and seconds > STAGE_TIMEOUT_SECONDS.get(stage, float("inf"))
    return seconds > median * NOTEWORTHY and seconds - median > NOTEWORTHY_SECONDS


def _bar(offset: float, length: float, whole: float) -> tuple[float, float]:
    """Never too narrow to be seen, and never beyond the end."""
    begin = min(offset / whole * WIDTH, WIDTH - 4.0)
    return round(begin, 1), round(max(4.0, min(length / whole * WIDTH, WIDTH - begin)), 1)
