"""The form in which the boot controller's rules answer, before it becomes a status. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from provisioner.api.boot_stage import BootStage
from provisioner.api.meta import ConditionStatus
from provisioner.api.server import BootOrder
from provisioner.cluster.events import Happened


@dataclass(frozen=True, kw_only=True)
class Say:
    """Status, reason and message of a condition."""

    status: ConditionStatus
    reason: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What is true of a server: its conditions Booted and Ready, its stage, and a new order if one is given.

    withdrawn: the order that is taken back; the server that was judged has the former one already.
    look_again: when the answer may change by time alone. look_again_seconds: how often to look, whatever happens.
    """

    booted: Say
    ready: Say
    stage: BootStage | None
    order: BootOrder | None = None
    withdrawn: BootOrder | None = None
    look_again: datetime | None = None
    look_again_seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class Decision:
    """`status`: every field that the controller owns, as JSON. `orders`: whether it holds a new boot order.

    `withdraws`: whether it takes the current order back.
    """

    status: dict[str, Any]
    events: tuple[Happened, ...] = ()
    look_again_seconds: float | None = None
    orders: bool = False
    withdraws: bool = False
