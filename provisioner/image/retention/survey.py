"""What lies in a store, looked at and not touched; and which parts of it no image there needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from provisioner.api.machinery.errors import NotFound, Refused
from provisioner.api.machinery.values import Sha256Digest
from provisioner.image.finished.manifest import MANIFEST, MAX_BYTES, PARTS, decode, digest_of
from provisioner.image.finished.store import digest_of_folder
from provisioner.image.registry.pull import PULLING
from provisioner.image.retention.decide import StoredImage


@dataclass(frozen=True)
class StoredFile:
    """A file, or a folder, of the store."""

    path: Path
    size_bytes: int
    written: datetime


@dataclass(frozen=True, kw_only=True)
class Survey:
    """parts: by their SHA-256. needed: by image, the parts that its manifest names. sizes: of images of format 1, the
    bytes in their folder. leftovers: what writers left that were ended. unreadable: what has a name of an image and no
    manifest that can be read, in words."""

    images: tuple[StoredImage, ...]
    parts: dict[str, StoredFile]
    needed: dict[Sha256Digest, frozenset[str]]
    sizes: dict[Sha256Digest, int]
    leftovers: tuple[StoredFile, ...]
    unreadable: tuple[str, ...]

    def freed_bytes(self, going: frozenset[Sha256Digest]) -> int:
        """What the going of these images gives back."""
        kept = {part for digest, parts in self.needed.items() if digest not in going for part in parts}
        gone = {part for digest, parts in self.needed.items() if digest in going for part in parts} - kept
        parts = sum(self.parts[part].size_bytes for part in gone if part in self.parts)
        return parts + sum(size for digest, size in self.sizes.items() if digest in going)


def survey_store(store: Path) -> Survey:
    """Raises: NotFound without a store; OSError if it cannot be read."""
    if not store.is_dir():
        raise NotFound(f"image store {store} does not exist", hint="name the folder that provisioner boot serves")
    images, unreadable = list[StoredImage](), list[str]()
    needed: dict[Sha256Digest, frozenset[str]] = {}
    sizes: dict[Sha256Digest, int] = {}
    for folder in sorted(store.iterdir()):
        digest = digest_of_folder(folder)
        if digest is None:
            continue
        try:
            images.append(StoredImage(digest, _written(folder)))
            with (folder / MANIFEST).open("rb") as stream:
                text = stream.read(MAX_BYTES + 1)
            if digest_of(text) != digest:
                raise Refused(f"it is the manifest of {digest_of(text)}", hint="copy the image again")
            manifest = decode(text)
        except (OSError, Refused) as error:
            unreadable.append(f"{folder / MANIFEST}: {error}")
            continue
        named = {file.sha256 for file in manifest.files().values()} if manifest.format == 2 else set[str]()
        needed[digest] = frozenset(named)
        sizes[digest] = 0 if manifest.format == 2 else sum(file.size_bytes for file in manifest.files().values())
    return Survey(
        images=tuple(images),
        parts=dict(_parts(store)),
        needed=needed,
        sizes=sizes,
        leftovers=tuple(_leftovers(store)),
        unreadable=tuple(unreadable),
    )


def unneeded_parts(survey: Survey, now: datetime, grace: timedelta) -> tuple[StoredFile, ...]:
    """Parts that no manifest in the store names, and that came longer than `grace` ago.

    None as long as a manifest cannot be read: what it names is not known.
    """
    if survey.unreadable:
        return ()
    named = frozenset[str]().union(*survey.needed.values())
    return tuple(file for part, file in survey.parts.items() if part not in named and now - file.written >= grace)


def old_leftovers(survey: Survey, now: datetime, grace: timedelta) -> tuple[StoredFile, ...]:
    """Leftovers that nobody will go on with."""
    return tuple(file for file in survey.leftovers if now - file.written >= grace)


def _parts(store: Path) -> Iterator[tuple[str, StoredFile]]:
    for file in _listed(store / PARTS):
        digest = digest_of_folder(file)
        found = _look(file) if digest is not None else None
        if digest is not None and found is not None:
            yield digest.removeprefix("sha256:"), found


def _leftovers(store: Path) -> Iterator[StoredFile]:
    """Only names that our own writers give."""
    places = ((store, ".sha256-"), (store / PARTS, ".sha256-"), (store / PULLING, ("sha256-", "image-")))
    for folder, prefixes in places:
        for file in _listed(folder):
            if file.name.startswith(prefixes) and (found := _look(file)) is not None:
                yield found


def _listed(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _look(file: Path) -> StoredFile | None:
    """None if it is gone meanwhile: without the store's lock, writers come and go."""
    try:
        found = file.lstat()
    except FileNotFoundError:
        return None
    return StoredFile(file, found.st_size, datetime.fromtimestamp(found.st_mtime, UTC))


def _written(file: Path) -> datetime:
    return datetime.fromtimestamp(file.lstat().st_mtime, UTC)
