"""What `why` tells of a server's part in its pool's rollout. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from provisioner.api.machinery.meta import parse_time
from provisioner.api.machinery.wording import ago
from provisioner.cli.why.subject import ServerSubject
from provisioner.rollout.standing import REQUESTOR, judge_standing, target_of
from provisioner.rules.nodes import read_node
from provisioner.rules.requests import entry_of


def rollout_notes(subject: ServerSubject) -> Iterable[str]:
    """What failed with it, and what it waits for where its Maintenance does not say so."""
    failure, pool = subject.server.status.upgrade_failure, subject.pool
    keeps_its_place = failure is not None and pool is not None and failure.image_ref == pool.spec.image_ref
    return [*_failure(subject), *(() if keeps_its_place else _wait(subject))]


def _failure(subject: ServerSubject) -> Iterable[str]:
    failure, pool = subject.server.status.upgrade_failure, subject.pool
    if failure is None:
        return
    record = f" (Maintenance {failure.maintenance_ref})" if failure.maintenance_ref else ""
    when = ago(parse_time(failure.time), subject.now)
    yield f"failed with Image {failure.image_ref}, {when} ago{record}: {failure.message}"
    if pool is not None and pool.spec.image_ref == failure.image_ref:
        command = "kubectl provision rollout"
        yield (
            f"it keeps its place until a person decides: go back: {command} undo {pool.name}; or, once the cause is "
            f"gone, try again: {command} resume {pool.name}"
        )


def _wait(subject: ServerSubject) -> Iterable[str]:
    pool, server = subject.pool, subject.server
    rollout = pool.status.rollout if pool is not None else None
    if pool is None or rollout is None:
        return
    if rollout.image_ref != pool.spec.image_ref or server.status.image_ref in (None, pool.spec.image_ref):
        return
    does = "moves to" if rollout.completed_time is None else "runs"
    moves = f"NodePool {pool.name} {does} Image {pool.spec.image_ref}"
    target, sign = target_of(pool, subject.image), read_node(subject.node)
    now = subject.now.timestamp()
    left = judge_standing(server, sign, subject.maintenances, target, retried=None, now=now).excluded
    if left is not None:
        yield f"{moves} without this server: {left.words}"
    elif rollout.completed_time is None and not _says_it_waits(subject) and rollout.message:
        yield f"{moves}: {rollout.message}"


def _says_it_waits(subject: ServerSubject) -> bool:
    """Whether the Maintenance that holds it tells of the rollout, or is its turn in it."""
    current = subject.current
    if current is None:
        return False
    entry = entry_of(current, REQUESTOR)
    return (entry is not None and entry.turn in (None, "Granted")) or any(
        blocker.kind == "Rollout" for blocker in current.status.blockers
    )
