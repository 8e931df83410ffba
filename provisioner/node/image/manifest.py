"""The manifest of an image, and whether it is the one that was asked for and was signed. See docs/images.md."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from contextlib import suppress
from typing import NamedTuple

MAX_BYTES = 65536
MAX_LAYERS = 16
MAX_KEYS = 4
PUBLIC_KEY = "/etc/provisioner/image.pub"
SIGNIFY = "signify-openbsd"

_FILE = re.compile(r"([0-9a-f]{64}) ([1-9][0-9]{0,14})")
_LAYER = re.compile(r"layer\.[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")
_NAMES_LAYER = re.compile(r"root$|layer\.")
_FORMAT_1 = {"kernel": "vmlinuz", "stage1": "stage1.img", "root": "root.squashfs"}
_LINE = re.compile(r"([!-~]+) ([ -~]+)")
_ARCHITECTURES = {"x86_64": "x86_64", "aarch64": "arm64"}
_AGAIN = "publish the image again from its build"


class ImageError(Exception):
    """The image cannot be used here; the message says object, observed, expected and remedy."""


class ImageFile(NamedTuple):
    """One file of the image. `name`: for people; `path`: below a source, and its last part also below the next
    stage-1's /staged."""

    name: str
    path: str
    sha256: str
    size_bytes: int

    @property
    def file_name(self) -> str:
        return self.path.rpartition("/")[2]


class ImageContents(NamedTuple):
    """Kernel, stage-1, and the layers of the root from the bottom to the top."""

    kernel: ImageFile
    stage1: ImageFile
    layers: tuple[ImageFile, ...]

    @property
    def files(self) -> tuple[ImageFile, ...]:
        return (self.kernel, self.stage1, *self.layers)

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


def read_manifest(manifest: bytes, image_digest: str, machine: str) -> ImageContents:
    """What the image consists of, if this is the manifest of that digest, for this machine.

    Format 1 has one layer, called root. `machine`: as uname says. Raises: ImageError, on all that stage-1 refuses.
    """
    observed = "sha256:" + hashlib.sha256(manifest).hexdigest()
    if observed != image_digest:
        raise ImageError(f"the manifest has digest {observed}, asked for was {image_digest}; publish the image again")
    values = _read_lines(manifest.decode("ascii", errors="replace"))
    if values.get("architecture") != _ARCHITECTURES.get(machine):
        raise ImageError(
            f"the image is for {values.get('architecture')!r}, this machine is {machine}; name another image"
        )
    number, keys = values.get("provisioner-image"), [key for key in values if _NAMES_LAYER.match(key)]
    if number == "1" and keys == ["root"]:
        folder = image_digest.replace(":", "-")
    elif number == "2" and 1 <= len(keys) <= MAX_LAYERS and all(map(_LAYER.fullmatch, keys)):
        folder = ""
    else:
        raise ImageError(
            f"the manifest has format {str(number)[:80]!r} with {', '.join(keys)[:200] or 'no layers'}, not '1' with "
            f"a root or '2' with 1 to {MAX_LAYERS} layers; use an image of this release"
        )
    layers = tuple(_file(values, key, folder) for key in keys)
    if len({layer.sha256 for layer in layers}) < len(layers):
        raise ImageError(f"the manifest has one layer under two names; {_AGAIN}")
    return ImageContents(_file(values, "kernel", folder), _file(values, "stage1", folder), layers)


def _read_lines(text: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for line in text.removesuffix("\n").split("\n"):
        match = _LINE.fullmatch(line)
        if match is None or match[1] in values:
            raise ImageError(f"the manifest has {line[:80]!r}, not one key and its value; {_AGAIN}")
        values[match[1]] = match[2]
    return values


def _file(values: dict[str, str], key: str, folder: str) -> ImageFile:
    """`folder`: of the image, in format 1; in format 2 each file lies in the source by its own digest."""
    match = _FILE.fullmatch(values.get(key, ""))
    if match is None:
        raise ImageError(f"the manifest names no {key[:80]}; {_AGAIN}")
    name = "layer root" if key == "root" else key.replace(".", " ")
    path = f"{folder}/{_FORMAT_1[key]}" if folder else f"parts/sha256-{match[1]}"
    return ImageFile(name, path, match[1], int(match[2]))


def verify_signature(folder: str, public_keys: str, name: str = "manifest") -> None:
    """Check folder/`name` against folder/`name`.sig, by any key of the file `public_keys`. Raises: ImageError.

    signify takes one key in a file: each is written into a file of its own in `folder`, and taken away.
    """
    signed = os.path.join(folder, name)  # noqa: PTH118
    one = os.path.join(folder, "image.pub")  # noqa: PTH118
    said = "no key"
    try:
        for key in _read_keys(public_keys):
            with open(one, "w") as file:  # noqa: PTH123
                file.write(key)
            done = subprocess.run(
                [SIGNIFY, "-V", "-q", "-p", one, "-x", f"{signed}.sig", "-m", signed],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            if done.returncode == 0:
                return
            said = (done.stderr or done.stdout).strip()[-300:] or f"status {done.returncode}"
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ImageError(f"the signature could not be checked ({error}); build the running image again") from error
    finally:
        with suppress(OSError):
            os.unlink(one)  # noqa: PTH108
    raise ImageError(
        f"the {name} is not signed by a key of the running image ({said}); publish one that is signed with such a "
        "key, or boot the server by its firmware"
    )


def _read_keys(file: str) -> list[str]:
    """Two lines each: a comment, and the key. Raises: OSError."""
    with open(file) as lines:  # noqa: PTH123
        words = lines.read(MAX_BYTES).splitlines()
    return ["\n".join(words[at : at + 2]) + "\n" for at in range(0, min(len(words), 2 * MAX_KEYS), 2)]
