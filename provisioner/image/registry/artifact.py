"""An image as an OCI artifact: one manifest, whose config is our signed manifest and whose layers are all else. Pure.

    config     the text of the image's manifest: the digest of this blob is the image's own
    layers     its signature, then every part (kernel, stage-1, layers, documents): blobs of the parts' own SHA-256

The registry's manifest has the tag `image-<64 digits of the image's digest>`. It is believed nothing: what it leads to
is checked by the image's digest and signature. The same image always gives the same bytes.
Source: OCI Image Specification 1.1, "Guidelines for Artifact Usage".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.values import Sha256Digest
from provisioner.image.finished.manifest import FileDigest, digest_of
from provisioner.image.registry.client import MANIFEST_TYPE

ARTIFACT_TYPE: Final = "application/vnd.provisioner.image.v1"
CONFIG_TYPE: Final = "application/vnd.provisioner.image.manifest.v1"
SIGNATURE_TYPE: Final = "application/vnd.provisioner.image.signature.v1"
PART_TYPE: Final = "application/vnd.provisioner.image.part.v1"
MAX_SIGNATURE_BYTES: Final = 1024
PartReport = Callable[[str, int, bool], None]
"""Told of each part: its name, its bytes, and whether it was there already."""
_TITLE: Final = "org.opencontainers.image.title"
_TAG: Final = "image-"
_HINT: Final = "push the image again (provisioner image push)"


def tag_of(digest: Sha256Digest) -> str:
    """The tag under which an image's OCI manifest lies."""
    return _TAG + digest.removeprefix("sha256:")


def encode_artifact(manifest: bytes, signature: bytes, parts: Iterable[tuple[str, FileDigest]]) -> bytes:
    """The OCI manifest of an image. `parts`: each with its name, such as layer.base."""
    body = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "artifactType": ARTIFACT_TYPE,
        "config": _descriptor(CONFIG_TYPE, digest_of(manifest), len(manifest), "manifest"),
        "layers": [
            _descriptor(SIGNATURE_TYPE, digest_of(signature), len(signature), "manifest.sig"),
            *(_descriptor(PART_TYPE, f"sha256:{file.sha256}", file.size_bytes, name) for name, file in parts),
        ],
    }
    return json.dumps(body, indent=1, sort_keys=True).encode()


@dataclass(frozen=True)
class OciManifest:
    """What of an OCI manifest is read: where the signature is. All else is in the signed manifest."""

    signature: Sha256Digest


def decode_artifact(body: bytes, image: Sha256Digest) -> OciManifest:
    """Read the OCI manifest of `image`. Raises: Refused if it is that of another one, or of something else."""
    try:
        manifest = json.loads(body)
        config, layers = manifest["config"], manifest["layers"]
        types = manifest.get("artifactType", ARTIFACT_TYPE), config["mediaType"]
        named = config["digest"]
        signatures = [layer for layer in layers if layer["mediaType"] == SIGNATURE_TYPE]
        (signature,) = {str(layer["digest"]) for layer in signatures if 0 < layer["size"] <= MAX_SIGNATURE_BYTES}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Refused(
            f"what has the tag {tag_of(image)} is no manifest of an image with a signature", hint=_HINT
        ) from error
    if types != (ARTIFACT_TYPE, CONFIG_TYPE):
        raise Refused(f"what has the tag {tag_of(image)} is of type {types[0]!s:.80}, not {ARTIFACT_TYPE}", hint=_HINT)
    if named != image:
        raise Refused(f"what has the tag {tag_of(image)} is image {named!s:.80}", hint=_HINT)
    digits = signature.removeprefix("sha256:")
    if len(digits) != 64 or not set(digits) <= set("0123456789abcdef"):
        raise Refused(f"the signature of image {image} has the digest {signature[:80]!r}", hint=_HINT)
    return OciManifest(Sha256Digest(f"sha256:{digits}"))


def _descriptor(media_type: str, digest: str, size_bytes: int, title: str) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": digest, "size": size_bytes, "annotations": {_TITLE: title}}
