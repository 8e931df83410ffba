"""Signing where the key is: of an image the manifest alone is needed there, some lines that a person can read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from provisioner.api.machinery.errors import NotFound, Refused
from provisioner.api.machinery.values import Sha256Digest
from provisioner.image.finished.manifest import MANIFEST, MAX_BYTES, SIGNATURE, Manifest, decode, digest_of
from provisioner.image.finished.sign import SecretKey, signing_key_number
from provisioner.image.finished.store import write_signature


@dataclass(frozen=True)
class Signed:
    """What was signed, and where the signature is. `again`: it was there already, by the same key."""

    digest: Sha256Digest
    manifest: Manifest
    file: Path
    again: bool


def sign_manifest(named: Path, key: SecretKey, expected: Sha256Digest | None = None) -> Signed:
    """Write `manifest.sig` beside a manifest (or into the image's folder that is named). The parts need not be there.

    expected: the image's digest as whoever built it has told by another way. Raises: NotFound without a manifest;
    Refused for what is no manifest, has another digest, or is signed by another key already: nothing is written then.
    """
    file = named / MANIFEST if named.is_dir() else named
    try:
        with file.open("rb") as stream:
            text = stream.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise NotFound(f"manifest {file} does not exist", hint="copy it from the image's folder sha256-…") from error
    manifest, digest = decode(text), digest_of(text)
    if expected is not None and digest != expected:
        raise Refused(
            f"{file} is the manifest of {digest}, not of {expected}", hint="find out who exchanged it, and sign nothing"
        )
    target, signature = file.with_name(SIGNATURE), key.sign(text)
    try:
        before = target.read_text(errors="replace")
    except FileNotFoundError:
        write_signature(file.parent, signature)
        return Signed(digest, manifest, target, again=False)
    if before != signature:
        raise Refused(
            f"{target} exists, and is not this key's signature of this manifest ({_whose(before)})",
            hint="remove it if that is meant; an Image that was published keeps the signature that it had",
        )
    return Signed(digest, manifest, target, again=True)


def _whose(signature: str) -> str:
    try:
        return f"it says key {signing_key_number(signature).hex()}"
    except Refused:
        return "it is no signature at all"
