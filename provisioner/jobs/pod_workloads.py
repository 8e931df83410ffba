"""Pods on a node: seen, warned, evicted. `pods` decides what counts as a job, `pod_jobs` and `pod_evictions` what is
done."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import structlog

from provisioner.api.machinery.errors import Conflict, NotFound, Refused, Retryable
from provisioner.api.machinery.meta import parse_time, rfc3339
from provisioner.api.nodes.contract import POD_WARNING_ANNOTATION
from provisioner.api.pools.node_pool import NodePool
from provisioner.cluster.client import Cluster
from provisioner.cluster.events import Events
from provisioner.cluster.resources import POD_DISRUPTION_BUDGETS, PODS
from provisioner.cluster.source import Source
from provisioner.jobs.budgets import DisruptionBudget, read_budget, trim_budget
from provisioner.jobs.ended_pods import SummarizeEnded, ended_gang
from provisioner.jobs.free import PodRequests, requests_on
from provisioner.jobs.gangs import Gang, gang_of
from provisioner.jobs.model.ended import EndedJob, no_later_than
from provisioner.jobs.model.work import EvictionBlocked, Job, JobKind
from provisioner.jobs.pod_evictions import plan_evictions, refused, still_there
from provisioner.jobs.pod_jobs import PodJob, Summarize, evictable_keys, find_jobs, gangs_of, job_of_gang
from provisioner.jobs.pods import (
    NOT_OVER,
    JobRules,
    Pod,
    annotations_of,
    has_ended,
    is_evictable,
    is_terminating,
    job_rules,
    key_of,
    node_of,
    trim_pod,
)

log = structlog.get_logger()

MANAGER: Final = "provisioner-jobs"
WARNING_REASON: Final = "MaintenanceDeadline"
SETTLED_AFTER: Final = timedelta(seconds=10)
"""A gang is over only so long after its last pod: the caches hear of its pods one after the other."""


@dataclass(frozen=True)
class PodView:
    """What the pods of a node say of it. `unknown`: rules that nobody can read, in words."""

    jobs: tuple[Job, ...]
    evictable: tuple[str, ...]
    requests: PodRequests
    unknown: tuple[str, ...]


class PodWorkloads:
    """The pods' part of `provisioner.jobs.model.work.Workloads`. All methods raise Retryable without an API server.

    `pods`, `ended`: caches of those that are not over, and of those that are.
    """

    def __init__(
        self,
        cluster: Cluster,
        events: Events,
        pods: Source | None,
        ended: Source | None = None,
        *,
        now: Callable[[], datetime],
    ) -> None:
        self._cluster = cluster
        self._events = events
        self._now = now
        self._cached = pods.index(_unless_over) if pods is not None else None
        self._ended = ended.index(_node_and_gang) if ended is not None else None

    def look(self, node: str, pool: NodePool, *, fresh: bool = True) -> PodView:
        """What runs on `node`; `fresh`: past every cache."""
        rules = job_rules(pool)
        if self._cached is None or fresh:
            pods, found = self._find(node, rules)
            jobs = tuple(each.job for each in found)
            return PodView(jobs, evictable_keys(pods), requests_on(pods), rules.unknown)
        known = self._cached.summary(node, Summarize(rules))
        told = (each if isinstance(each, Job) else self._cached.summary(each, job_of_gang) for each in known.jobs)
        return PodView(tuple(job for job in told if job is not None), known.evictable, known.requests, rules.unknown)

    def ended(self, pool: NodePool, nodes: Iterable[str], since: datetime) -> Iterator[EndedJob]:
        """Jobs that ended after `since` on any of `nodes`, by the caches; gangs of which nothing runs any more."""
        if self._ended is None or self._cached is None:
            return
        now, summarize, gangs = self._now(), SummarizeEnded(job_rules(pool)), dict[Gang, None]()
        for node in nodes:
            for each in self._ended.summary(node, summarize):
                if isinstance(each, Gang):
                    gangs[each] = None
                elif each.ended > since:
                    yield no_later_than(now, each)
        for gang in gangs:
            job = self._ended.summary(gang, ended_gang)
            if job is None or job.ended <= since or now - SETTLED_AFTER < job.ended <= now:
                continue
            if self._cached.summary(gang, job_of_gang) is None:
                yield no_later_than(now, job)

    def _find(self, node: str, rules: JobRules) -> tuple[tuple[Pod, ...], tuple[PodJob, ...]]:
        """The pods of `node`, and its jobs with the members elsewhere of gangs that run there."""
        pods = self._pods_of(node)
        elsewhere: dict[Gang, Sequence[Pod]] = {}
        lists: dict[tuple[str, str | None], Sequence[Pod]] = {}
        for gang in gangs_of(pods, rules):
            # One list for all gangs that it serves: a tenant may name as many gangs as it has pods.
            key = (gang.namespace, gang.selector)
            if key not in lists:
                lists[key] = self._candidates(gang)
            elsewhere[gang] = lists[key]
        return pods, find_jobs(pods, elsewhere, rules)

    def warn(self, node: str, pool: NodePool, deadline: datetime, reason: str) -> int:
        """Annotate every pod of the jobs on `node`, and record an Event on it; returns how many know now."""
        _, jobs = self._find(node, job_rules(pool))
        pods = {pod["metadata"]["uid"]: pod for found in jobs for pod in found.pods}
        return sum(self._warn_pod(node, pod, deadline, reason) for pod in pods.values() if not is_terminating(pod))

    def evict(
        self, node: str, pool: NodePool, *, spare: Collection[JobKind], force: bool
    ) -> tuple[EvictionBlocked, ...]:
        """Evict what may be evicted; returns which pods of `node` are still there, and why."""
        pods, jobs = self._find(node, job_rules(pool))
        affected = (*pods, *(pod for found in jobs for pod in found.pods))
        if not any(is_evictable(pod) for pod in affected):
            return ()
        budgets = self._budgets(affected)
        plan = plan_evictions(node, pods, jobs, budgets, spare=spare, force=force)
        reasons = dict(plan.held)
        for pod in plan.evict:
            held = self._evict_pod(pod)
            if held is not None:
                reasons[pod["metadata"]["uid"]] = held
        remaining = self._pods_of(node) if plan.evict else pods
        return still_there(remaining, reasons, self._now())

    def _pods_of(self, node: str) -> tuple[Pod, ...]:
        selector = f"spec.nodeName={node},{NOT_OVER}"
        return tuple(self._cluster.list(PODS, field_selector=selector, trim=trim_pod).items)

    def _candidates(self, gang: Gang) -> Sequence[Pod]:
        return self._cluster.list(
            PODS, namespace=gang.namespace, label_selector=gang.selector, field_selector=NOT_OVER, trim=trim_pod
        ).items

    def _budgets(self, pods: Iterable[Pod]) -> tuple[DisruptionBudget, ...]:
        namespaces = sorted({pod["metadata"]["namespace"] for pod in pods})
        return tuple(
            read_budget(body)
            for namespace in namespaces
            for body in self._cluster.list(POD_DISRUPTION_BUDGETS, namespace=namespace, trim=trim_budget).items
        )

    def _evict_pod(self, pod: Pod) -> EvictionBlocked | None:
        """Ask for its eviction; why it was refused, if it was."""
        metadata = pod["metadata"]
        try:
            self._cluster.evict(metadata["name"], metadata["namespace"], uid=metadata["uid"])
        except Conflict as error:
            return refused(pod, (), str(error))
        except (Retryable, Refused) as error:
            # Which of them it is, a budget or an API server that is ill, is seen by looking: the latter raises here.
            return refused(pod, self._budgets((pod,)), str(error))
        log.info("pod was asked to end", pod=key_of(pod), node=pod["spec"].get("nodeName"))
        return None

    def _warn_pod(self, node: str, pod: Pod, deadline: datetime, reason: str) -> bool:
        metadata = pod["metadata"]
        if self._knows(pod, deadline):
            return True
        # With the uid, so that a namesake made meanwhile is not told of what does not concern it.
        change = {"metadata": {"uid": metadata["uid"], "annotations": {POD_WARNING_ANNOTATION: rfc3339(deadline)}}}
        try:
            self._cluster.patch(PODS, metadata["name"], change, namespace=metadata["namespace"], manager=MANAGER)
        except (NotFound, Conflict):
            return False
        log.info("pod was warned", pod=key_of(pod), node=node, deadline=rfc3339(deadline))
        message = f"node {node} is taken out of use at {rfc3339(deadline)}: {reason}; checkpoint before that"
        self._events.record(pod, "Warning", WARNING_REASON, message)
        return True

    def _knows(self, pod: Pod, deadline: datetime) -> bool:
        """Whether it was told of this deadline, or, for another server of its gang, of an earlier one still ahead."""
        told = annotations_of(pod).get(POD_WARNING_ANNOTATION, "")
        try:
            return self._now() < parse_time(told) <= deadline.replace(microsecond=0)
        except (ValueError, TypeError):
            return False


def _unless_over(pod: Pod) -> Iterable[str | Gang]:
    return () if has_ended(pod) else _node_and_gang(pod)


def _node_and_gang(pod: Pod) -> Iterator[str | Gang]:
    """Where a pod runs, and with whom."""
    node, gang = node_of(pod), gang_of(pod)
    if node is not None:
        yield node
    if gang is not None:
        yield gang
