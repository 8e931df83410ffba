"""The manifest of an image, and whether it is the one that was asked for and was signed. See docs/images.md."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess

MAX_BYTES = 65536
FILES = {"kernel": "vmlinuz", "stage1": "stage1.img", "root": "root.squashfs"}
PUBLIC_KEY = "/etc/provisioner/image.pub"
SIGNIFY = "signify-openbsd"

_FILE = re.compile(r"([0-9a-f]{64}) ([1-9][0-9]{0,14})")
_ARCHITECTURES = {"x86_64": "x86_64", "aarch64": "arm64"}


class ImageError(Exception):
    """The image cannot be used here; the message says object, observed, expected and remedy."""


class ImageFile:
    """One file of the image, as the manifest has it."""

    def __init__(self, name: str, sha256: str, size_bytes: int) -> None:
        self.name = name
        self.sha256 = sha256
        self.size_bytes = size_bytes


def read_manifest(manifest: bytes, image_digest: str, machine: str) -> dict[str, ImageFile]:
    """The files by key (kernel, stage1, root), if this is the manifest of that digest, for this machine.

    `machine`: as uname says. Raises: ImageError.
    """
    observed = "sha256:" + hashlib.sha256(manifest).hexdigest()
    if observed != image_digest:
        raise ImageError(f"the manifest has digest {observed}, asked for was {image_digest}; publish the image again")
    values: dict[str, str] = {}
    for line in manifest.decode("ascii", errors="replace").splitlines():
        key, _, value = line.partition(" ")
        values.setdefault(key, value)
    if values.get("provisioner-image") != "1":
        raise ImageError(
            f"the manifest has format {values.get('provisioner-image')!r}, not '1'; use an image of this release"
        )
    if values.get("architecture") != _ARCHITECTURES.get(machine):
        raise ImageError(
            f"the image is for {values.get('architecture')!r}, this machine is {machine}; name another image"
        )
    files = {}
    for key, name in FILES.items():
        match = _FILE.fullmatch(values.get(key, ""))
        if match is None:
            raise ImageError(f"the manifest names no {key}; publish the image again from its build")
        files[key] = ImageFile(name, match[1], int(match[2]))
    return files


def verify_signature(folder: str, public_key: str) -> None:
    """Check folder/manifest against folder/manifest.sig. Raises: ImageError."""
    manifest = os.path.join(folder, "manifest")  # noqa: PTH118
    try:
        done = subprocess.run(
            [SIGNIFY, "-V", "-q", "-p", public_key, "-x", f"{manifest}.sig", "-m", manifest],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ImageError(f"the signature could not be checked ({error}); build the running image again") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()[-300:] or f"status {done.returncode}"
        raise ImageError(
            f"the manifest is not signed by the key of the running image ({said}); publish an image signed with that "
            "key, or boot the server by its firmware"
        )
