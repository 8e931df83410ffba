"""The pause image: what holds a pod's namespaces. Made during the build, since a node has no registry to ask at boot.

It has one program, compiled here (`compile`), or it is the one image of an OCI archive that the caller has pinned by
digest (`archive`).
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from dataclasses import dataclass
from typing import Final

from provisioner.api.servers.server import Architecture
from provisioner.image.containerd.compile import pause_program

REFERENCE: Final = "provisioner.local/pause:1"
"""Its name on a node, whatever it is made of: containerd's configuration names it."""

GO_NAMES: Final[dict[Architecture, str]] = {"x86_64": "amd64", "arm64": "arm64"}


@dataclass(frozen=True)
class Blob:
    """One part of a container image."""

    media_type: str
    content: bytes

    @property
    def digest(self) -> str:
        return "sha256:" + hashlib.sha256(self.content).hexdigest()

    def descriptor(self) -> dict[str, object]:
        return {"mediaType": self.media_type, "digest": self.digest, "size": len(self.content)}


@dataclass(frozen=True)
class UnpackedFile:
    """One file of an unpacked layer; its `path` is relative to the container's root."""

    path: str
    mode: int
    content: bytes


@dataclass(frozen=True)
class PauseImage:
    """The image as the OCI specification has it: a manifest that names a configuration and one layer.

    `diff_id` is the digest of the layer's tar archive, uncompressed; `files` is what it unpacks to.
    """

    layer: Blob
    config: Blob
    manifest: Blob
    diff_id: str
    files: tuple[UnpackedFile, ...]


def pause_image(architecture: Architecture) -> PauseImage:
    """The image of the program that is compiled here: the same bytes every time. Raises: NeedsHuman as `compile`."""
    program = UnpackedFile("pause", 0o755, pause_program(architecture))
    layer = Blob("application/vnd.oci.image.layer.v1.tar", _tar(program))
    config = {
        "architecture": GO_NAMES[architecture],
        "os": "linux",
        "config": {"Entrypoint": ["/pause"], "User": "65535:65535"},
        "rootfs": {"type": "layers", "diff_ids": [layer.digest]},
    }
    config_blob = Blob("application/vnd.oci.image.config.v1+json", _json(config))
    media_type = "application/vnd.oci.image.manifest.v1+json"
    manifest = {
        "schemaVersion": 2,
        "mediaType": media_type,
        "config": config_blob.descriptor(),
        "layers": [layer.descriptor()],
    }
    return PauseImage(layer, config_blob, Blob(media_type, _json(manifest)), layer.digest, (program,))


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _tar(file: UnpackedFile) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        member = tarfile.TarInfo(file.path)
        member.size, member.mode, member.mtime = len(file.content), file.mode, 0
        archive.addfile(member, io.BytesIO(file.content))
    return buffer.getvalue()
