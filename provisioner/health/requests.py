"""What people ask of a Node's verification by conditions, and what they are answered. Pure.

A retry needs no time: to run checks again harms nobody. A release counts only if its lastTransitionTime lies in the
boot that runs: one that was left from an earlier boot must not let in a machine that nobody has looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from provisioner.api.machinery.meta import rfc3339
from provisioner.api.nodes.contract import VERIFICATION_RELEASE_REQUESTED, VERIFICATION_RETRY_REQUESTED
from provisioner.api.servers.server import Server, Verification
from provisioner.health.checks.finding import printable
from provisioner.health.situation import joined_time
from provisioner.rules.nodes import NodeView, ObservedCondition


@dataclass(frozen=True, kw_only=True)
class RequestAnswer:
    """The condition of that type is set False with this."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True, kw_only=True)
class CheckRequests:
    """What is asked for now: conditions with status True."""

    retry: ObservedCondition | None = None
    release: ObservedCondition | None = None


def read_requests(node: NodeView | None) -> CheckRequests:
    return CheckRequests(
        retry=_asked(node, VERIFICATION_RETRY_REQUESTED), release=_asked(node, VERIFICATION_RELEASE_REQUESTED)
    )


def _asked(node: NodeView | None, type_: str) -> ObservedCondition | None:
    found = node.condition(type_) if node is not None else None
    return found if found is not None and found.is_true else None


def was_taken(retry: ObservedCondition, verification: Verification) -> bool:
    """Whether this round, or one before it in this boot, is the answer to `retry`."""
    seen = verification.retry_seen_time
    if seen is None:
        return False
    return retry.time is None or rfc3339(retry.time) == seen


def seen_time(retry: ObservedCondition, now: datetime) -> str:
    return rfc3339(retry.time if retry.time is not None else now)


def release_standing(release: ObservedCondition, server: Server) -> Literal["Counts", "Stale"]:
    """Whether a release was asked for in the boot that joined last."""
    joined = joined_time(server)
    if release.time is None or joined is None:
        return "Stale"
    return "Counts" if release.time >= joined.replace(microsecond=0) else "Stale"


def release_words(release: ObservedCondition) -> str:
    return printable(release.message) or "no words were given"


def answer_retry(reason: str, message: str) -> RequestAnswer:
    return RequestAnswer(type=VERIFICATION_RETRY_REQUESTED, reason=reason, message=message)


def answer_release(reason: str, message: str) -> RequestAnswer:
    return RequestAnswer(type=VERIFICATION_RELEASE_REQUESTED, reason=reason, message=message)
