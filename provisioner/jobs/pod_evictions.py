"""Which pods to evict now, which to leave and why. Pure.

A gang is evicted as one or not at all: half a gang holds its GPUs and computes nothing. Only one that has begun to end
is ended as fast as its budgets allow. Its members elsewhere go first, so that it is seen here until all were asked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from provisioner.api.machinery.meta import rfc3339
from provisioner.api.machinery.wording import some
from provisioner.jobs.budgets import DisruptionBudget, budgets_of, too_small_for
from provisioner.jobs.model.work import EvictionBlocked, JobKind
from provisioner.jobs.pod_jobs import PodJob
from provisioner.jobs.pods import Pod, grace_end, is_evictable, is_terminating, key_of, node_of

_SHOWN_PODS = 5
OVERDUE_AFTER: Final = timedelta(seconds=30)
"""A pod that is terminating for so long after its grace period: the kubelet that must say that it ended does not."""


@dataclass
class EvictionPlan:
    """`evict`, in this order; `held` says of pods, by uid, why they are left."""

    evict: list[Pod] = field(default_factory=list)
    held: dict[str, EvictionBlocked] = field(default_factory=dict)


def plan_evictions(
    node: str,
    pods: Sequence[Pod],
    jobs: Iterable[PodJob],
    budgets: Sequence[DisruptionBudget],
    *,
    spare: Collection[JobKind],
    force: bool,
) -> EvictionPlan:
    """What to do about `pods`, which are those of `node`, and about the members of its jobs elsewhere."""
    plan = EvictionPlan()
    seen: set[str] = set()
    for found in jobs:
        job = found.job
        seen.update(_uid(pod) for pod in found.pods)
        members = sorted((pod for pod in found.pods if not is_terminating(pod)), key=lambda pod: node_of(pod) == node)
        has_begun_to_end = len(members) < len(found.pods)
        if job.kind in spare:
            words = f"{job.message}: it is not interrupted"
            plan.held |= {_uid(pod): _held(pod, words) for pod in members}
        elif job.do_not_disrupt and not force:
            words = f"{job.message}: its owner forbids its eviction by an annotation, which policy Now overrides"
            plan.held |= {_uid(pod): _held(pod, words) for pod in members}
        elif job.kind == "PodGroup" and not has_begun_to_end and (tight := too_small_for(members, budgets)):
            words = f"{job.message}: all of it is evicted at once, or nothing; {tight[0].explain()}"
            blocked = EvictionBlocked(kind="PodDisruptionBudget", name=tight[0].key, message=words)
            plan.held |= dict.fromkeys(map(_uid, members), blocked)
        else:
            for pod in members:
                _ask(plan, pod, budgets)
    for pod in pods:
        if is_evictable(pod) and _uid(pod) not in seen and not is_terminating(pod):
            _ask(plan, pod, budgets)
    return plan


def _ask(plan: EvictionPlan, pod: Pod, budgets: Sequence[DisruptionBudget]) -> None:
    over = budgets_of(pod, budgets)
    if len(over) > 1:
        # The API server answers HTTP 500 to this, for ever.
        names = ", ".join(budget.key for budget in over)
        plan.held[_uid(pod)] = EvictionBlocked(
            kind="PodDisruptionBudget",
            name=over[0].key,
            message=f"pod {key_of(pod)} has {len(over)} PodDisruptionBudgets ({names}), and Kubernetes evicts pods "
            "with at most one: narrow their selectors, or delete the pod by hand",
        )
    else:
        plan.evict.append(pod)


def _held(pod: Pod, why: str) -> EvictionBlocked:
    return EvictionBlocked(kind="Pod", name=key_of(pod), message=why)


def refused(pod: Pod, budgets: Sequence[DisruptionBudget], answer: str) -> EvictionBlocked:
    """The API server did not evict `pod`, and said `answer`; `budgets` are as they were just after."""
    over = budgets_of(pod, budgets)
    if not over:
        return _held(pod, f"pod {key_of(pod)} was not evicted: {answer}")
    why = over[0].explain() if over[0].allowed <= 0 or not over[0].current else answer
    return EvictionBlocked(kind="PodDisruptionBudget", name=over[0].key, message=f"pod {key_of(pod)} waits: {why}")


def still_there(
    pods: Iterable[Pod], reasons: Mapping[str, EvictionBlocked], now: datetime
) -> tuple[EvictionBlocked, ...]:
    """One entry for each of `pods` that a drain waits for; those that wait for one budget share an entry."""
    held: list[EvictionBlocked] = []
    waiting: dict[str, list[str]] = {}
    for pod in sorted((pod for pod in pods if is_evictable(pod)), key=key_of):
        reason = reasons.get(_uid(pod)) if not is_terminating(pod) else None
        reason = reason or _held(pod, _ending(pod, now))
        if reason.kind == "PodDisruptionBudget":
            waiting.setdefault(reason.name, []).append(key_of(pod))
            if len(waiting[reason.name]) > 1:
                continue
        held.append(reason)
    return tuple(_with_others(reason, waiting.get(reason.name, ())) for reason in held)


def _with_others(reason: EvictionBlocked, waiting: Sequence[str]) -> EvictionBlocked:
    if reason.kind != "PodDisruptionBudget" or len(waiting) < 2:
        return reason
    names = some(waiting[1:], _SHOWN_PODS)
    return EvictionBlocked(kind=reason.kind, name=reason.name, message=f"{reason.message} (as {names})")


def _ending(pod: Pod, now: datetime) -> str:
    end = grace_end(pod)
    if end is None:
        return f"pod {key_of(pod)} was not asked to end yet"
    if now > end + OVERDUE_AFTER:
        return (
            f"pod {key_of(pod)} should have ended at {rfc3339(end)}, and its kubelet does not say that it has: see "
            f"whether {node_of(pod)} is alive; if it is off for good, taint it node.kubernetes.io/out-of-service"
        )
    return f"pod {key_of(pod)} is terminating, and may take until {rfc3339(end)}"


def _uid(pod: Pod) -> str:
    uid: str = pod["metadata"]["uid"]
    return uid
