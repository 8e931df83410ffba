"""Slurm's part of `provisioner.jobs.work.Workloads`: its jobs seen, warned and ended; its nodes drained and resumed.

A drain belongs to whoever set it. Slurm has no compare-and-set, so that each change is preceded by a look, and followed
by another one that says what came of it.

Looks for decisions that can be taken back are shared by all servers of a slurmrestd (`looks`). What waits for one
does so in its own thread (`outbound.lanes`): a slurmrestd that hangs takes no worker from the servers of others.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import structlog

from provisioner.api.errors import NotFound
from provisioner.api.node_pool import NodePool
from provisioner.api.pool_settings import SlurmJobs
from provisioner.api.values import Secret
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import SECRETS
from provisioner.jobs.slurm.acts import end_jobs, require_node, signal_of, update_node, warn_job
from provisioner.jobs.slurm.answers import Dialect, NoAnswer, SlurmFailed
from provisioner.jobs.slurm.jobs import (
    NodeJobs,
    as_jobs,
    describe,
    held_by_kill_wait,
    jobs_of_node,
    warned,
)
from provisioner.jobs.slurm.looks import Failure, Key, SlurmLooks
from provisioner.jobs.slurm.objects import SlurmJob, SlurmNode
from provisioner.jobs.slurm.rest import SlurmAccess, SlurmRest
from provisioner.jobs.work import EvictionBlocked, Job, JobKind, SlurmDrained
from provisioner.outbound.bulkhead import Bulkhead, LanePolicy
from provisioner.outbound.lanes import Lanes

log = structlog.get_logger()

CREDENTIALS_SECONDS: Final = 30.0
"""A Secret is read again so often, and once slurmrestd refuses what it held."""
BACKEND: Final = "slurmrestd"
POLICY: Final = LanePolicy(calls=2, failures=3, first_seconds=5.0, cap_seconds=60.0)


@dataclass(frozen=True)
class SlurmView:
    """What Slurm knows of a server. `unknown` has an entry wherever it could not be asked."""

    jobs: tuple[Job, ...] = ()
    unknown: tuple[str, ...] = ()
    state: str | None = None
    reason: str | None = None
    free: float | None = None
    """Share of the server on which none of its jobs runs; None if that is not known."""


class SlurmWorkloads:
    """Usable from several threads. `namespace`: where the Secrets with credentials are.

    `in_lanes`: what waits for a slurmrestd raises NeedsLane but in its own thread; else each caller waits itself.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        namespace: str,
        now: Callable[[], datetime],
        monotonic: Callable[[], float] = time.monotonic,
        in_lanes: bool = False,
    ) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._now = now
        self._monotonic = monotonic
        self._credentials: dict[str, tuple[float, str, Secret]] = {}  # by Secret: when they were read, user, token
        self._dialects: dict[str, Dialect] = {}
        self._looks = SlurmLooks(now=now, monotonic=monotonic)
        self._lanes = Lanes(BACKEND, self._looks.ahead) if in_lanes else None
        self.bulkhead = Bulkhead(BACKEND, POLICY, clock=monotonic)

    def enter(self, pool: NodePool) -> None:
        """Go on if this thread may wait for the pool's slurmrestd, or nobody would. Raises: NeedsLane."""
        settings = pool.spec.jobs.slurm
        if settings is not None and self._lanes is not None and self.bulkhead.refusal(_backend(settings)) is None:
            self._lanes.enter(settings.url)

    def failure(self, pool: NodePool) -> str | None:
        """Why the pool's slurmrestd is asked less often than it would be; None if it is not."""
        settings = pool.spec.jobs.slurm
        if settings is None or not self._is_given_up(settings):
            return None
        failure = self._looks.failure(_key(settings))
        return (
            failure.describe(given_up=True) if failure is not None else f"slurmrestd at {settings.url} does not answer"
        )

    def look(self, server: str, pool: NodePool, *, fresh: bool = True) -> SlurmView:
        """What Slurm has there; that it does not answer is `unknown`.

        fresh: now; else as lately as `looks` keeps it, and since the last change from here.
        """
        settings = pool.spec.jobs.slurm
        if settings is None:
            return SlurmView()
        try:
            node, jobs = self._now_on(server, settings) if fresh else self._lately_on(server, settings)
        except SlurmFailed as error:
            return SlurmView(unknown=(self.failure(pool) or str(error),))
        found = self._found(node, jobs)
        reason = node.reason if not node.takes_jobs else None
        unknown = (*found.unknown, *(held.message for held in found.ending))
        return SlurmView(as_jobs(found, server, settings.node_name_prefix), unknown, node.state, reason, node.free)

    def warn(self, server: str, pool: NodePool, deadline: datetime) -> int:
        """Signal the jobs there, and note in their administrator's comment that they were told; how many know."""
        settings = pool.spec.jobs.slurm
        if settings is None:
            return 0
        rest, _, found = self._observe(server, settings)
        return sum(
            warned(job, deadline) or warn_job(rest, job, deadline, signal_of(settings))
            for job in found.running
            if not job.is_completing
        )

    def close(self, server: str, pool: NodePool, reason: str) -> SlurmDrained | None:
        """Drain the node with `reason`, unless somebody else has taken it out of use. Raises: SlurmFailed."""
        settings = pool.spec.jobs.slurm
        if settings is None:
            return None
        name = settings.node_name_prefix + server
        rest = self._connect(settings)
        before = require_node(rest.node(name), name)
        if before.takes_jobs:
            with self._acting(settings, name):
                after = update_node(rest, name, "DRAIN", reason)
            if after.takes_jobs:
                raise SlurmFailed(f"Slurm node {name} was not drained, it is {after.state}", after_seconds=5.0)
            log.info("slurm node was drained", node=name, reason=after.reason, state=after.state)
            before = after
        return SlurmDrained(node=name, reason=before.reason, ours=before.is_drained and before.reason == reason)

    def reopen(self, node: str, reason: str, pool: NodePool) -> bool:
        """Resume `node` if it is drained with exactly `reason`. Raises: SlurmFailed."""
        settings = pool.spec.jobs.slurm
        if settings is None:
            return False
        rest = self._connect(settings)
        before = rest.node(node)
        if before is None or not before.is_drained or before.reason != reason:
            return False
        with self._acting(settings, node):
            after = update_node(rest, node, "RESUME", None)
        if after.is_drained and after.reason == reason:
            raise SlurmFailed(f"Slurm node {node} was not resumed, it is {after.state}", after_seconds=5.0)
        log.info("slurm node was resumed", node=node, reason=reason, state=after.state)
        return True

    def evict(self, server: str, pool: NodePool, *, spare: Collection[JobKind]) -> tuple[EvictionBlocked, ...]:
        """Requeue or cancel the jobs there; returns those that are still there, and why. Never raises SlurmFailed."""
        settings = pool.spec.jobs.slurm
        if settings is None:
            return ()
        name = settings.node_name_prefix + server
        try:
            rest, node, found = self._observe(server, settings)
            if "SlurmJob" not in spare:
                with self._acting(settings, name):
                    ended = end_jobs(rest, node, found, self._now())
                if ended:
                    _, _, found = self._observe(server, settings)
        except SlurmFailed as error:
            return (EvictionBlocked(kind="Slurm", name=name, message=self.failure(pool) or str(error)),)
        held = [
            EvictionBlocked(
                kind="SlurmJob",
                name=job.label,
                message=describe(job) + ("; it is not interrupted" * ("SlurmJob" in spare)),
            )
            for job in found.running
        ]
        held += [EvictionBlocked(kind="Slurm", name=name, message=words) for words in found.unknown]
        return (*held, *found.ending)

    def _observe(self, server: str, settings: SlurmJobs) -> tuple[SlurmRest, SlurmNode, NodeJobs]:
        node, jobs = self._now_on(server, settings)
        return self._connect(settings), node, self._found(node, jobs)

    def _now_on(self, server: str, settings: SlurmJobs) -> tuple[SlurmNode, tuple[SlurmJob, ...]]:
        name = settings.node_name_prefix + server
        rest = self._connect(settings)
        # The node first: a job that starts between the two is then seen among the jobs.
        return require_node(rest.node(name), name), rest.jobs()

    def _lately_on(self, server: str, settings: SlurmJobs) -> tuple[SlurmNode, tuple[SlurmJob, ...]]:
        key, name = _key(settings), settings.node_name_prefix + server
        self._looks.want(key, lambda: self._connect(settings))
        found = self._looks.find(key, name)
        if found is None and self.bulkhead.refusal(_backend(settings)) is not None:
            found = self._looks.failure(key)
        if found is None:
            if self._lanes is not None:
                self._lanes.enter(settings.url)
            found = self._looks.refresh(key)
        if isinstance(found, Failure):
            raise SlurmFailed(found.describe(given_up=self._is_given_up(settings)), after_seconds=5.0)
        node, jobs = found.of(name)
        return require_node(node, name), jobs

    def _found(self, node: SlurmNode, jobs: tuple[SlurmJob, ...]) -> NodeJobs:
        return replace(jobs_of_node(node, jobs), ending=held_by_kill_wait(node, jobs, self._now()))

    def _is_given_up(self, settings: SlurmJobs) -> bool:
        return self.bulkhead.breaker(_backend(settings)) != "Closed"

    @contextmanager
    def _acting(self, settings: SlurmJobs, node: str) -> Iterator[None]:
        """What is done inside may change `node`, also if it fails: it is looked at anew."""
        try:
            yield
        finally:
            self._looks.acted(_key(settings), node)

    @contextmanager
    def _call(self, settings: SlurmJobs) -> Iterator[None]:
        """One request. Raises: NoRoom at once; NeedsLane where it would take the time of others."""
        refused = self.bulkhead.refusal(_backend(settings))
        if refused is not None:
            raise refused
        if self._lanes is not None:
            self._lanes.enter(settings.url)
        with self.bulkhead.call(_backend(settings), counts=NoAnswer):
            yield

    def _connect(self, settings: SlurmJobs) -> SlurmRest:
        name = settings.credentials_name
        source = f"{self._namespace}/{name}"
        read = self._credentials.get(name)
        if read is None or self._monotonic() - read[0] >= CREDENTIALS_SECONDS:
            read = self._credentials[name] = (self._monotonic(), *self._read_credentials(name, source))
        access = SlurmAccess(settings.url, read[1], read[2], source, settings.certificate)
        return SlurmRest(
            access,
            self._dialects,
            refused=lambda: self._forget(name),
            around=lambda: self._call(settings),
        )

    def _read_credentials(self, name: str, source: str) -> tuple[str, Secret]:
        self._forget(name)
        try:
            secret = self._cluster.get(SECRETS, name, namespace=self._namespace)
            data = {key: base64.b64decode(value).decode() for key, value in (secret.get("data") or {}).items()}
            return data["username"].strip(), Secret(data["token"].strip())
        except NotFound as error:
            raise _unusable(source, "does not exist") from error
        except (KeyError, binascii.Error, UnicodeDecodeError) as error:
            raise _unusable(source, "lacks username or token") from error

    def _forget(self, name: str) -> None:
        self._credentials.pop(name, None)


def _key(settings: SlurmJobs) -> Key:
    return settings.url, settings.credentials_name, settings.certificate


def _backend(settings: SlurmJobs) -> str:
    """A slurmrestd as one pool asks it: another pool's certificate or token that does not fit is not its failure."""
    fingerprint = hashlib.sha256(settings.certificate.encode()).hexdigest()[:8] if settings.certificate else ""
    return f"{settings.url}#{settings.credentials_name}" + f"-{fingerprint}" * bool(fingerprint)


def _unusable(source: str, why: str) -> SlurmFailed:
    return SlurmFailed(
        f"Secret {source} {why}: create it with the keys username and token (scontrol token username=… lifespan=…)",
        after_seconds=60.0,
    )
