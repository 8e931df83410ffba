"""From the pods of a node, and the other members of their gangs, to jobs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from provisioner.api.machinery.meta import rfc3339
from provisioner.api.machinery.wording import quantity
from provisioner.jobs.free import PodRequests, requests_on
from provisioner.jobs.gangs import Gang, gang_of
from provisioner.jobs.model.work import Job
from provisioner.jobs.pods import (
    JobRules,
    Pod,
    began_at,
    belongs_to_node,
    ends_at,
    forbids_disruption,
    grace_end,
    has_ended,
    is_evictable,
    is_job,
    is_terminating,
    key_of,
    node_of,
)


@dataclass(frozen=True)
class PodJob:
    """A job and its pods, on whatever node, that are not over."""

    job: Job
    pods: tuple[Pod, ...]


@dataclass(frozen=True)
class NodePods:
    """What the pods of a node are: its jobs, a gang in place of its own; what a drain has to end; what they request."""

    jobs: tuple[Job | Gang, ...]
    evictable: tuple[str, ...]
    requests: PodRequests


@dataclass(frozen=True)
class Summarize:
    """Says of pods, which are a node's, what they are under `rules`."""

    rules: JobRules

    def __call__(self, pods: Sequence[Pod]) -> NodePods:
        jobs: dict[Job | Gang, None] = {}
        for pod in pods:
            if is_job(pod, self.rules):
                jobs[gang_of(pod) or _single(pod).job] = None
        return NodePods(tuple(jobs), evictable_keys(pods), requests_on(pods))


def job_of_gang(members: Sequence[Pod]) -> Job | None:
    """`members`: all that there are of one gang; None without any."""
    gang = gang_of(members[0]) if members else None
    return _of_gang(gang, members).job if gang is not None else None


def gangs_of(pods: Iterable[Pod], rules: JobRules) -> tuple[Gang, ...]:
    """The gangs whose other members must be looked for: those of the jobs among `pods`."""
    found = (gang_of(pod) for pod in pods if is_job(pod, rules))
    return tuple(dict.fromkeys(gang for gang in found if gang is not None))


def find_jobs(pods: Sequence[Pod], elsewhere: Mapping[Gang, Sequence[Pod]], rules: JobRules) -> tuple[PodJob, ...]:
    """The jobs among `pods`, which are a node's; `elsewhere` holds all that may be members of a gang, by gang."""
    jobs: dict[Gang | str, PodJob] = {}
    for pod in pods:
        if not is_job(pod, rules):
            continue
        gang = gang_of(pod)
        if gang is None:
            jobs[key_of(pod)] = _single(pod)
        elif gang not in jobs:
            jobs[gang] = _of_gang(gang, (*pods, *elsewhere.get(gang, ())))
    return tuple(jobs.values())


def _single(pod: Pod) -> PodJob:
    job = Job(
        kind="Pod",
        name=key_of(pod),
        servers=_nodes((pod,)),
        message=f"pod {key_of(pod)}{_owner(pod)} {state_of(pod)}",
        do_not_disrupt=forbids_disruption(pod),
        began=began_at(pod),
        ends=ends_at(pod),
    )
    return PodJob(job, (pod,))


def _of_gang(gang: Gang, candidates: Iterable[Pod]) -> PodJob:
    members = {
        pod["metadata"]["uid"]: pod
        for pod in candidates
        if gang_of(pod) == gang and node_of(pod) and not has_ended(pod) and not belongs_to_node(pod)
    }
    pods = tuple(members.values())
    servers = _nodes(pods)
    count = quantity(len(pods), "pod")
    terminating = sum(1 for pod in pods if is_terminating(pod))
    job = Job(
        kind="PodGroup",
        name=gang.key,
        servers=servers,
        message=f"{gang}: {count} on {', '.join(servers[:8])}{' and more' if len(servers) > 8 else ''}"
        + (f", {terminating} of them terminating" if terminating else ""),
        do_not_disrupt=any(forbids_disruption(pod) for pod in pods),
        began=min((began for pod in pods if (began := began_at(pod)) is not None), default=None),
        ends=_last(ends_at(pod) for pod in pods),
    )
    return PodJob(job, pods)


def evictable_keys(pods: Iterable[Pod]) -> tuple[str, ...]:
    return tuple(sorted(key_of(pod) for pod in pods if is_evictable(pod)))


def state_of(pod: Pod) -> str:
    """`runs`, `is starting`, or `is terminating until …`."""
    end = grace_end(pod)
    if end is not None:
        return f"is terminating until {rfc3339(end)}"
    return "is starting" if (pod.get("status") or {}).get("phase") == "Pending" else "runs"


def _last(moments: Iterable[datetime | None]) -> datetime | None:
    """None if one of them is not known."""
    found = tuple(moments)
    known = [moment for moment in found if moment is not None]
    return max(known) if known and len(known) == len(found) else None


def _nodes(pods: Iterable[Pod]) -> tuple[str, ...]:
    return tuple(sorted({node for pod in pods if (node := node_of(pod)) is not None}))


def _owner(pod: Pod) -> str:
    for owner in pod["metadata"].get("ownerReferences") or []:
        if owner.get("controller"):
            return f" of {owner['kind']} {owner['name']}"
    return ""
