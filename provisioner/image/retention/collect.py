"""Garbage collection: what `decide` says goes, in an order in which the end of any step leaves nothing wrong.

    a mark in the store        this image's object is being deleted (`marks`)
    the Image object           only as it was read, and if still nobody names it: from here on nobody can boot it anew
    its manifest               in the registry, where one was named
    its folder                 renamed first: a folder of that name is whole
    the mark
    parts and leftovers        that no manifest in the store names, once all of them can be read (`survey`)

A run that is ended anywhere is gone on with by the next one. Nothing begins before all of the cluster was read.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol

from provisioner.api import Image
from provisioner.api.machinery.errors import Conflict, NotFound, Refused, Retryable
from provisioner.api.machinery.values import Sha256Digest
from provisioner.api.machinery.wording import quantity
from provisioner.cluster.resources import ResourceType, of
from provisioner.image.finished.store import LOCK, digest_of_folder, folder_name, sync_folder
from provisioner.image.registry.artifact import tag_of
from provisioner.image.registry.client import Registry
from provisioner.image.registry.failures import MethodNotAllowed
from provisioner.image.retention.decide import Fate, PublishedImage, RetentionRules, decide_retention
from provisioner.image.retention.fleet import NAMED_BY_PEOPLE, ImageUses, Lists, read_fleet, read_uses
from provisioner.image.retention.survey import Survey, old_leftovers, survey_store, unneeded_parts

# Marks in a store: images of which the object is being deleted. Written before the act, so that the next run goes on.
#
# <store>/.collecting/sha256-<hex> its text: the registry that the image was to be deleted from, if any

COLLECTING: Final = ".collecting"
_MAX_BYTES: Final = 1024


def read_marks(store: Path) -> dict[Sha256Digest, str]:
    """By image, the registry; empty without one."""
    folder = store / COLLECTING
    found: dict[Sha256Digest, str] = {}
    for file in sorted(folder.iterdir()) if folder.is_dir() else ():
        digest = digest_of_folder(file)
        if digest is not None:
            with file.open("rb") as stream:
                found[digest] = stream.read(_MAX_BYTES).decode(errors="replace").strip()
    return found


def write_mark(store: Path, digest: Sha256Digest, registry: str) -> None:
    """It is on the disk when this returns."""
    folder = store / COLLECTING
    folder.mkdir(mode=0o755, exist_ok=True)
    with (folder / folder_name(digest)).open("w") as stream:
        stream.write(f"{registry}\n")
        stream.flush()
        os.fsync(stream.fileno())
    sync_folder(folder)
    sync_folder(store)


def clear_mark(store: Path, digest: Sha256Digest) -> None:
    (store / COLLECTING / folder_name(digest)).unlink(missing_ok=True)


# The store for oneself alone: while no publication and no pull is under way, and none can begin.

_POLL_SECONDS: Final = 0.1


@contextmanager
def alone(store: Path, wait_seconds: float) -> Iterator[None]:
    """Hold the lock that all who write share. Raises: Retryable if it is not to be had in time; NotFound."""
    if not store.is_dir():
        raise NotFound(f"image store {store} does not exist", hint="name the folder that provisioner boot serves")
    ends = time.monotonic() + wait_seconds
    with (store / LOCK).open("a") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                if time.monotonic() >= ends:
                    raise Retryable(
                        f"image store {store} is in use: an image is published or pulled for more than "
                        f"{wait_seconds:g} s; nothing was deleted, run it again later",
                        after_seconds=60,
                    ) from error
                time.sleep(_POLL_SECONDS)
            else:
                break
        yield


PREFLIGHT_SECONDS: Final = 10.0
"""What people have written is read again before a deletion, unless that was done so short ago."""
LOCK_SECONDS: Final = 60.0


class RetentionCluster(Lists, Protocol):
    """What collection needs of `provisioner.cluster.client.Cluster`."""

    def delete(self, type: ResourceType, name: str, *, uid: str, resource_version: str) -> bool: ...  # noqa: A002


@dataclass(frozen=True)
class CollectionPlan:
    """What becomes of every image, and how many bytes of the store that frees. `notes`: what else is to be said."""

    fates: tuple[Fate, ...]
    marks: Mapping[Sha256Digest, str]
    freed_bytes: int
    notes: tuple[str, ...]


def make_plan(cluster: Lists, store: Path, rules: RetentionRules, now: datetime) -> CollectionPlan:
    """Reads alone. Raises: the errors of the cluster; NotFound; Refused if this cluster knows none of the images."""
    fleet, survey, marks = read_fleet(cluster), survey_store(store), read_marks(store)
    _refuse_another_cluster(fleet, survey, marks, store)
    fates = decide_retention(fleet.images, survey.images, fleet.uses, rules, now, begun=marks)
    going = frozenset(fate.digest for fate in fates if fate.goes)
    notes = tuple(f"no part is deleted, as a manifest cannot be read: {words}" for words in survey.unreadable)
    swept = (*unneeded_parts(survey, now, rules.grace), *old_leftovers(survey, now, rules.grace))
    freed = survey.freed_bytes(going) + sum(file.size_bytes for file in swept)
    return CollectionPlan(fates, marks, freed, notes)


def collect(
    cluster: RetentionCluster,
    store: Path,
    rules: RetentionRules,
    now: Callable[[], datetime],
    *,
    registry: Registry | None = None,
    show: Callable[[CollectionPlan], None] = lambda plan: None,
    tell: Callable[[str], None] = lambda line: None,
    clock: Callable[[], float] = time.monotonic,
    lock_seconds: float = LOCK_SECONDS,
) -> None:
    """Delete what may go. `show` is given the plan before anything is done; `tell` each deletion once it is done.

    Raises: the errors of the cluster and of the registry: what was not done by then is left for the next run;
    Retryable if the store is in use.
    """
    with alone(store, lock_seconds):
        plan = make_plan(cluster, store, rules, now())
        show(plan)
        run = _Run(cluster, store, registry, tell, clock)
        for fate in plan.fates:
            if fate.goes:
                run.remove(fate, plan.marks.get(fate.digest))
            elif fate.image is not None and fate.digest in plan.marks:
                clear_mark(store, fate.digest)
        sync_folder(store)  # else a folder could come back after a loss of power, without its parts
        _sweep(store, rules, now(), tell)


class _Run:
    """The images of one collection, with the store's lock held."""

    def __init__(
        self,
        cluster: RetentionCluster,
        store: Path,
        registry: Registry | None,
        tell: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self._cluster, self._store, self._registry = cluster, store, registry
        self._tell, self._clock = tell, clock
        self._wanted: Collection[str] = ()
        self._looked: float | None = None

    def remove(self, fate: Fate, marked: str | None) -> None:
        """`marked`: the registry that an earlier run, which deleted the object, has left to do; None without one."""
        if fate.image is not None:
            marked = "" if self._registry is None else str(self._registry)
            if not self._delete_object(fate.image, marked):
                return
        # Without a mark no object was deleted here: others may use what the registry has.
        if marked and not self._delete_in_registry(fate, marked):
            return
        self._delete_folder(fate.digest)
        clear_mark(self._store, fate.digest)

    def _delete_object(self, image: PublishedImage, registry: str) -> bool:
        if self._is_wanted(image.name, image.digest):
            self._tell(f"Image {image.name} stays: somebody has named it since it was looked at")
            return False
        write_mark(self._store, image.digest, registry)
        try:
            self._cluster.delete(of(Image), image.name, uid=image.uid, resource_version=image.resource_version)
        except Conflict:
            clear_mark(self._store, image.digest)
            self._tell(f"Image {image.name} stays: it was written to since it was looked at; run this again")
            return False
        self._tell(f"Image {image.name} deleted")
        return True

    def _is_wanted(self, *keys: str) -> bool:
        if self._looked is None or self._clock() - self._looked > PREFLIGHT_SECONDS:
            self._looked = self._clock()
            self._wanted = read_uses(self._cluster, *NAMED_BY_PEOPLE)
        return any(key in self._wanted for key in keys)

    def _delete_in_registry(self, fate: Fate, marked: str) -> bool:
        registry = self._registry
        if registry is None or str(registry) != marked:
            self._tell(f"image {fate.label} is left in {marked}: run this again with --registry {marked}")
            return False
        try:
            found = registry.find_manifest(tag_of(fate.digest))
            if found is not None and registry.delete_manifest(found.digest):
                self._tell(f"image {fate.label} deleted in {registry}")
        except MethodNotAllowed as error:
            self._tell(f"image {fate.label} stays in {registry}, which deletes nothing: {error}")
        return True

    def _delete_folder(self, digest: Sha256Digest) -> None:
        folder = self._store / folder_name(digest)
        if folder.is_symlink():
            self._tell(f"{folder} stays: it is a link, which is not ours")
        elif folder.is_dir():
            going = self._store / f".{folder.name}.{uuid.uuid4().hex}"
            folder.rename(going)
            shutil.rmtree(going)
            self._tell(f"folder {folder} deleted")


def _sweep(store: Path, rules: RetentionRules, now: datetime, tell: Callable[[str], None]) -> None:
    """Parts that nothing needs, by what lies in the store after all else is gone."""
    survey = survey_store(store)
    unneeded, leftovers = unneeded_parts(survey, now, rules.grace), old_leftovers(survey, now, rules.grace)
    for file in (*unneeded, *leftovers):
        if file.path.is_dir() and not file.path.is_symlink():
            shutil.rmtree(file.path)
        else:
            file.path.unlink(missing_ok=True)
    if unneeded or leftovers:
        freed = sum(file.size_bytes for file in (*unneeded, *leftovers))
        files = f"{quantity(len(unneeded), 'part')} and {quantity(len(leftovers), 'leftover')}"
        tell(f"{files} deleted: {freed / 1e6:.1f} MB")


def _refuse_another_cluster(fleet: ImageUses, survey: Survey, marks: Mapping[Sha256Digest, str], store: Path) -> None:
    """To a cluster that knows none of the images, all of them would seem to be nobody's."""
    stored = {image.digest for image in survey.images if image.digest not in marks}
    if stored and stored.isdisjoint(image.digest for image in fleet.images):
        raise Refused(
            f"this cluster has an Image for none of the {quantity(len(stored), 'image')} in {store}",
            hint="is it the right cluster (--kubeconfig), and the right store? If they are all unwanted, delete the "
            "folders by hand",
        )
