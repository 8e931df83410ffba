"""What packages say of themselves, kept before the root is trimmed: licences and lists of files.

The root keeps neither: they are of no use to a server. The licences go into a document of the image instead.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from provisioner.image.gates.packages.installed import InstalledPackage, package_of, read_paragraphs, read_status

DOCUMENTATION: Final = "usr/share/doc"
COMMON: Final = "usr/share/common-licenses"
"""Debian's copyright files name texts in it instead of repeating them."""
_MERGED: Final = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")


@dataclass(frozen=True)
class Records:
    """`packages` are those of the root and those that were unpacked beside it; `texts` licences by SHA-256.

    `common` are the texts that others name, by file name: `GPL-2` → SHA-256.
    """

    packages: tuple[InstalledPackage, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    common: Mapping[str, str] = field(default_factory=dict)

    def joined(self, other: Records) -> Records:
        """Both; a package that both have is taken once, from `other`."""
        found = {(each.name, each.architecture): each for each in (*self.packages, *other.packages)}
        return Records(
            tuple(found[key] for key in sorted(found)),
            {**self.texts, **other.texts},
            {**self.common, **other.common},
        )


def read_installed(root: Path) -> Records:
    """Of the packages that dpkg installed in `root`. Raises: Refused if its database is damaged."""
    info = root / "var/lib/dpkg/info"
    packages, texts = [], {}
    for package in read_status((root / "var/lib/dpkg/status").read_text(errors="replace")):
        lists = [info / f"{package.name}.list", info / f"{package.name}:{package.architecture}.list"]
        names = [line for file in lists if file.is_file() for line in file.read_text(errors="replace").splitlines()]
        described, own = _described(package, root, names)
        packages.append(described)
        texts.update(own)
    common = {}
    for file in sorted((root / COMMON).glob("*")):
        if file.is_file():
            text, digest = _text(file)
            common[file.name] = digest
            texts[digest] = text
    return Records(tuple(packages), texts, common)


def describe_package(control: str, tree: Path, names: Iterable[str], unpacked_for: str = "") -> Records:
    """Of one package that was unpacked into `tree`: what `dpkg-deb --field` and `dpkg-deb --vextract` wrote.

    `unpacked_for`: the part of the image that takes of it, if that is no layer.
    Raises: Refused if that is no control file.
    """
    (paragraph,) = read_paragraphs(control)[:1] or [{}]
    package, texts = _described(package_of(paragraph), tree, names)
    package = dataclasses.replace(package, unpacked_for=unpacked_for)
    return Records((package,), texts)


def encode(records: Records) -> str:
    """As JSON, the same text for the same records."""
    return json.dumps(dataclasses.asdict(records), sort_keys=True, indent=1) + "\n"


def decode(text: str) -> Records:
    """What `encode` wrote."""
    loaded: dict[str, Any] = json.loads(text)
    return Records(tuple(map(_package, loaded["packages"])), loaded["texts"], loaded["common"])


def path_in_root(name: str) -> str:
    """`/lib/modules/6.12/a.ko.xz` → `usr/lib/modules/6.12/a.ko`: as it lies in a root: /usr merged, modules plain."""
    path = "/".join(part for part in name.split("/") if part not in ("", "."))
    first, _, rest = path.partition("/")
    if first in _MERGED and rest:
        path = f"usr/{path}"
    head, dot, packed = path.rpartition(".ko.")
    return f"{head}.ko" if dot and packed in ("xz", "zst", "gz") else path


def _package(loaded: Mapping[str, Any]) -> InstalledPackage:
    fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in loaded.items()}
    return InstalledPackage(**fields)


def _described(package: InstalledPackage, tree: Path, names: Iterable[str]) -> tuple[InstalledPackage, dict[str, str]]:
    files = {path for name in names if (path := path_in_root(name))}
    texts = {}
    file = tree / DOCUMENTATION / package.name / "copyright"
    # The folder may be a link to that of a package of the same source; a link that leads out is not followed.
    if file.is_file() and file.resolve().is_relative_to(tree.resolve()):
        text, digest = _text(file)
        texts[digest] = text
    return dataclasses.replace(package, files=tuple(sorted(files)), licence_files=tuple(sorted(texts))), texts


def _text(file: Path) -> tuple[str, str]:
    content = file.read_bytes().decode(errors="replace")
    return content, hashlib.sha256(content.encode()).hexdigest()
