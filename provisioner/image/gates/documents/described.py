"""An image that is to be compared: found by name, digest or folder, and believed as far as its signature goes."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Final

from provisioner.api.machinery.errors import NotFound, Refused
from provisioner.image.finished import store
from provisioner.image.finished.check import check_manifest
from provisioner.image.finished.manifest import MANIFEST, SIGNATURE, FileDigest, Manifest
from provisioner.image.finished.publish import image_name
from provisioner.image.finished.sign import PublicKey
from provisioner.image.gates.documents.difference import Described
from provisioner.image.gates.documents.sizes import decode_sizes

_DIGITS: Final = re.compile(r"(?:sha256[:-]|.*-)?([0-9a-f]{12,64})")
_MAX_DOCUMENT: Final = 64 << 20
_REMEDY: Final = "name the folder of an image, or give --store and an Image's name or digest"


def find_image(named: str, images: Path | None) -> Path:
    """The folder of an image: `named` is one, or an Image's name (`gpu-node-9f3c01234567`) or digest in the store.

    Raises: NotFound if there is none; Refused if two have the same first digits.
    """
    if (Path(named) / MANIFEST).is_file():
        return Path(named)
    match = _DIGITS.fullmatch(named)
    if images is None or match is None:
        raise NotFound(f"image {named!r} does not exist: it is no folder with a manifest", hint=_REMEDY)
    found = sorted(images.glob(f"sha256-{match[1]}*"))
    if not found:
        raise NotFound(f"image {named!r} does not exist in {images}", hint=_REMEDY)
    if len(found) > 1:
        raise Refused(f"image {named!r} may be one of {len(found)} in {images}", hint="give more digits of its digest")
    return found[0]


def describe_image(folder: Path, key: PublicKey) -> Described:
    """Its manifest, once the signature was checked, and its size report, once its digest was. No other part is read.

    Raises: NotFound if a file is missing; Refused if one is not what was signed.
    """
    text, signature = _read(folder / MANIFEST), _read(folder / SIGNATURE).decode(errors="replace")
    checked = check_manifest(folder, text, signature, key)
    manifest = checked.manifest
    sizes = manifest.documents.get("sizes")
    document = None if sizes is None else decode_sizes(_document(folder, manifest, sizes))
    return Described(image_name(checked), checked.digest, manifest, document)


def _document(folder: Path, manifest: Manifest, expected: FileDigest) -> bytes:
    (part,) = (part for part in manifest.parts() if part.name == "document.sizes")
    file = store.part_file(folder, manifest, part)
    if expected.size_bytes > _MAX_DOCUMENT:
        raise Refused(
            f"{file} has {expected.size_bytes} bytes, more than {_MAX_DOCUMENT}", hint="build the image again"
        )
    content = _read(file)
    if (hashlib.sha256(content).hexdigest(), len(content)) != (expected.sha256, expected.size_bytes):
        raise Refused(f"{file} is altered: it is not the document that was signed", hint="publish the image again")
    return content


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except FileNotFoundError as error:
        raise NotFound(f"{file} does not exist", hint="publish the image again from its build") from error
