"""What a check's Job and its pods say, as one state. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from provisioner.cluster.source import conditions_of
from provisioner.cluster.trim import IDENTITY, MOST_ENTRIES, VALUE_LETTERS, controller_of, picked
from provisioner.health.checks.finding import printable
from provisioner.health.jobs.manifest import ATTEMPT_ANNOTATION, BOOT_ANNOTATION, CHECK_LABEL, SERVER_LABEL

MAX_SAID: Final = 480
_SAID_LETTERS: Final = 4096
"""Of a termination message, which a kubelet cuts there."""
_KEPT_CONDITION: Final = ("type", "status", "reason", "message")
CALM_WAITS: Final = ("ContainerCreating", "PodInitializing")

JobPhase = Literal["Absent", "Refused", "Running", "Passed", "Failed"]


@dataclass(frozen=True, kw_only=True)
class JobState:
    """`reason` is one CamelCase word. `message`: what it waits for, or how it ended, in words."""

    phase: JobPhase
    reason: str = ""
    message: str = ""


ABSENT: Final = JobState(phase="Absent")


def trim_job(job: dict[str, Any]) -> dict[str, Any]:
    """What a cache keeps of the Job of a check."""
    ends = conditions_of(job, "Complete", "Failed")
    labels, annotations = job["metadata"].get("labels"), job["metadata"].get("annotations")
    return {
        "metadata": picked(job["metadata"], (*IDENTITY, "deletionTimestamp"))
        | {
            "labels": picked(labels, (CHECK_LABEL, SERVER_LABEL)),
            "annotations": picked(annotations, (BOOT_ANNOTATION, ATTEMPT_ANNOTATION), VALUE_LETTERS),
        },
        "status": {"conditions": [picked(each, _KEPT_CONDITION, _SAID_LETTERS) for each in ends[:MOST_ENTRIES]]},
    }


def trim_pod(pod: dict[str, Any]) -> dict[str, Any]:
    """What is kept of the pod of a check, which is what its termination messages say, and what it waits for."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    scheduled = conditions_of(pod, "PodScheduled")
    return {
        "metadata": picked(metadata, (*IDENTITY, "creationTimestamp"))
        | {"labels": picked(metadata.get("labels"), (SERVER_LABEL,)), "ownerReferences": controller_of(metadata)},
        "status": picked(status, ("phase", "reason", "message"), _SAID_LETTERS)
        | {"conditions": [picked(each, _KEPT_CONDITION, _SAID_LETTERS) for each in scheduled[:1]]}
        | {
            group: [_trim_container(each) for each in (status.get(group) or ())[:MOST_ENTRIES]]
            for group in ("initContainerStatuses", "containerStatuses")
        },
    }


def _trim_container(status: Mapping[str, Any]) -> dict[str, Any]:
    state = status.get("state") or {}
    kept = ("message", "reason", "exitCode")
    return picked(status, ("name",), VALUE_LETTERS) | {
        "state": {
            each: picked(state[each], kept, _SAID_LETTERS) for each in ("waiting", "terminated") if state.get(each)
        }
    }


def is_finished(job: Mapping[str, Any]) -> bool:
    return _ending(job) is not None


def read_job(job: Mapping[str, Any], pods: Sequence[Mapping[str, Any]]) -> JobState:
    """The state of a Job. Pods of a finished one must be read past every cache: their words decide."""
    ending = _ending(job)
    if ending is None:
        return JobState(phase="Running", reason="Running", message=_waits_for(pods))
    reported = [report for pod in pods for report in _reports(pod)]
    words = " ".join(message for _, _, message in reported if message)
    results = {result: reason for result, reason, _ in reversed(reported) if result}
    if "Failed" in results:
        return JobState(phase="Failed", reason=results["Failed"] or "CheckFailed", message=words or "it says Failed")
    if "Passed" in results:
        return JobState(phase="Passed", reason=results["Passed"] or "CheckPassed", message=words or "it says Passed")
    if ending["type"] == "Complete":
        return JobState(phase="Passed", reason="Completed", message=words or "completed")
    reason = str(ending.get("reason") or "JobFailed")
    said = words or " ".join(_exits(pods)) or str(ending.get("message") or "")
    if reason == "DeadlineExceeded":
        return JobState(phase="Failed", reason="TimedOut", message=words)
    return JobState(phase="Failed", reason="CheckFailed", message=printable(said, MAX_SAID))


def _ending(job: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return next((each for each in conditions_of(job, "Complete", "Failed") if each.get("status") == "True"), None)


def _container_statuses(pod: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    status = pod.get("status") or {}
    yield from status.get("initContainerStatuses") or ()
    yield from status.get("containerStatuses") or ()


def _reports(pod: Mapping[str, Any]) -> Iterator[tuple[str | None, str, str]]:
    """Result (None: it names none), reason and message of each container that left a termination message."""
    for container in _container_statuses(pod):
        ended = (container.get("state") or {}).get("terminated") or {}
        text = str(ended.get("message") or "")
        if not text.strip():
            continue
        try:
            said = json.loads(text)
        except (ValueError, RecursionError):
            said = None
        if isinstance(said, dict) and said.get("result") in ("Passed", "Failed"):
            yield said["result"], _word(said.get("reason")), printable(str(said.get("message") or ""), MAX_SAID)
        else:
            yield None, "", printable(text, MAX_SAID)


def _word(value: Any) -> str:
    """A reason is one word of letters and digits; what is none is left out."""
    text = str(value or "")
    return text if text.isascii() and text.isalnum() and len(text) <= 63 else ""


def _exits(pods: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for pod in pods:
        status = pod.get("status") or {}
        if status.get("reason") or status.get("message"):
            yield printable(f"its pod ended: {status.get('reason') or ''} {status.get('message') or ''}", MAX_SAID)
        for container in _container_statuses(pod):
            ended = (container.get("state") or {}).get("terminated") or {}
            if ended and ended.get("exitCode") != 0:
                yield (
                    f"container {container.get('name')} ended with exit code {ended.get('exitCode')} "
                    f"({ended.get('reason')})"
                )


def _waits_for(pods: Sequence[Mapping[str, Any]]) -> str:
    """What an unfinished Job waits for, by its newest pod."""
    if not pods:
        return "waits for the Job controller to make its pod"
    pod = max(pods, key=lambda each: str(each["metadata"].get("creationTimestamp") or ""))
    name, status = f"pod {pod['metadata']['name']}", pod.get("status") or {}
    for container in _container_statuses(pod):
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") and waiting["reason"] not in CALM_WAITS:
            return printable(f"{name} waits: {waiting['reason']}: {waiting.get('message') or ''}", MAX_SAID)
    for condition in conditions_of(pod, "PodScheduled"):
        if condition.get("status") == "False":
            return printable(
                f"{name} is not scheduled: {condition.get('message') or condition.get('reason')}", MAX_SAID
            )
    phase = str(status.get("phase") or "Pending")
    return f"{name} is running" if phase == "Running" else f"{name} is {phase.lower()}"
