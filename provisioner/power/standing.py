"""In which queue a server waits for a worker, by what its BMC has cost and answered. Pure: moments are arguments.

Four queues, each with workers of its own, so that what one BMC costs is paid by its like:

- New: this controller has not heard of the BMC yet. The first look logs in, which takes several requests.
- Prompt: it answers promptly. A look in this queue has little time; a BMC that needs more is Slow from then on.
- Slow: it answers, but takes more of a worker's time than its share, be it old, or dripping just fast enough. It comes
  back once its looks are short and its budget has recovered.
- Unreachable: it gave no usable answer last time, and is asked more and more rarely.

The budget is a token bucket of seconds that workers may wait for the BMC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from provisioner.api.machinery.backoff import backoff_seconds, unspread
from provisioner.cluster.source import first_condition

QueueName = Literal["New", "Prompt", "Slow", "Unreachable"]

LOOK_SECONDS: Final[Mapping[QueueName, float]] = {"New": 10.0, "Prompt": 3.0}
"""How long a look may take in a queue; elsewhere as long as a call may."""
SHARE: Final = 0.1
"""Of one worker, for each BMC: at a look each 10 s its looks may take 1 s."""
BURST_SECONDS: Final = 10.0
"""What is saved up at most: a login, a power cycle."""
DEBT_SECONDS: Final = 30.0
"""What is owed at most: a BMC that was mended is among the prompt again within 6 minutes."""
REST_SECONDS: Final = 300.0
"""After so long even the slowest is looked at again; and at once, if its Server has changed."""
FIRST_RETRY_SECONDS: Final = 5.0
LAST_RETRY_SECONDS: Final = 60.0
SLOW_REASON: Final = "SlowBMC"
"""Reason of condition PoweredOn while a server is in the queue of the slow and there is nothing else to tell."""
_UNREACHABLE_REASONS: Final = ("BMCUnreachable", "BMCCutOff")


@dataclass(frozen=True)
class BmcQueueState:
    """Of one server. `budget_seconds` are what was left at the moment `at`, of a monotonic clock, in seconds."""

    queue: QueueName = "New"
    failures: int = 0
    """In a row."""
    budget_seconds: float = BURST_SECONDS
    at: float = 0.0


def recorded(server: Mapping[str, Any]) -> QueueName:
    """Where a Server begins with a new controller: in the queue where the one before has said that it is."""
    reason = first_condition(server, "PoweredOn").get("reason")
    if reason in _UNREACHABLE_REASONS:
        return "Unreachable"
    return "Slow" if reason == SLOW_REASON else "New"


def visited(standing: BmcQueueState, bmc_seconds: float, now: float, *, answered: bool = True) -> BmcQueueState:
    """After a visit in which workers waited for `bmc_seconds` for the BMC; `answered`: it told the power.

    What one costs that was New or Unreachable is not counted: it had to log in.
    """
    if standing.queue in ("New", "Unreachable"):
        return replace(_paid(standing, 0.0, now), queue="Prompt", failures=0) if answered else standing
    paid = _paid(standing, bmc_seconds, now)
    recovered = bmc_seconds <= LOOK_SECONDS["Prompt"] and paid.budget_seconds >= BURST_SECONDS / 2
    slow = paid.budget_seconds < 0 or (standing.queue == "Slow" and not recovered)
    return replace(paid, queue="Slow" if slow else "Prompt", failures=0)


def overdue(standing: BmcQueueState, bmc_seconds: float, now: float) -> BmcQueueState:
    """After a look that was ended because its queue gives it no longer. What it means is seen in another queue."""
    return replace(_paid(standing, bmc_seconds, now), queue="Slow" if standing.queue == "Prompt" else "Unreachable")


def failed(standing: BmcQueueState, bmc_seconds: float, now: float) -> BmcQueueState:
    """After a visit in which the BMC gave no usable answer."""
    return replace(_paid(standing, bmc_seconds, now), queue="Unreachable", failures=standing.failures + 1)


def rest_seconds(queue: QueueName, bmc_seconds: float) -> float:
    """How long a BMC is left alone after a visit in `queue` that took so long: others of the slow get their turn."""
    overlong = queue == "Slow" and bmc_seconds > LOOK_SECONDS["Prompt"]
    return min(REST_SECONDS, bmc_seconds / SHARE) if overlong else 0.0


def retry_seconds(failures: int) -> float:
    """How long to leave a BMC alone that was not reached `failures` times in a row (from 1): 5 s to 60 s."""
    return backoff_seconds(failures, first=FIRST_RETRY_SECONDS, cap=LAST_RETRY_SECONDS, jitter=unspread)


def _paid(standing: BmcQueueState, bmc_seconds: float, now: float) -> BmcQueueState:
    earned = min(BURST_SECONDS, standing.budget_seconds + SHARE * (now - standing.at))
    return replace(standing, budget_seconds=max(-DEBT_SECONDS, earned - bmc_seconds), at=now)
