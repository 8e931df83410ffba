"""Garbage collection: what `decide` says goes, in an order in which the end of any step leaves nothing wrong.

    a mark in the store        this image's object is being deleted
    the Image object           only as it was read, and if still nobody names it: from here on nobody can boot it anew
    its manifest in a registry where one was named
    its folder                 renamed first: a folder of that name is whole
    the mark
    parts and leftovers        that no manifest in the store names, once all of them can be read

A run that is ended anywhere is gone on with by the next one. Nothing begins before all of the cluster was read.
"""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol

from provisioner.api import Image
from provisioner.api.errors import Conflict, NeedsHuman
from provisioner.api.values import Sha256Digest
from provisioner.cluster.resources import ResourceType, of
from provisioner.image.finished.store import digest_of_folder, folder_name
from provisioner.image.registry.artifact import tag_of
from provisioner.image.registry.client import Registry
from provisioner.image.registry.failures import MethodNotAllowed
from provisioner.image.retention.decide import Fate, RetentionRules, decide_retention
from provisioner.image.retention.exclusive import alone
from provisioner.image.retention.fleet import NAMED_BY_PEOPLE, Fleet, Lists, read_fleet, read_uses
from provisioner.image.retention.survey import COLLECTING, Survey, old_leftovers, survey_store, unneeded_parts

PREFLIGHT_SECONDS: Final = 10.0
"""What people have written is read again before a deletion, unless that was done so short ago."""
LOCK_SECONDS: Final = 60.0


class Cluster(Lists, Protocol):
    """What collection needs of `provisioner.cluster.client.Cluster`."""

    def delete(self, type: ResourceType, name: str, *, uid: str, resource_version: str) -> bool: ...  # noqa: A002


@dataclass(frozen=True)
class Plan:
    """What would become of everything, and of how many bytes of the store."""

    fates: tuple[Fate, ...]
    survey: Survey
    freed_bytes: int
    notes: tuple[str, ...]

    @property
    def going(self) -> tuple[Fate, ...]:
        return tuple(fate for fate in self.fates if fate.goes)


@dataclass
class Outcome:
    """What was done. `left`: what should have gone and stays, in words."""

    images: list[str] = field(default_factory=list)
    folders: int = 0
    parts: int = 0
    freed_bytes: int = 0
    left: list[str] = field(default_factory=list)


def make_plan(cluster: Lists, store: Path, rules: RetentionRules, now: datetime) -> Plan:
    """Reads alone. Raises: the errors of the cluster; NotFound; NeedsHuman if this cluster knows none of the images."""
    fleet, survey = read_fleet(cluster), survey_store(store)
    _refuse_another_cluster(fleet, survey, store)
    fates = decide_retention(fleet.images, survey.images, fleet.uses, rules, now, begun=_marked(store))
    going = frozenset(fate.digest for fate in fates if fate.goes)
    notes = [f"no part is deleted, as a manifest cannot be read: {words}" for words in survey.unreadable]
    freed = survey.freed_bytes(going) + sum(
        file.size_bytes
        for file in (*unneeded_parts(survey, now, rules.grace), *old_leftovers(survey, now, rules.grace))
    )
    return Plan(fates, survey, freed, tuple(notes))


class Collection_:  # noqa: N801
    pass


def collect(
    cluster: Cluster,
    store: Path,
    rules: RetentionRules,
    now: Callable[[], datetime],
    *,
    registry: Registry | None = None,
    show: Callable[[Plan], None] = lambda plan: None,
    clock: Callable[[], float] = time.monotonic,
    lock_seconds: float = LOCK_SECONDS,
) -> Outcome:
    """Delete what may go. `show` is given the plan before anything is done.

    Raises: the errors of the cluster and of the registry, whatever was not done by then is left for the next run;
    Retryable if the store is in use.
    """
    with alone(store, lock_seconds):
        plan = make_plan(cluster, store, rules, now())
        show(plan)
        run = _Run(cluster, store, registry, clock)
        for fate in plan.going:
            run.remove(fate)
        run.sweep(rules, now())
        return run.outcome


class _Run:
    """One collection, with the store's lock held."""

    def __init__(
        self, cluster: Cluster, store: Path, registry: Registry | None, clock: Callable[[], float]
    ) -> None:
        self._cluster, self._store, self._registry, self._clock = cluster, store, registry, clock
        self._wanted: Collection[str] = ()
        self._looked: float | None = None
        self.outcome = Outcome()

    def remove(self, fate: Fate) -> None:
        if fate.image is not None and not self._delete_object(fate):
            return
        if self._is_marked(fate.digest) and self._registry is not None:
            self._delete_in_registry(self._registry, fate)
        self._delete_folder(fate.digest)
        self._unmark(fate.digest)

    def _delete_object(self, fate: Fate) -> bool:
        image = fate.image
        assert image is not None  # noqa: S101 - the caller has looked
        if not self._wanted_by_nobody(image.name, image.digest):
            self.outcome.left.append(f"{image.name}: it is named by somebody since it was looked at")
            return False
        self._mark(image.digest)
        try:
            self._cluster.delete(of(Image), image.name, uid=image.uid, resource_version=image.resource_version)
        except Conflict:
            self._unmark(image.digest)
            self.outcome.left.append(f"{image.name}: it was written to since it was looked at; run this again")
            return False
        self.outcome.images.append(image.name)
        return True

    def _wanted_by_nobody(self, *keys: str) -> bool:
        if self._looked is None or self._clock() - self._looked > PREFLIGHT_SECONDS:
            self._looked = self._clock()
            self._wanted = read_uses(self._cluster, *NAMED_BY_PEOPLE)
        return not any(key in self._wanted for key in keys)

    def _delete_in_registry(self, registry: Registry, fate: Fate) -> None:
        try:
            found = registry.find_manifest(tag_of(fate.digest))
            if found is not None:
                registry.delete_manifest(found.digest)
        except MethodNotAllowed as error:
            self.outcome.left.append(f"{fate.label} in {registry}: {error}")

    def _delete_folder(self, digest: Sha256Digest) -> None:
        folder = self._store / folder_name(digest)
        if folder.is_symlink():
            self.outcome.left.append(f"{folder}: it is a link, which is not ours")
        elif folder.is_dir():
            going = self._store / f".{folder.name}.{uuid.uuid4().hex}"
            folder.rename(going)
            self.outcome.freed_bytes += sum(file.lstat().st_size for file in going.iterdir())
            shutil.rmtree(going)
            self.outcome.folders += 1

    def sweep(self, rules: RetentionRules, now: datetime) -> None:
        """Parts that nothing needs, by what lies in the store after all else is gone."""
        survey = survey_store(self._store)
        unneeded = unneeded_parts(survey, now, rules.grace)
        for file in unneeded:
            file.path.unlink(missing_ok=True)
        self.outcome.parts = len(unneeded)
        leftovers = old_leftovers(survey, now, rules.grace)
        for file in leftovers:
            if file.path.is_dir() and not file.path.is_symlink():
                shutil.rmtree(file.path, ignore_errors=True)
            else:
                file.path.unlink(missing_ok=True)
        self.outcome.freed_bytes += sum(file.size_bytes for file in (*unneeded, *leftovers))
