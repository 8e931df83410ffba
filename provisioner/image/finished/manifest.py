"""The manifest: what an image consists of, in text that stage-1's shell can read; its digest names the image.

    provisioner-image 1
    recipe gpu-node
    distribution debian-13
    architecture x86_64
    kernel <sha256> <bytes>
    stage1 <sha256> <bytes>
    root <sha256> <bytes>
    kernel-arguments quiet loglevel=4
    version.containerd 1.7.24
    version.kernel 6.12.107+deb13-amd64

Every line is `key value`; keys stand in this order, versions sorted. Nothing else is a manifest.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, get_args

from provisioner.api.errors import Refused
from provisioner.api.server import Architecture
from provisioner.api.values import Sha256Digest

MANIFEST: Final = "manifest"
SIGNATURE: Final = "manifest.sig"
FILES: Final = {"kernel": "vmlinuz", "stage1": "stage1.img", "root": "root.squashfs"}
"""The files of an image, by the key that names them in the manifest."""

MAX_BYTES: Final = 65536
_FIRST_LINE: Final = "provisioner-image 1"
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
_FILE: Final = re.compile(r"([0-9a-f]{64}) ([1-9][0-9]{0,14})")
_VERSION_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_VALUE: Final = re.compile(r"[\x21-\x7e]([\x20-\x7e]{0,1022}[\x21-\x7e])?")
_MAX_VERSIONS: Final = 32
_HINT: Final = "publish the image again from its build"


@dataclass(frozen=True)
class File:
    """Digest (64 hexadecimal digits) and size of one file of the image."""

    sha256: str
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What an image consists of."""

    recipe: str
    distribution: str
    architecture: Architecture
    kernel: File
    stage1: File
    root: File
    kernel_arguments: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)

    def files(self) -> dict[str, File]:
        """By key: kernel, stage1, root."""
        return {"kernel": self.kernel, "stage1": self.stage1, "root": self.root}

    def encode(self) -> bytes:
        """The manifest's text. Raises: Refused if it would not be read back."""
        lines = [
            _FIRST_LINE,
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
            raise Refused("the manifest cannot be written: a value has blanks of its own", hint="correct the recipe")
        return text


def digest_of(manifest: bytes) -> Sha256Digest:
    """The image's digest: that of its manifest."""
    return Sha256Digest("sha256:" + hashlib.sha256(manifest).hexdigest())


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
    if first != _FIRST_LINE:
        raise Refused(
            f"the manifest begins with {first[:80]!r}, not {_FIRST_LINE!r}", hint="use the release that built the image"
        )
    values: dict[str, str] = {}
    for number, line in enumerate(lines, start=2):
        key, _, value = line.partition(" ")
        if key in values or not _VALUE.fullmatch(value):
            raise Refused(f"line {number} of the manifest, {line[:80]!r}, is not one key and its value", hint=_HINT)
        values[key] = value
    manifest = _from_values(dict(values))
    if list(values) != _expected_order(values):
        raise Refused(f"the manifest has its keys in another order: {', '.join(values)}", hint=_HINT)
    return manifest


def _from_values(values: dict[str, str]) -> Manifest:
    architecture = _take(values, "architecture", re.compile("|".join(get_args(Architecture))))
    manifest = Manifest(
        recipe=_take(values, "recipe", _NAME),
        distribution=_take(values, "distribution", _NAME),
        architecture=architecture,  # type: ignore[arg-type]  # the pattern has exactly its values
        kernel=_file(values, "kernel"),
        stage1=_file(values, "stage1"),
        root=_file(values, "root"),
        kernel_arguments=_arguments(values.pop("kernel-arguments", "")),
        versions={key.removeprefix("version."): value for key, value in values.items() if key.startswith("version.")},
    )
    unknown = [key for key in values if not key.startswith("version.")]
    if unknown or len(manifest.versions) > _MAX_VERSIONS or not all(map(_VERSION_NAME.fullmatch, manifest.versions)):
        raise Refused(f"the manifest has keys that are not known: {', '.join(unknown or values)[:200]}", hint=_HINT)
    return manifest


def _take(values: dict[str, str], key: str, pattern: re.Pattern[str]) -> str:
    value = values.pop(key, "")
    if not pattern.fullmatch(value):
        raise Refused(f"the manifest's {key} is {value[:80]!r}", hint=_HINT)
    return value


def _file(values: dict[str, str], key: str) -> File:
    sha256, size = _take(values, key, _FILE).split(" ")
    return File(sha256, int(size))


def _arguments(value: str) -> tuple[str, ...]:
    arguments = tuple(value.split(" ")) if value else ()
    if "" in arguments:
        raise Refused("the manifest's kernel-arguments have a double blank", hint=_HINT)
    return arguments


def _expected_order(values: Mapping[str, str]) -> list[str]:
    fixed = ["recipe", "distribution", "architecture", *FILES, "kernel-arguments"]
    return [key for key in fixed if key in values] + sorted(key for key in values if key.startswith("version."))
