"""The manifest: what an image consists of, in text that stage-1's shell can read; its digest names the image.

    provisioner-image 2
    recipe gpu-node
    distribution debian-13
    architecture x86_64
    kernel <sha256> <bytes>
    stage1 <sha256> <bytes>
    layer.base <sha256> <bytes>
    layer.site <sha256> <bytes>
    document.sbom <sha256> <bytes>
    kernel-arguments quiet loglevel=4
    version.containerd 1.7.24
    version.kernel 6.12.107+deb13-amd64

Every line is `key value`. Keys stand in this order; layers from the bottom of the overlay to its top, documents and
versions sorted. Nothing else is a manifest. Images of format 1 have `root <sha256> <bytes>` in place of layers.

This is the one place of the builder that knows what parts an image has and where each lies. What boots an image reads
its manifest by `provisioner.node.image.manifest`, which trusts this one in nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.values import Sha256Digest
from provisioner.api.servers.server import Architecture

MANIFEST: Final = "manifest"
SIGNATURE: Final = "manifest.sig"
FILES: Final = {"kernel": "vmlinuz", "stage1": "stage1.img", "root": "root.squashfs"}
"""The files of an image of format 1 in its folder, by the key that names them in the manifest."""
PARTS: Final = "parts"
"""Folder, in the store, of all parts of all images of format 2."""

Format = Literal[1, 2]

MAX_BYTES: Final = 65536
MAX_LAYERS: Final = 16
MAX_DOCUMENTS: Final = 16
_FIRST_LINES: Final[dict[str, Format]] = {"provisioner-image 1": 1, "provisioner-image 2": 2}
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
_PART_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")
_FILE: Final = re.compile(r"([0-9a-f]{64}) ([1-9][0-9]{0,14})")
_VERSION_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_VALUE: Final = re.compile(r"[\x21-\x7e]([\x20-\x7e]{0,1022}[\x21-\x7e])?")
_MAX_VERSIONS: Final = 32
_HINT: Final = "publish the image again from its build"


@dataclass(frozen=True)
class FileDigest:
    """Digest (64 hexadecimal digits) and size of one file of the image."""

    sha256: str
    size_bytes: int


@dataclass(frozen=True)
class Layer:
    """A squashfs, one of those that make the root together."""

    name: str
    file: FileDigest


@dataclass(frozen=True)
class ImagePart:
    """What of an image is fetched, or kept beside it, as one file. `path`: below the store.

    `name`: kernel, stage1, layer.NAME, document.NAME; root of format 1.
    """

    name: str
    path: str
    file: FileDigest


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What an image consists of. `layers`: from the bottom of the overlay to its top; of format 1 one, called root."""

    recipe: str
    distribution: str
    architecture: Architecture
    kernel: FileDigest
    stage1: FileDigest
    layers: tuple[Layer, ...]
    documents: Mapping[str, FileDigest] = field(default_factory=dict)
    kernel_arguments: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    format: Format = 2

    def files(self) -> dict[str, FileDigest]:
        """By key of the manifest, in its order: kernel, stage1, layer.NAME…, document.NAME…; root of format 1."""
        found = {"kernel": self.kernel, "stage1": self.stage1}
        found |= {self._key_of(layer): layer.file for layer in self.layers}
        return found | {f"document.{name}": file for name, file in sorted(self.documents.items())}

    def parts(self) -> tuple[ImagePart, ...]:
        """All files with their paths in a store. Raises: Refused if the manifest cannot be written."""
        if self.format == 2:
            return tuple(ImagePart(name, part_path(file.sha256), file) for name, file in self.files().items())
        folder = digest_of(self.encode()).replace(":", "-")
        return tuple(ImagePart(name, f"{folder}/{FILES[name]}", file) for name, file in self.files().items())

    def encode(self) -> bytes:
        """The manifest's text. Raises: Refused if it would not be read back."""
        lines = [
            f"provisioner-image {self.format}",
            f"recipe {self.recipe}",
            f"distribution {self.distribution}",
            f"architecture {self.architecture}",
            *(f"{key} {file.sha256} {file.size_bytes}" for key, file in self.files().items()),
        ]
        if self.kernel_arguments:
            lines.append(f"kernel-arguments {' '.join(self.kernel_arguments)}")
        lines += [f"version.{name} {value}" for name, value in sorted(self.versions.items())]
        text = ("\n".join(lines) + "\n").encode()
        if decode(text) != self:
            raise Refused(
                "the manifest cannot be written: it would be read back as another one",
                hint="correct the recipe: a value has blanks of its own, or a name comes twice",
            )
        return text

    def _key_of(self, layer: Layer) -> str:
        return f"layer.{layer.name}" if self.format == 2 else layer.name


def digest_of(content: bytes) -> Sha256Digest:
    """The digest of some bytes; that of its manifest is an image's."""
    return Sha256Digest("sha256:" + hashlib.sha256(content).hexdigest())


def part_path(sha256: str) -> str:
    """Where a part of format 2 lies in a store, and below its URL."""
    return f"{PARTS}/sha256-{sha256}"


def decode(data: bytes) -> Manifest:
    """Read a manifest. Raises: Refused on anything that `encode` would not have written."""
    if len(data) > MAX_BYTES:
        raise Refused(f"the manifest has {len(data)} bytes, more than {MAX_BYTES}", hint=_HINT)
    try:
        text = data.decode("ascii")
    except UnicodeDecodeError as error:
        raise Refused(f"the manifest is not ASCII: {error.reason} at byte {error.start}", hint=_HINT) from error
    if not text.endswith("\n"):
        raise Refused("the manifest ends within a line", hint=_HINT)
    first, *lines = text[:-1].split("\n")
    if first not in _FIRST_LINES:
        raise Refused(
            f"the manifest begins with {first[:80]!r}, not {' or '.join(map(repr, _FIRST_LINES))}",
            hint="use the release that built the image",
        )
    values: dict[str, str] = {}
    for number, line in enumerate(lines, start=2):
        key, _, value = line.partition(" ")
        if key in values or not _VALUE.fullmatch(value):
            raise Refused(f"line {number} of the manifest, {line[:80]!r}, is not one key and its value", hint=_HINT)
        values[key] = value
    manifest = _from_values(dict(values), _FIRST_LINES[first])
    if list(values) != _expected_order(values, manifest):
        raise Refused(f"the manifest has its keys in another order: {', '.join(values)[:400]}", hint=_HINT)
    return manifest


def _from_values(values: dict[str, str], format_: Format) -> Manifest:
    architecture = _take(values, "architecture", re.compile("|".join(get_args(Architecture))))
    manifest = Manifest(
        recipe=_take(values, "recipe", _NAME),
        distribution=_take(values, "distribution", _NAME),
        architecture=architecture,  # type: ignore[arg-type]  # the pattern has exactly its values
        kernel=_file(values, "kernel"),
        stage1=_file(values, "stage1"),
        layers=_layers(values) if format_ == 2 else (Layer("root", _file(values, "root")),),
        documents=_named_files(values, "document", MAX_DOCUMENTS) if format_ == 2 else {},
        kernel_arguments=_arguments(values.pop("kernel-arguments", "")),
        versions={key.removeprefix("version."): value for key, value in values.items() if key.startswith("version.")},
        format=format_,
    )
    unknown = [key for key in values if not key.startswith("version.")]
    if unknown or len(manifest.versions) > _MAX_VERSIONS or not all(map(_VERSION_NAME.fullmatch, manifest.versions)):
        raise Refused(f"the manifest has keys that are not known: {', '.join(unknown or values)[:200]}", hint=_HINT)
    _refuse_contradictions(manifest.files())
    return manifest


def _take(values: dict[str, str], key: str, pattern: re.Pattern[str]) -> str:
    value = values.pop(key, "")
    if not pattern.fullmatch(value):
        raise Refused(f"the manifest's {key} is {value[:80]!r}", hint=_HINT)
    return value


def _file(values: dict[str, str], key: str) -> FileDigest:
    sha256, size = _take(values, key, _FILE).split(" ")
    return FileDigest(sha256, int(size))


def _named_files(values: dict[str, str], kind: str, most: int) -> dict[str, FileDigest]:
    keys = [key for key in values if key.startswith(f"{kind}.")]
    if len(keys) > most:
        raise Refused(f"the manifest has {len(keys)} {kind}s, more than {most}", hint=_HINT)
    names = [key.removeprefix(f"{kind}.") for key in keys]
    bad = [name for name in names if not _PART_NAME.fullmatch(name)]
    if bad:
        raise Refused(f"the manifest calls a {kind} {bad[0][:80]!r}", hint=_HINT)
    return {name: _file(values, key) for name, key in zip(names, keys, strict=True)}


def _layers(values: dict[str, str]) -> tuple[Layer, ...]:
    layers = tuple(Layer(name, file) for name, file in _named_files(values, "layer", MAX_LAYERS).items())
    if not layers:
        raise Refused("the manifest has no layer", hint=_HINT)
    twice = [sha256 for sha256, times in Counter(layer.file.sha256 for layer in layers).items() if times > 1]
    if twice:  # an overlay takes no file system twice
        raise Refused(f"the manifest has the layer {twice[0]} twice", hint=_HINT)
    return layers


def _refuse_contradictions(files: Mapping[str, FileDigest]) -> None:
    """Parts are kept by digest: one digest has one size."""
    sizes: dict[str, int] = {}
    for key, file in files.items():
        if sizes.setdefault(file.sha256, file.size_bytes) != file.size_bytes:
            raise Refused(f"the manifest gives the digest of {key} another size before", hint=_HINT)


def _arguments(value: str) -> tuple[str, ...]:
    arguments = tuple(value.split(" ")) if value else ()
    if "" in arguments:
        raise Refused("the manifest's kernel-arguments have a double blank", hint=_HINT)
    return arguments


def _expected_order(values: Iterable[str], manifest: Manifest) -> list[str]:
    head = ["recipe", "distribution", "architecture", *manifest.files(), "kernel-arguments"]
    return [key for key in head if key in values] + sorted(key for key in values if key.startswith("version."))
