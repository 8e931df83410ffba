"""Whole, signed images of short files, in both formats."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from provisioner.image.finished.manifest import FILES, MANIFEST, SIGNATURE, Format, Layer, Manifest, digest_of
from provisioner.image.finished.sign import SecretKey
from provisioner.image.finished.store import folder_name, measure, part_files, put_image

LAYERED: Mapping[str, bytes] = {
    "kernel": b"kernel" * 100,
    "stage1": b"stage1" * 100,
    "layer.base": b"base" * 100,
    "layer.kubelet": b"kubelet" * 100,
    "layer.site": b"site" * 100,
    "document.sbom": b"what is in it",
}
OF_FORMAT_1: Mapping[str, bytes] = {kind: kind.encode() * 100 for kind in FILES}


def layer_files(folder: Path) -> list[Path]:
    """The file systems of the image in `folder`, from the bottom of its overlay to the top."""
    return [file for name, file in part_files(folder).items() if name == "root" or name.startswith("layer.")]


def manifest_of(files: Mapping[str, Path], **changes: Any) -> Manifest:
    """What a build of these parts says of them."""
    measured = {name: measure(file) for name, file in files.items()}
    layers = [Layer(name.removeprefix("layer."), file) for name, file in measured.items() if name.startswith("layer.")]
    if "root" in measured:
        layers, changes = [Layer("root", measured["root"])], {"format": 1, **changes}
    known: dict[str, Any] = {
        "recipe": "gpu-node",
        "distribution": "debian-13",
        "architecture": "x86_64",
        "kernel_arguments": ("quiet",),
        "versions": {"kubelet": "v1.36.3"},
        "documents": {
            name.removeprefix("document."): file for name, file in measured.items() if name.startswith("document.")
        },
        **changes,
    }
    return Manifest(kernel=measured["kernel"], stage1=measured["stage1"], layers=tuple(layers), **known)


def write_files(folder: Path, contents: Mapping[str, bytes]) -> dict[str, Path]:
    """The parts as a build has them before they are in a store, by name."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {name: folder / name for name in contents}
    for name, content in contents.items():
        files[name].write_bytes(content)
    return files


def write_layered(
    store: Path, key: SecretKey, contents: Mapping[str, bytes] = LAYERED, recipe: str = "gpu-node", **changes: Any
) -> Path:
    """An image of format 2 in the store."""
    files = write_files(store.with_name(f"{store.name}-files"), contents)
    text = manifest_of(files, recipe=recipe, **changes).encode()
    return put_image(store, text, key.sign(text), files)


def write_of_format_1(store: Path, key: SecretKey, recipe: str = "gpu-node") -> Path:
    """Yesterday's image, as yesterday's builder left it in a store."""
    work = store / "work"
    work.mkdir(parents=True)
    for kind, name in FILES.items():
        (work / name).write_bytes(OF_FORMAT_1[kind])
    text = manifest_of({kind: work / name for kind, name in FILES.items()}, recipe=recipe).encode()
    (work / MANIFEST).write_bytes(text)
    (work / SIGNATURE).write_text(key.sign(text))
    return work.rename(store / folder_name(digest_of(text)))


WRITERS: Mapping[Format, Any] = {1: write_of_format_1, 2: write_layered}
