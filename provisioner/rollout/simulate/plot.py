"""The fleet over time, as an SVG: how many servers have the image, are on their way, idle, or run jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final
from xml.sax.saxutils import escape

from provisioner.rollout.simulate.run import Sample

WIDTH: Final = 720
HEIGHT: Final = 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 34, 56
_BANDS: Final[tuple[tuple[str, str, Callable[[Sample], int]], ...]] = (
    ("has the image", "#2a9d8f", lambda sample: sample.updated),
    ("on its way to it", "#e9c46a", lambda sample: sample.updating),
    ("idle, waits", "#9fb8d0", lambda sample: sample.idle),
    ("runs jobs, waits", "#46607c", lambda sample: sample.busy),
)
_MOST_POINTS: Final = 400


def draw_fleet(title: str, servers: int, samples: Sequence[Sample], end: float) -> str:
    """Bands stacked from the bottom, from the begin of the rollout to `end`, in seconds."""
    span = max(end, 1.0)
    chosen = [*samples[: -1 : max(1, len(samples) // _MOST_POINTS)], *samples[-1:]]
    unit, seconds = _unit(span)

    def x(time: float) -> float:
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * min(time, span) / span

    def y(count: int) -> float:
        return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * count / servers

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        f'font-size="12"><rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>'
        f'<text x="{_LEFT}" y="20" font-size="14">{escape(title)}</text>'
    ]
    below = [0] * len(chosen)
    for number, (name, colour, count) in enumerate(_BANDS):
        above = [low + count(sample) for low, sample in zip(below, chosen, strict=True)]
        edge = _steps(chosen, above, span, x, y)
        back = _steps(chosen, below, span, x, y)[::-1]
        points = " ".join(f"{px:.1f},{py:.1f}" for px, py in (*edge, *back))
        parts.append(f'<polygon points="{points}" fill="{colour}"/>')
        at = _LEFT + number * 160
        parts.append(f'<rect x="{at}" y="{HEIGHT - 20}" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{at + 17}" y="{HEIGHT - 10}">{escape(name)}</text>')
        below = above
    for quarter in range(5):
        tick, time = servers * quarter // 4, span * quarter / 4
        parts.append(f'<text x="{_LEFT - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick}</text>')
        label = f"{time / seconds:.3g}{f' {unit}' if quarter == 4 else ''}"
        anchor = "end" if quarter == 4 else "middle"
        parts.append(f'<text x="{x(time):.1f}" y="{HEIGHT - _BOTTOM + 16}" text-anchor="{anchor}">{label}</text>')
    return "".join(parts) + "</svg>\n"


def _steps(
    samples: Sequence[Sample],
    counts: Sequence[int],
    span: float,
    x: Callable[[float], float],
    y: Callable[[int], float],
) -> list[tuple[float, float]]:
    """The line of a count that holds until the next sample."""
    points: list[tuple[float, float]] = []
    for number, (sample, count) in enumerate(zip(samples, counts, strict=True)):
        until = samples[number + 1].time if number + 1 < len(samples) else span
        points += [(x(sample.time), y(count)), (x(until), y(count))]
    return points


def _unit(span: float) -> tuple[str, float]:
    return ("days", 86400.0) if span > 2 * 86400 else ("hours", 3600.0) if span > 7200 else ("minutes", 60.0)
