"""Publish: into the store of the boot host, then as an Image object. Nothing unsigned or damaged gets that far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from provisioner.api.images.image import Artifact, Image, ImageSpec, Measurements, NamedArtifact
from provisioner.api.machinery.codec import encode
from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.meta import ObjectMeta
from provisioner.attestation.authenticode import authenticode_sha256
from provisioner.image.finished import store
from provisioner.image.finished.check import Checked, check_image
from provisioner.image.finished.manifest import MANIFEST, ImagePart
from provisioner.image.finished.sign import SignatureVerifier

FIELD_MANAGER: Final = "provisioner-image"


class Applies(Protocol):
    """What publishing needs of `provisioner.cluster.client.Cluster`."""

    def apply(self, body: Mapping[str, Any], *, manager: str) -> Any: ...


@dataclass(frozen=True)
class Published:
    """The Image object's name, and the folder in the store."""

    name: str
    folder: Path


def image_name(checked: Checked) -> str:
    """`gpu-node-9f3c01234567`: the recipe and the first 12 digits of the digest."""
    return f"{checked.manifest.recipe}-{checked.digest.removeprefix('sha256:')[:12]}"


def image_object(checked: Checked, kernel: bytes | None = None) -> Image:
    """The Image that describes what was checked. kernel: the file; without it nothing is said of its measurement."""
    manifest, folder = checked.manifest, store.folder_name(checked.digest)
    parts = {part.name: part for part in manifest.parts()}
    text_bytes = len(manifest.encode())
    return Image(
        metadata=ObjectMeta(name=image_name(checked)),
        spec=ImageSpec(
            digest=checked.digest,
            architecture=manifest.architecture,
            distribution=manifest.distribution,
            recipe=manifest.recipe,
            manifest=Artifact(path=f"{folder}/{MANIFEST}", sha256=checked.digest, size_bytes=text_bytes),
            kernel=_artifact(parts["kernel"]),
            stage1=_artifact(parts["stage1"]),
            root=_artifact(parts["root"]) if manifest.format == 1 else None,
            layers=_named(parts, "layer."),
            documents=_named(parts, "document."),
            kernel_arguments=manifest.kernel_arguments,
            versions=dict(manifest.versions),
            signature=checked.signature,
            measurements=_measurements(kernel) if kernel is not None else None,
        ),
    )


def _measurements(kernel: bytes) -> Measurements | None:
    """None of a kernel that firmware does not start by itself."""
    try:
        return Measurements(kernel_authenticode_sha256=authenticode_sha256(kernel))
    except Refused:
        return None


def _artifact(part: ImagePart) -> Artifact:
    return Artifact(path=part.path, sha256=f"sha256:{part.file.sha256}", size_bytes=part.file.size_bytes)


def _named(parts: Mapping[str, ImagePart], prefix: str) -> tuple[NamedArtifact, ...]:
    return tuple(
        NamedArtifact(name=name.removeprefix(prefix), **vars(_artifact(part)))
        for name, part in parts.items()
        if name.startswith(prefix)
    )


def publish_image(source: Path, destination: Path, key: SignatureVerifier, cluster: Applies) -> Published:
    """Copy the image into the store at `destination` (a no-op if it lies there) and apply its Image object.

    Doing it again changes nothing. Raises: Refused or NotFound, before anything was written, for an image that is not
    whole and signed by `key`.
    """
    checked = check_image(source, key)
    folder = store.put(source, destination, checked.digest)
    # What lies in the store may be older than this publication, or be damaged: servers will read that copy.
    kept = check_image(folder, key)
    kernel = next(part.path for part in kept.manifest.parts() if part.name == "kernel")
    described = image_object(checked, (destination / kernel).read_bytes())
    cluster.apply(encode(described), manager=FIELD_MANAGER)
    return Published(image_name(checked), folder)
