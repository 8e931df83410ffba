"""What pods that are over say of the jobs that they were. Pure.

A gang is one job, over once nothing of it runs, and failed if one of its pods has: for the reason of the first of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from provisioner.cluster.source import conditions_of
from provisioner.cluster.trim import IDENTITY, clipped, picked
from provisioner.jobs.gangs import Gang, gang_of
from provisioner.jobs.model.ended import EndedJob
from provisioner.jobs.pods import (
    CHECK_LABEL,
    JobRules,
    Pod,
    began_at,
    belongs_to_node,
    gpu_requests,
    key_of,
    labels_of,
    node_of,
    read_moment,
    trim_metadata,
    was_job,
)

LABEL_BYTES: Final = 512
"""Of the labels that a cache keeps of a pod, beside those that make it a job."""

_REASON_LETTERS: Final = 64
_DISRUPTION: Final = "DisruptionTarget"
_CONDITIONS: Final = (_DISRUPTION, "Ready")
_KILLED: Final = frozenset({9, 15})
_CODES: Final = range(-(2**31), 2**31)
_SIGNALS: Final = range(1, 65)
_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)
_KEPT_METADATA: Final = (*IDENTITY, "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
_KEPT_SPEC: Final = ("nodeName", "schedulingGroup", "workloadRef")
_KEPT_CONDITION: Final = ("type", "status", "reason", "lastTransitionTime")
_KEPT_TERMINATED: Final = ("exitCode", "signal", "reason", "finishedAt")


@dataclass(frozen=True)
class SummarizeEnded:
    """Says which jobs pods were, under `rules`: a gang stands for its own, which may not be over yet."""

    rules: JobRules

    def __call__(self, pods: Sequence[Pod]) -> tuple[EndedJob | Gang, ...]:
        found: dict[Gang | str, EndedJob | Gang] = {}
        for pod in pods:
            if was_job(pod, self.rules):
                gang = gang_of(pod)
                found[gang or key_of(pod)] = gang or _single(pod)
        return tuple(found.values())


def ended_gang(members: Sequence[Pod]) -> EndedJob | None:
    """`members`: all of one gang that are over; None without any. Whether others still run is not asked here."""
    gang = gang_of(members[0]) if members else None
    if gang is None:
        return None
    told = sorted((_single(pod) for pod in members), key=lambda job: (job.ended, job.key))
    decides = next((job for job in told if not job.succeeded), told[-1])
    return EndedJob(
        kind="PodGroup",
        key=f"{gang.kind} {gang.key}",
        namespace=gang.namespace,
        name=gang.name,
        servers=tuple(sorted({server for job in told for server in job.servers})),
        began=min((job.began for job in told if job.began is not None), default=None),
        ended=told[-1].ended,
        succeeded=decides.succeeded,
        reason=decides.reason,
        exit_code=decides.exit_code,
        signal=decides.signal,
        labels=decides.labels,
    )


def trim_ended_pod(pod: dict[str, Any]) -> dict[str, Any] | None:
    """What a cache has to know of a pod that is over, some 1 KiB whatever a tenant writes into it; None of those that
    come with their node, that never had one, and of our own checks. Labels beyond the bound are left out."""
    if belongs_to_node(pod) or node_of(pod) is None or CHECK_LABEL in labels_of(pod):
        return None
    spec, status = pod["spec"], pod.get("status") or {}
    return {
        "apiVersion": pod["apiVersion"],
        "kind": pod["kind"],
        "metadata": trim_metadata(pod, _KEPT_METADATA, LABEL_BYTES),
        "spec": picked(spec, _KEPT_SPEC) | _gpus(pod),
        "status": picked(status, ("phase", "startTime"))
        | {
            "reason": clipped(status.get("reason"), _REASON_LETTERS),
            "conditions": [picked(each, _KEPT_CONDITION, _REASON_LETTERS) for each in _conditions(pod)],
            "containerStatuses": [
                {"state": {"terminated": picked(each, _KEPT_TERMINATED, _REASON_LETTERS)}} for each in _telling(status)
            ],
        },
    }


def _single(pod: Pod) -> EndedJob:
    metadata, status = pod["metadata"], pod.get("status") or {}
    succeeded = status.get("phase") == "Succeeded"
    ended = _ended_at(pod)
    failed = None if succeeded else _first_failed(status)
    exit_code, signal = (0, None) if succeeded else _exit_of(failed)
    return EndedJob(
        kind="Pod",
        key=metadata.get("uid") or key_of(pod),
        namespace=metadata["namespace"],
        name=metadata["name"],
        servers=tuple(node for node in (node_of(pod),) if node is not None),
        began=began_at(pod),
        ended=ended,
        succeeded=succeeded,
        reason="Completed" if succeeded else _reason(pod, failed, ended)[:_REASON_LETTERS],
        exit_code=exit_code,
        signal=signal,
        labels=labels_of(pod),
    )


def _reason(pod: Pod, failed: Mapping[str, Any] | None, ended: datetime) -> str:
    status = pod.get("status") or {}
    disrupted: Mapping[str, Any] = next(iter(conditions_of(pod, _DISRUPTION)), {})
    said = status.get("reason") or (disrupted.get("reason") if disrupted.get("status") == "True" else None)
    if not said and _was_deleted(pod, failed, ended):
        said = "Deleted"
    return str(said or (failed or {}).get("reason") or "Error")


def _was_deleted(pod: Pod, failed: Mapping[str, Any] | None, ended: datetime) -> bool:
    """Whether it was asked to end before it did; one that is over is deleted, too, at some time."""
    metadata = pod["metadata"]
    until, grace = read_moment(metadata.get("deletionTimestamp")), metadata.get("deletionGracePeriodSeconds") or 0
    try:
        asked = until - timedelta(seconds=grace) if until is not None else None
    except OverflowError:
        return False
    # Whole seconds are written: of the same one, whether it was killed tells which came first.
    return asked is not None and (asked < ended or (asked == ended and _exit_of(failed)[1] in _KILLED))


def _ended_at(pod: Pod) -> datetime:
    """When its last container ended, or what comes nearest to that."""
    status, metadata = pod.get("status") or {}, pod["metadata"]
    times = [found for each in _terminated(status) if (found := read_moment(each.get("finishedAt"))) is not None]
    if times:
        return max(times)
    others = [each.get("lastTransitionTime") for each in _conditions(pod)]
    for other in (*others, status.get("startTime"), metadata.get("creationTimestamp")):
        found = read_moment(other)
        if found is not None:
            return found
    return _LONG_AGO


def _exit_of(terminated: Mapping[str, Any] | None) -> tuple[int | None, int | None]:
    """Exit code and signal; the latter by the shells' convention, too: 137 is 128 and SIGKILL."""
    if terminated is None:
        return None, None
    code, signal = terminated.get("exitCode"), terminated.get("signal")
    if not isinstance(code, int) or code not in _CODES:
        return None, None
    if not isinstance(signal, int) or signal not in _SIGNALS:
        signal = code - 128 if code - 128 in _SIGNALS else None
    return code, signal


def _first_failed(status: Mapping[str, Any]) -> Mapping[str, Any] | None:
    failed = [each for each in _terminated(status) if each.get("exitCode") != 0]
    return min(failed, key=lambda each: read_moment(each.get("finishedAt")) or _LONG_AGO, default=None)


def _telling(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Those of its containers that say how it ended and when: the first that failed, and the last."""
    last = max(_terminated(status), key=lambda each: read_moment(each.get("finishedAt")) or _LONG_AGO, default=None)
    first = _first_failed(status)
    return [each for each in (first, last if last is not first else None) if each is not None]


def _terminated(status: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for statuses in ("initContainerStatuses", "containerStatuses"):
        for each in status.get(statuses) or ():
            found = (each.get("state") or {}).get("terminated")
            if found:
                yield found


def _conditions(pod: Pod) -> list[Mapping[str, Any]]:
    """Those that say when it ended and why. Of a type there is one at most."""
    return [each for type_ in _CONDITIONS for each in conditions_of(pod, type_)[:1]]


def _gpus(pod: Pod) -> dict[str, Any]:
    """A part of a pod's spec that says that it had GPUs, if it had."""
    if pod["spec"].get("resourceClaims"):
        return {"resourceClaims": [{}]}
    for name, quantity in gpu_requests(pod):
        return {"containers": [{"resources": {"requests": {name: quantity}}}]}
    return {}
