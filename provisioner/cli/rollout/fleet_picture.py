"""`rollout status --watch`: the fleet, a character for each server, rack by rack. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

import click

from provisioner.api.machinery.wording import clip, plain, quantity
from provisioner.cli.rollout.pool_view import PoolView
from provisioner.cli.rollout.screen import LOOKS, count_looks, count_words, headline, state_of
from provisioner.rollout.standing import MemberFacts

LEGEND: Final = "   ".join(f"{look.mark} {look.word}" for look in LOOKS.values())
NO_RACK: Final = "-"


def draw_fleet(view: PoolView, columns: int, rows: int, *, colour: bool) -> str:
    """At most so many rows of so many columns; racks that find no room are counted. Ends with a newline."""
    rollout = view.rollout
    top = [headline(view)]
    if rollout is not None and rollout.message and rollout.completed_time is None:
        top.append(rollout.message)
    expected = rollout.expected_time if rollout is not None and rollout.completed_time is None else None
    counted = count_words(count_looks(view.standings.values()))
    top.append(counted + (f"; expected {expected}" if expected else ""))
    room = max(1, rows - len(top) - 4)
    lines, left = _racks(list(view.standings.values()), columns, room, colour=colour)
    more = [f"and {quantity(left, 'more server')}"] if left else []
    shown = [clip(plain(line), columns) for line in top] + ["", *lines, *more, "", clip(LEGEND, columns)]
    return "\n".join(shown[:rows]) + "\n"


def _racks(standings: Sequence[MemberFacts], columns: int, room: int, *, colour: bool) -> tuple[list[str], int]:
    """The lines, and how many servers found no room."""
    by_rack = sorted(standings, key=lambda s: (s.server.spec.rack_ref or NO_RACK, s.server.name))
    racks = [(rack, list(own)) for rack, own in groupby(by_rack, lambda s: s.server.spec.rack_ref or NO_RACK)]
    label = min(16, max((len(rack) for rack, _ in racks), default=0)) + 2
    width = max(1, columns - label)
    lines: list[str] = []
    left = 0
    for rack, own in racks:
        parts = [own[start : start + width] for start in range(0, len(own), width)]
        for number, part in enumerate(parts):
            if len(lines) >= room:
                left += len(part)
                continue
            name = clip(plain(rack), label - 2) if number == 0 else ""
            lines.append(name.ljust(label) + _marks(part, colour=colour))
    return lines, left


def _marks(standings: Iterable[MemberFacts], *, colour: bool) -> str:
    looks = [LOOKS[state_of(standing)] for standing in standings]
    if not colour:
        return "".join(look.mark for look in looks)
    runs = ((look, len(list(own))) for look, own in groupby(looks))
    return "".join(click.style(look.mark * count, fg=look.colour) for look, count in runs)


def one_line(view: PoolView) -> str:
    """Where no terminal is: what is told whenever it changes."""
    rollout = view.rollout
    words = count_words(count_looks(view.standings.values()))
    message = rollout.message if rollout is not None else ""
    return plain(f"{words}{f'; {message}' if message else ''}")
