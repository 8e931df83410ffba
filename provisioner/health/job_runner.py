"""The effects of checks' Jobs: makes one, reads how they stand, takes away those that are of no more use."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

import structlog

from provisioner.api.machinery.errors import Conflict, Forbidden, NeedsHuman, NotFound
from provisioner.api.pools.pool_settings import JobCheck
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import JOBS, PODS
from provisioner.cluster.source import Lookup
from provisioner.health.checks.finding import printable
from provisioner.health.decision import CurrentRound, JobOrder
from provisioner.health.jobs.manifest import (
    ATTEMPT_ANNOTATION,
    BOOT_ANNOTATION,
    CHECK_LABEL,
    SERVER_LABEL,
    job_name,
    render_job,
)
from provisioner.health.jobs.outcome import ABSENT, JobState, is_finished, read_job, trim_pod

log = structlog.get_logger(__name__)

CONTROLLER_LABEL: Final = "batch.kubernetes.io/controller-uid"


def labelled_server(body: Mapping[str, Any]) -> tuple[str | None]:
    """The server whose check a Job or pod is, as its label says: a key to index it by."""
    return ((body["metadata"].get("labels") or {}).get(SERVER_LABEL),)


class JobRunner:
    """`jobs` and `pods`: indexes of labelled Jobs and pods, by `labelled_server`. `is_of_checks`: whether checks run in
    a namespace; what is labelled elsewhere is not ours."""

    def __init__(self, cluster: Cluster, *, jobs: Lookup, pods: Lookup, is_of_checks: Callable[[str], bool]) -> None:
        self._cluster = cluster
        self._jobs, self._pods = jobs, pods
        self._is_of_checks = is_of_checks
        self._lock = threading.Lock()
        self._refused: dict[str, dict[str, JobState]] = {}

    def state(self, check: JobCheck, server: str, boot_id: str, attempt: int) -> JobState:
        """How the Job of a round stands. Raises: Retryable while the pods of a finished one cannot be read."""
        name = job_name(check.name, server, boot_id, attempt)
        job = next((each for each in self._jobs.get(server) if _is(each, check.namespace, name)), None)
        if job is None:
            with self._lock:
                return self._refused.get(server, {}).get(name, ABSENT)
        uid = job["metadata"]["uid"]
        if not is_finished(job):
            return read_job(job, [pod for pod in self._pods.get(server) if _owner(pod) == uid])
        selector = f"{CONTROLLER_LABEL}={uid}"
        pods = self._cluster.list(PODS, namespace=check.namespace, label_selector=selector, trim=trim_pod).items
        return read_job(job, pods)

    def start(self, order: JobOrder, server: str) -> bool:
        """Make the Job unless it is there; False if it was refused, which `state` then says. Raises: Retryable."""
        body = render_job(order.check, server, order.boot_id, order.attempt)
        name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
        if any(_is(each, namespace, name) for each in self._jobs.get(server)):
            return True
        try:
            self._cluster.create(JOBS, body)
        except Conflict:
            return True  # made before, and not in the cache yet
        except NeedsHuman as error:
            # Once more in the next round; until then it is as good as failed.
            with self._lock:
                self._refused.setdefault(server, {})[name] = _refusal(error, namespace)
            return False
        log.info("check was started", server=server, check=order.check.name, job=f"{namespace}/{name}")
        return True

    def clean_up(self, server: str, current: CurrentRound | None) -> None:
        """Delete the Jobs of other boots, and unfinished ones of other rounds. One that may not be deleted is left: it
        ends by its deadline. Raises: Retryable."""
        for job in self._jobs.get(server):
            metadata = job["metadata"]
            if not self._is_of_checks(metadata["namespace"]) or not _is_ours(job, server) or _is_of_use(job, current):
                continue
            try:
                self._cluster.delete(JOBS, metadata["name"], namespace=metadata["namespace"], uid=metadata["uid"])
            except Conflict:
                continue  # another one has the name by now
            except NeedsHuman as error:
                log.warning("check was not cleaned up", server=server, error=str(error))
                continue
            log.info("check was cleaned up", server=server, job=f"{metadata['namespace']}/{metadata['name']}")
        if current is None or current.attempt is None:
            with self._lock:
                self._refused.pop(server, None)


def _refusal(error: NeedsHuman, namespace: str) -> JobState:
    """Who may not make Jobs in a namespace is not told whether it exists."""
    reason, words = "JobRefused", str(error)
    if isinstance(error, NotFound):
        reason = "NamespaceMissing"
    elif isinstance(error, Forbidden):
        reason = "JobForbidden"
        words = (
            f"namespace '{namespace}' does not exist, or the controller may not make Jobs in it: make it, and a Role "
            f"provisioner-checks with a RoleBinding there (docs/verification.md); {words}"
        )
    return JobState(phase="Refused", reason=reason, message=printable(words, 480))


def _is_ours(job: Mapping[str, Any], server: str) -> bool:
    """Whether its name is the one that we would give it; a label alone could be anybody's."""
    metadata = job["metadata"]
    labels, said = metadata.get("labels") or {}, metadata.get("annotations") or {}
    if not {BOOT_ANNOTATION, ATTEMPT_ANNOTATION} <= said.keys() or CHECK_LABEL not in labels:
        return False
    wanted = job_name(labels[CHECK_LABEL], server, said[BOOT_ANNOTATION], said[ATTEMPT_ANNOTATION])
    return bool(metadata["name"] == wanted)


def _is_of_use(job: Mapping[str, Any], current: CurrentRound | None) -> bool:
    said = job["metadata"]["annotations"]
    if job["metadata"].get("deletionTimestamp"):
        return True  # it goes already
    if current is None or said[BOOT_ANNOTATION] != current.boot_id:
        return False
    return is_finished(job) or said[ATTEMPT_ANNOTATION] == str(current.attempt)


def _is(job: Mapping[str, Any], namespace: str, name: str) -> bool:
    return bool(job["metadata"]["namespace"] == namespace and job["metadata"]["name"] == name)


def _owner(pod: Mapping[str, Any]) -> str | None:
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((str(owner["uid"]) for owner in owners if owner.get("controller")), None)
