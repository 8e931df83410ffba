"""Pull an image into a store: by its digest, checked before anything of it appears there.

    <store>/.pulling/sha256-<hex>      a part on its way; what a pull that was broken off left is gone on with

The image's folder appears last, as in every store: see `provisioner.image.finished.store`.
"""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from provisioner.api.machinery.errors import NeedsHuman, NotFound, Refused
from provisioner.api.machinery.values import Sha256Digest
from provisioner.image.finished import store as stores
from provisioner.image.finished.manifest import MAX_BYTES, ImagePart, Manifest, decode, digest_of
from provisioner.image.finished.sign import SignatureVerifier
from provisioner.image.registry.artifact import MAX_SIGNATURE_BYTES, PartReport, decode_artifact, tag_of
from provisioner.image.registry.client import Registry

PULLING: Final = ".pulling"
SPARE_BYTES: Final = 64 << 20
"""What a pull leaves free: the boot host writes its own files on that disk, too."""


@dataclass(frozen=True)
class Pulled:
    """Where the image lies. `fetched_bytes`: of parts that the store lacked."""

    folder: Path
    fetched_bytes: int


def pull_image(
    digest: Sha256Digest,
    registry: Registry,
    store: Path,
    key: SignatureVerifier,
    *,
    free_bytes: Callable[[Path], int] = lambda folder: shutil.disk_usage(folder).free,
    report: PartReport = lambda name, size, there: None,
) -> Pulled:
    """Pull the image `digest` into `store`: what is there of it already is not fetched.

    Of two pulls at a time that want the same part one fetches it. Garbage collection waits until they are done.
    Raises: NotFound if the registry has no such image; Refused for one that is not signed by `key` or of which a part
    is not what its manifest says; NeedsHuman without room; Retryable.
    """
    text, signature, manifest = fetch_manifest(digest, registry, key)
    folder, fetched = store / stores.folder_name(digest), 0
    with stores.locked(store), _alone(store, f"image-{digest.removeprefix('sha256:')}"):
        lacking = [part for part in _once_each(manifest) if not _is_there(folder, manifest, part)]
        _need_room(store, digest, lacking, free_bytes)
        wanted = {part.path for part in lacking}
        files: dict[str, Path] = {}
        for part in manifest.parts():
            final = stores.part_file(folder, manifest, part)
            if part.path not in wanted:
                files[part.name] = final
                report(part.name, part.file.size_bytes, True)
                continue
            partial = _partial(store, part)
            with _alone(store, partial.name):
                if not _is_there(folder, manifest, part):  # else it came while we waited for our turn
                    registry.fetch_blob(Sha256Digest(f"sha256:{part.file.sha256}"), part.file.size_bytes, partial)
                    fetched += part.file.size_bytes
                    files[part.name] = _keep(store, manifest, part, partial)
                else:
                    files[part.name] = final
            report(part.name, part.file.size_bytes, False)
        if manifest.format == 1 and folder.is_dir():
            _repair(folder, manifest, files)
        stores.put_image(store, text, signature, files)
        for part in manifest.parts():
            _partial(store, part).unlink(missing_ok=True)
    return Pulled(folder, fetched)


def fetch_manifest(digest: Sha256Digest, registry: Registry, key: SignatureVerifier) -> tuple[bytes, str, Manifest]:
    """The image's manifest and its signature, checked. Raises: NotFound; Refused."""
    found = registry.find_manifest(tag_of(digest))
    if found is None:
        raise NotFound(f"{registry} has no image {digest}", hint=f"push it: provisioner image push FOLDER {registry}")
    artifact = decode_artifact(found.body, digest)
    text = registry.read_blob(digest, MAX_BYTES)
    signature = registry.read_blob(artifact.signature, MAX_SIGNATURE_BYTES).decode(errors="replace")
    key.verify(text, signature)
    if digest_of(text) != digest:  # read_blob has looked; what is believed of a manifest hangs on it
        raise Refused(f"{registry} gave another manifest than {digest}", hint="push the image again")
    return text, signature, decode(text)


def _once_each(manifest: Manifest) -> list[ImagePart]:
    return list({part.path: part for part in manifest.parts()}.values())


def _is_there(folder: Path, manifest: Manifest, part: ImagePart) -> bool:
    """Whole: one that the disk has spoiled is fetched again."""
    file = stores.part_file(folder, manifest, part)
    try:
        return file.stat().st_size == part.file.size_bytes and stores.measure(file) == part.file
    except FileNotFoundError:
        return False


def _need_room(store: Path, digest: Sha256Digest, lacking: list[ImagePart], free_bytes: Callable[[Path], int]) -> None:
    if not lacking:
        return
    # A part is copied into its place once it is whole, the largest of them beside itself.
    sizes = [part.file.size_bytes for part in lacking]
    needed, free = sum(sizes) + max(sizes) + SPARE_BYTES, free_bytes(store)
    if free < needed:
        raise NeedsHuman(
            f"image {digest} needs {needed / 1e6:.0f} MB free in {store} while it is pulled, {free / 1e6:.0f} MB are",
            hint="make room: provisioner image gc --store … --dry-run says what may go",
        )


def _keep(store: Path, manifest: Manifest, part: ImagePart, partial: Path) -> Path:
    """A part of format 2 goes where it belongs at once; one of format 1 waits for its folder."""
    if manifest.format == 1:
        return partial
    kept = stores.put_part(store, partial, part.file)
    partial.unlink()
    return kept


def _repair(folder: Path, manifest: Manifest, files: dict[str, Path]) -> None:
    """Files of a folder that was whole once, and lost some since: each is there with one rename."""
    for part in manifest.parts():
        final = stores.part_file(folder, manifest, part)
        if files[part.name] != final:
            files[part.name].chmod(0o644)
            files[part.name] = files[part.name].rename(final)


def _partial(store: Path, part: ImagePart) -> Path:
    return store / PULLING / f"sha256-{part.file.sha256}"


@contextmanager
def _alone(store: Path, name: str) -> Iterator[None]:
    """One pull at a time of what has this name; garbage collection, which runs while nobody pulls, clears the locks."""
    folder = store / PULLING
    folder.mkdir(mode=0o700, exist_ok=True)
    with (folder / f"{name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
