"""An OCI image layout in one tar. Source: OCI Image Specification 1.1, "Image Layout", "Image Configuration"."""

from __future__ import annotations

import datetime
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from artefacts.layer import FILE_TIME, LAYER_TYPE, Layer
from artefacts.recipe import ContainerRecipe, Machine

MANIFEST_TYPE: Final = "application/vnd.oci.image.manifest.v1+json"
CONFIG_TYPE: Final = "application/vnd.oci.image.config.v1+json"
INDEX_TYPE: Final = "application/vnd.oci.image.index.v1+json"


@dataclass(frozen=True)
class ContainerImage:
    """`manifest` and `config` as they are sent, and the layers that they name."""

    name: str
    version: str
    machine: Machine
    manifest: bytes
    config: bytes
    layers: tuple[Layer, ...]

    @property
    def digest(self) -> str:
        """What a Deployment may name: `provisioner@sha256:…`."""
        return _digest(self.manifest)


def make_image(
    recipe: ContainerRecipe, machine: Machine, layers: Sequence[Layer], version: str, created: int
) -> ContainerImage:
    """Config and manifest over the layers. `created`: seconds since 1970, which an engine shows."""
    when = datetime.datetime.fromtimestamp(created, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    labels = {
        "org.opencontainers.image.title": recipe.name,
        "org.opencontainers.image.description": recipe.description,
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.licenses": "Apache-2.0",
    }
    config = {
        "architecture": machine,
        "os": "linux",
        **({"variant": "v8"} if machine == "arm64" else {}),
        "created": when,
        "config": {
            "User": recipe.user,
            "Env": [f"{name}={value}" for name, value in sorted(recipe.environment.items())],
            "Entrypoint": ["/usr/bin/provisioner"],
            "WorkingDir": "/",
            "Labels": labels,
            "StopSignal": "SIGTERM",
        },
        "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
        "history": [{"created": when, "created_by": "make package", "comment": layer.called} for layer in layers],
    }
    body = _json(config)
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": _descriptor(CONFIG_TYPE, body),
        "layers": [_descriptor(LAYER_TYPE, layer.content) for layer in layers],
        "annotations": {"org.opencontainers.image.created": when, **labels},
    }
    return ContainerImage(recipe.name, version, machine, _json(manifest), body, tuple(layers))


def archive(image: ContainerImage) -> bytes:
    """The tar, the same bytes for the same image."""
    index = {
        "schemaVersion": 2,
        "mediaType": INDEX_TYPE,
        "manifests": [
            {
                **_descriptor(MANIFEST_TYPE, image.manifest),
                "platform": {"os": "linux", "architecture": image.machine},
                "annotations": {
                    "org.opencontainers.image.ref.name": image.version,
                    "io.containerd.image.name": f"{image.name}:{image.version}",
                },
            }
        ],
    }
    files = {
        "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
        "index.json": _json(index),
        **{
            f"blobs/sha256/{_digest(content).removeprefix('sha256:')}": content
            for content in (image.manifest, image.config, *(layer.content for layer in image.layers))
        },
    }
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for folder in ("blobs", "blobs/sha256"):
            member = tarfile.TarInfo(folder)
            member.type, member.mode, member.mtime = tarfile.DIRTYPE, 0o755, FILE_TIME
            tar.addfile(member)
        for name, content in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.mtime = len(content), 0o644, FILE_TIME
            tar.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def _descriptor(media_type: str, content: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": _digest(content), "size": len(content)}


def _digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
