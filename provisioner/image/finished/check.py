"""Whether an image is whole and signed: what stage-1 checks before it boots one, done before anything is published."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from provisioner.api.machinery.errors import NotFound, Refused
from provisioner.api.machinery.values import Sha256Digest
from provisioner.image.finished import store
from provisioner.image.finished.manifest import MANIFEST, SIGNATURE, Manifest, decode, digest_of
from provisioner.image.finished.sign import SignatureVerifier


@dataclass(frozen=True)
class Checked:
    """An image that was found good."""

    digest: Sha256Digest
    manifest: Manifest
    signature: str


def check_image(folder: Path, key: SignatureVerifier, *, contents: bool = True) -> Checked:
    """Check signature, folder name, sizes and (unless `contents` is false) digests of all parts, documents too.

    Raises: NotFound if a file is missing; Refused with what was observed and expected.
    """
    text = _read(folder / MANIFEST)
    if not (folder / SIGNATURE).exists():
        raise Refused(
            f"image {digest_of(text)} is not signed: {folder / SIGNATURE} does not exist",
            hint="where the key is: provisioner image sign MANIFEST --key image.sec; copy manifest.sig into the folder",
        )
    signature = _read(folder / SIGNATURE).decode(errors="replace")
    checked = check_manifest(folder, text, signature, key)
    manifest, digest = checked.manifest, checked.digest
    for part in manifest.parts():
        file, expected = store.part_file(folder, manifest, part), part.file
        if not file.is_file():
            raise NotFound(f"image {digest} lacks {part.name}: {file}", hint="publish the image again from its build")
        size = file.stat().st_size
        if size != expected.size_bytes:
            raise Refused(
                f"{file} has {size} bytes, the manifest says {expected.size_bytes}", hint="publish the image again"
            )
        if contents and (observed := store.measure(file).sha256) != expected.sha256:
            raise Refused(
                f"{file} is altered: its sha256 is {observed}, the manifest says {expected.sha256}",
                hint="publish the image again from its build",
            )
    return checked


def check_manifest(folder: Path, text: bytes, signature: str, key: SignatureVerifier) -> Checked:
    """Check the signature, and that `folder` is named after the manifest, if after any. Raises: Refused."""
    key.verify(text, signature)
    manifest, digest = decode(text), digest_of(text)
    named = store.digest_of_folder(folder)
    if named is not None and named != digest:
        raise Refused(
            f"image {folder} holds the manifest {digest}", hint=f"name its folder {store.folder_name(digest)}"
        )
    return Checked(digest, manifest, signature)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except FileNotFoundError as error:
        raise NotFound(f"{file} does not exist", hint="name the folder of a built image: sha256-…") from error
