"""What may be asked of a rack's cache, and by which digest it is known to be right. Pure.

Parts are named by their own digest; of an image's folder the manifest is. What else lies there in a format 1 image, the
manifest names with its digest. A signature has no digest: it is kept for minutes, and who boots verifies it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

IMAGES: Final = "/images/"
MANIFEST_BYTES: Final = 64 * 1024
_DIGEST: Final = "sha256-[0-9a-f]{64}"
_WORD_OF: Final = {"vmlinuz": "kernel", "stage1.img": "stage1", "root.squashfs": "root"}
"""A file of a format 1 image, and the word by which its manifest names it."""
_NAMES: Final = (*_WORD_OF, "manifest", "manifest.sig")

PATTERN: Final = f"^{IMAGES}(?:parts/{_DIGEST}|{_DIGEST}/(?:{'|'.join(re.escape(name) for name in _NAMES)}))"
"""A regular expression as Python and nginx both read it, without an end: what is served, and nothing else."""
_ASKED: Final = re.compile(PATTERN)


@dataclass(frozen=True)
class ImageFilePath:
    """A file below `/images/`. folder: `parts`, or `sha256-…` of an image."""

    folder: str
    name: str

    @property
    def path(self) -> str:
        """As it is asked for."""
        return f"{IMAGES}{self.folder}/{self.name}"

    @property
    def manifest(self) -> ImageFilePath | None:
        """The file that names this one's digest; None if its own name does, or nothing does."""
        return ImageFilePath(self.folder, "manifest") if self.name in _WORD_OF else None


def read_path(path: str) -> ImageFilePath | None:
    """None if it is nothing that a cache has. Never raises."""
    if not _ASKED.fullmatch(path):
        return None
    folder, _, name = path.removeprefix(IMAGES).partition("/")
    return ImageFilePath(folder, name)


def expected_digest(asked: ImageFilePath, manifest: bytes | None = None) -> str | None:
    """SHA-256 in hexadecimal digits; None if nobody can say. manifest: what `asked.manifest` holds, verified."""
    if asked.folder == "parts":
        return asked.name.removeprefix("sha256-")
    if asked.name == "manifest":
        return asked.folder.removeprefix("sha256-")
    if manifest is None or asked.name not in _WORD_OF:
        return None
    for line in manifest.decode("latin-1").splitlines():
        words = line.split(" ")
        if len(words) == 3 and words[0] == _WORD_OF[asked.name] and re.fullmatch("[0-9a-f]{64}", words[1]):
            return words[1]
    return None
