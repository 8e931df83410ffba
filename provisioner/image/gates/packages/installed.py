"""One package of the image, and how dpkg tells of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from provisioner.api.machinery.errors import Refused

_FIELD: Final = re.compile(r"([!-9;-~]+):[ \t]*(.*)")
_SOURCE: Final = re.compile(r"(\S+)(?: \((\S+)\))?")
_BUILT_USING: Final = re.compile(r"([a-z0-9][a-z0-9+.-]+)(?::\w+)? \(= ([^\s()]+)\)")
_DEPENDENCY: Final = re.compile(r"(?:^|[,|])\s*([a-z0-9][a-z0-9+.-]+)")


@dataclass(frozen=True, kw_only=True)
class InstalledPackage:
    """A Debian or Ubuntu package, as its control file names it.

    `source_version` differs from `version` where only the binary was built again. `licence_files` are digests (SHA-256,
    hexadecimal) of its copyright texts, `files` its paths relative to the root, before anything was trimmed.
    `built_using`: what is linked into it, as `<source> <version>`. `depends`: names, alternatives among them.
    `unpacked_for`: a part of the image (`kernel`, `stage1`) for which it was unpacked, and not installed in the root.
    """

    name: str
    version: str
    architecture: str
    source: str
    source_version: str
    licence_files: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    built_using: tuple[str, ...] = ()
    depends: tuple[str, ...] = ()
    unpacked_for: str = ""


def read_paragraphs(text: str) -> list[dict[str, str]]:
    """Control paragraphs, field by field; a continued line stays in its value. Source: deb-control(5).

    Raises: Refused at a line that is neither field nor continuation.
    """
    paragraphs: list[dict[str, str]] = []
    current: dict[str, str] = {}
    last = ""
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        if not line.strip():
            if current:
                paragraphs.append(current)
            current, last = {}, ""
        elif line[0] in " \t" and last:
            current[last] += "\n" + line.strip()
        elif match := _FIELD.fullmatch(line):
            last = match[1]
            current[last] = match[2].strip()
        else:
            raise Refused(
                f"line {number} of a control file is {line[:80]!r}, neither a field nor its continuation",
                hint="the package database is damaged; build the base again with --force",
            )
    return paragraphs


def package_of(control: Mapping[str, str]) -> InstalledPackage:
    """Raises: Refused if the paragraph lacks name, version or architecture."""
    missing = [key for key in ("Package", "Version", "Architecture") if not control.get(key)]
    if missing:
        raise Refused(
            f"the control file of package {control.get('Package', '?')!r} lacks {', '.join(missing)}",
            hint="the package database is damaged; build the base again with --force",
        )
    match = _SOURCE.fullmatch(control.get("Source", control["Package"]))
    return InstalledPackage(
        name=control["Package"],
        version=control["Version"],
        architecture=control["Architecture"],
        source=match[1] if match else control["Package"],
        source_version=match[2] if match and match[2] else control["Version"],
        built_using=tuple(
            f"{found[1]} {found[2]}"
            for key in ("Built-Using", "Static-Built-Using")
            for found in _BUILT_USING.finditer(control.get(key, ""))
        ),
        depends=tuple(
            dict.fromkeys(
                found[1] for key in ("Pre-Depends", "Depends") for found in _DEPENDENCY.finditer(control.get(key, ""))
            )
        ),
    )


def read_status(text: str) -> tuple[InstalledPackage, ...]:
    """The packages that are installed, of dpkg's status file, sorted. Raises: Refused if it is damaged."""
    installed = [
        package_of(control) for control in read_paragraphs(text) if control.get("Status", "").endswith(" installed")
    ]
    return tuple(sorted(installed, key=lambda package: (package.name, package.architecture)))
