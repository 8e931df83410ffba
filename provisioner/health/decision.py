"""The form in which the health controller decides. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from provisioner.api.pools.pool_settings import JobCheck
from provisioner.cluster.reconciler import Said
from provisioner.health.requests import RequestAnswer


@dataclass(frozen=True, kw_only=True)
class JobOrder:
    """A check whose Job must exist: of which boot and round."""

    check: JobCheck
    boot_id: str
    attempt: int


@dataclass(frozen=True, kw_only=True)
class CurrentRound:
    """Which Jobs of a server are still of use: those of this boot; unfinished ones only of this attempt."""

    boot_id: str
    attempt: int | None


@dataclass(frozen=True, kw_only=True)
class HealthDecision(Said):
    """What is done after the status was written.

    start: the Job to make. current: None if no Job is of use. answers: requests that are answered now.
    """

    status: dict[str, Any]
    start: JobOrder | None = None
    current: CurrentRound | None = None
    answers: tuple[RequestAnswer, ...] = ()
