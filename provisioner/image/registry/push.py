"""Push an image: what the registry lacks of its parts, and at last the manifest that names them all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from provisioner.api.machinery.values import Sha256Digest
from provisioner.image.finished import store
from provisioner.image.finished.check import check_image
from provisioner.image.finished.manifest import MANIFEST, SIGNATURE, digest_of
from provisioner.image.finished.sign import SignatureVerifier
from provisioner.image.registry.artifact import PartReport, encode_artifact, tag_of
from provisioner.image.registry.client import Registry


@dataclass(frozen=True)
class Pushed:
    """What came of it. `sent_bytes`: of parts that the registry lacked."""

    digest: Sha256Digest
    sent_bytes: int
    was_there: bool


def push_image(
    folder: Path, registry: Registry, key: SignatureVerifier, report: PartReport = lambda name, size, there: None
) -> Pushed:
    """Push the image in `folder`, in its store. Doing it again, also after it was broken off, sends what is missing.

    The registry shows the image with the last call, and only whole.
    Raises: Refused or NotFound, before anything was sent, for an image that is not whole and signed by `key`.
    """
    checked = check_image(folder, key)
    texts = {MANIFEST: (folder / MANIFEST).read_bytes(), SIGNATURE: (folder / SIGNATURE).read_bytes()}
    parts = checked.manifest.parts()
    body = encode_artifact(texts[MANIFEST], texts[SIGNATURE], [(part.name, part.file) for part in parts])
    tag = tag_of(checked.digest)
    found = registry.find_manifest(tag)
    if found is not None and found.body == body:
        return Pushed(checked.digest, 0, was_there=True)
    sent, done = 0, set[str]()
    for name, text in texts.items():
        sent += _push_text(registry, name, text, report)
    for part in parts:
        digest = Sha256Digest(f"sha256:{part.file.sha256}")
        if digest in done:
            continue
        done.add(digest)
        size, file = part.file.size_bytes, store.part_file(folder, checked.manifest, part)
        there = registry.has_blob(digest, size)
        if not there:
            registry.push_blob(digest, size, _reader(file))
            sent += size
        report(part.name, size, there)
    registry.put_manifest(tag, body)
    return Pushed(checked.digest, sent, was_there=False)


def _push_text(registry: Registry, name: str, text: bytes, report: PartReport) -> int:
    digest = digest_of(text)
    there = registry.has_blob(digest, len(text))
    if not there:
        registry.push_blob(digest, len(text), lambda begin, count: text[begin : begin + count])
    report(name, len(text), there)
    return 0 if there else len(text)


def _reader(file: Path) -> Callable[[int, int], bytes]:
    def read(begin: int, count: int) -> bytes:
        with file.open("rb") as stream:
            stream.seek(begin)
            return stream.read(count)

    return read
