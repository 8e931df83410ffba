"""The form in which the boot controller's rules answer, before it becomes a status. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from provisioner.api.machinery.meta import ConditionStatus
from provisioner.api.servers.boot_stage import BootStage
from provisioner.api.servers.server import BootOrder
from provisioner.cluster.reconciler import Said


@dataclass(frozen=True, kw_only=True)
class ConditionUpdate:
    """Status, reason and message of a condition."""

    status: ConditionStatus
    reason: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Assessment:
    """What is true of a server: its conditions Booted and Ready, its stage, and a new order if one is given.

    is_told: Ready repeats another condition, whose writer has told it.
    revoked: the order that is taken back; the server that was judged has the former one already.
    requeue_at: when the answer may change by time alone. requeue_after_seconds: how often to look, whatever happens.
    """

    booted: ConditionUpdate
    ready: ConditionUpdate
    stage: BootStage | None
    order: BootOrder | None = None
    is_told: bool = False
    revoked: BootOrder | None = None
    requeue_at: datetime | None = None
    requeue_after_seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class OrderDecision(Said):
    """orders: whether the status holds a new boot order. revokes: whether it takes the current one back."""

    status: dict[str, Any]
    orders: bool = False
    revokes: bool = False
