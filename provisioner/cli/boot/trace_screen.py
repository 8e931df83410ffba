"""What a trace tells, a line each: what boot hosts heard, Events, and what changes in the Server. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from provisioner.api.machinery.wording import plain
from provisioner.api.servers.trace import TRACED_REASON
from provisioner.boot.observe.trace.lines import SEPARATOR
from provisioner.cluster.recent_events import event_time

_FROM_HOST: Final = re.compile(r"\[([^\]]{1,253})\] (.*)", re.DOTALL)
_CLOCK: Final = re.compile(r"(\d\d:\d\d:\d\d\.\d{3}) (.*)", re.DOTALL)

EVENT: Final = "event"
SERVER: Final = "server"


@dataclass(frozen=True)
class TraceLine:
    """time: UTC, as who told it has it; empty: unknown. source: a boot host's name, `event`, or `server` (its status).
    heard: whether it is what somebody sent, which nobody proved."""

    time: str
    source: str
    words: str
    heard: bool

    def line(self) -> str:
        """As a person reads it: ~ stands before what is hearsay."""
        return plain(f"{self.time:12}  {'~' if self.heard else ' '} {self.source:16}  {self.words}")

    def as_json(self) -> dict[str, Any]:
        return {"time": self.time, "source": self.source, "message": self.words, "hearsay": self.heard}


def told_by_event(event: Mapping[str, Any]) -> Iterator[TraceLine]:
    """The lines of an Event."""
    reason, message = str(event.get("reason") or ""), str(event.get("message") or "")
    if reason != TRACED_REASON:
        yield TraceLine(event_time(event)[11:19], EVENT, f"{reason}: {message}", heard=False)
        return
    found = _FROM_HOST.fullmatch(message)
    host, lines = (found[1], found[2]) if found is not None else ("a boot host", message)
    for line in lines.split(SEPARATOR):
        clocked = _CLOCK.fullmatch(line)
        yield TraceLine(*((clocked[1], host, clocked[2]) if clocked is not None else ("", host, line)), heard=True)


def told_by_change(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None, clock: str) -> Iterator[TraceLine]:
    """What changed in a Server's status; `clock`: when that was seen."""
    if new is None:
        yield TraceLine(clock, SERVER, "the object was deleted", heard=False)
        return
    before, now = _facts(old or {}), _facts(new)
    for name, value in now.items():
        if value is not None and before.get(name) != value:
            yield TraceLine(clock, SERVER, f"{name} {value}", heard=name.startswith("progress"))


def _facts(server: Mapping[str, Any]) -> dict[str, str | None]:
    status: Mapping[str, Any] = server.get("status") or {}

    def part(field: str) -> Mapping[str, Any]:
        return status.get(field) or {}

    order, power, progress, join = part("order"), part("power"), part("progress"), part("join")
    facts = {
        "address": status.get("address"),
        "lifecycle": status.get("lifecycle"),
        "stage": status.get("bootStage"),
        "order": f"{order.get('id')} ({order.get('reason')}) for Image {order.get('imageRef')}" if order else None,
        "BMC accepted order": power.get("orderID"),
        "power": power.get("state"),
        "progress": progress.get("stage"),
        "progress message": progress.get("message"),
        "join configuration handed out for order": join.get("orderID"),
        "join refused": f"{join.get('refusedReason')} ({join['refusedTime']})" if join.get("refusedTime") else None,
        "node": status.get("nodeRef"),
        "ready since": status.get("readyTime"),
    }
    for each in status.get("conditions") or ():
        words = f"{each.get('status')}, {each.get('reason')}: {each.get('message')}"
        facts[f"condition {each.get('type')}"] = words
    return {name: str(value) if value is not None else None for name, value in facts.items()}
