"""Signed images of nothing in particular, whose manifests are written here and not by the builder's code."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from provisioner.image.finished.sign import SecretKey


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True)
class SignedImage:
    """`files`: kernel, stage-1 and layers, by their paths below a source. `layers`: contents by name, bottom first."""

    manifest: bytes
    signature: bytes
    layers: Mapping[str, bytes]
    files: Mapping[str, bytes]

    @property
    def digest(self) -> str:
        return f"sha256:{digest(self.manifest)}"

    @property
    def name(self) -> str:
        return self.digest.replace(":", "-")

    def served(self) -> dict[str, bytes]:
        """All that a source has, by path."""
        signed = {f"{self.name}/manifest": self.manifest, f"{self.name}/manifest.sig": self.signature}
        return {**self.files, **signed}

    def path(self, layer: str) -> str:
        """Of a layer, below a source."""
        return next(path for path, content in self.files.items() if content == self.layers[layer])

    def file(self, layer: str) -> str:
        """The last part of its path."""
        return self.path(layer).rpartition("/")[2]


def line(key: str, content: bytes) -> str:
    """Of a manifest."""
    return f"{key} {digest(content)} {len(content)}"


def head(first: str, architecture: str, kernel: bytes, stage1: bytes) -> list[str]:
    """The lines of a manifest before its layers."""
    made = [first, "recipe made", "distribution debian-13", f"architecture {architecture}"]
    return [*made, line("kernel", kernel), line("stage1", stage1)]


def sign_lines(
    lines: list[str], layers: Mapping[str, bytes], files: Mapping[str, bytes], key: SecretKey
) -> SignedImage:
    """An image with just this manifest."""
    manifest = ("\n".join(lines) + "\n").encode()
    return SignedImage(manifest, key.sign(manifest).encode(), layers, files)


def layered_image(
    layers: Mapping[str, bytes],
    *,
    key: SecretKey,
    kernel: bytes = b"kernel",
    stage1: bytes = b"stage1",
    architecture: str = "x86_64",
    release: str = "6.12",
) -> SignedImage:
    """Format 2: every part lies in the store by its own digest. Documents are signed, too, and nobody's to fetch."""
    lines = head("provisioner-image 2", architecture, kernel, stage1)
    lines += [line(f"layer.{name}", content) for name, content in layers.items()]
    lines += [line("document.sbom", b"{}"), "kernel-arguments quiet layer.x", f"version.kernel {release}"]
    files = {f"parts/sha256-{digest(content)}": content for content in (kernel, stage1, *layers.values())}
    return sign_lines(lines, layers, files, key)


def one_root_image(
    root: bytes,
    *,
    key: SecretKey,
    kernel: bytes = b"kernel",
    stage1: bytes = b"stage1",
    architecture: str = "x86_64",
    release: str = "6.12",
) -> SignedImage:
    """Format 1: three files in the image's own folder."""
    lines = head("provisioner-image 1", architecture, kernel, stage1)
    lines += [line("root", root), "kernel-arguments quiet", f"version.kernel {release}"]
    image = sign_lines(lines, {"root": root}, {}, key)
    named = {"vmlinuz": kernel, "stage1.img": stage1, "root.squashfs": root}
    files = {f"{image.name}/{name}": content for name, content in named.items()}
    return SignedImage(image.manifest, image.signature, image.layers, files)
