"""A list of known vulnerabilities in the format of OSV, which Debian, Ubuntu and Go publish theirs in.

A file holds one record, an array of them, one a line, or is the archive `all.zip` of an ecosystem.
Source: Open Source Vulnerability format, version 1.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from provisioner.api.machinery.documents import Unreadable, read_json
from provisioner.api.machinery.errors import NotFound, Refused
from provisioner.image.gates.packages.cvss import base_score
from provisioner.image.gates.packages.debian_version import debian_key
from provisioner.image.gates.packages.semantic_version import semantic_key

_MAX_FILE: Final = 1 << 30
_MAX_RECORD: Final = 16 << 20
_MAX_RECORDS: Final = 1_000_000
_HARMLESS: Final = ("unimportant", "end-of-life")


@dataclass(frozen=True)
class Affected:
    """One package that a record is about. `fixed` is the first version without it, empty if there is none yet."""

    ecosystem: str
    name: str
    ranges: tuple[tuple[tuple[str, str], ...], ...]
    versions: frozenset[str]
    severity: float | None


@dataclass(frozen=True)
class Vulnerability:
    """`identifiers`: its own first, then all names that others have for it."""

    identifiers: tuple[str, ...]
    affected: tuple[Affected, ...]


def read_vulnerabilities(file: Path) -> Iterator[Vulnerability]:
    """Raises: NotFound without the file; Refused if it is in none of the formats, or larger than 1 GiB unpacked."""
    if not file.is_file():
        raise NotFound(f"list of vulnerabilities {file} does not exist", hint="give a file of OSV records")
    try:
        for record in _records(file):
            if not record.get("withdrawn"):
                yield _vulnerability(record)
    except (ValueError, TypeError, KeyError, AttributeError, Unreadable, zipfile.BadZipFile) as error:
        raise Refused(f"{file} is no list of OSV records: {error}", hint="fetch it again") from error


def _records(file: Path) -> Iterator[dict[str, Any]]:
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            members = [each for each in archive.infolist() if each.filename.endswith(".json")]
            if len(members) > _MAX_RECORDS or sum(each.file_size for each in members) > _MAX_FILE:
                raise ValueError(f"{len(members)} records, more than are taken")
            for member in sorted(members, key=lambda each: each.filename):
                if member.file_size > _MAX_RECORD:
                    raise ValueError(f"{member.filename} has {member.file_size} bytes")
                yield read_json(archive.read(member), _MAX_RECORD)
        return
    if file.stat().st_size > _MAX_FILE:
        raise ValueError(f"{file.stat().st_size} bytes, more than {_MAX_FILE}")
    text = file.read_text()
    try:
        loaded = read_json(text, _MAX_FILE)
    except Unreadable:
        loaded = [read_json(line, _MAX_RECORD) for line in text.splitlines() if line.strip()]
        if not loaded:
            raise ValueError("it is empty") from None
    yield from loaded if isinstance(loaded, list) else [loaded]


def _vulnerability(record: Mapping[str, Any]) -> Vulnerability:
    names = [record["id"], *record.get("aliases", []), *record.get("upstream", [])]
    if not all(isinstance(name, str) for name in names):
        raise TypeError("an identifier is no text")
    general = _severity(record.get("severity", []))
    return Vulnerability(
        tuple(dict.fromkeys(names)), tuple(_affected(each, general) for each in record.get("affected", []))
    )


def _affected(loaded: Mapping[str, Any], general: float | None) -> Affected:
    package = loaded.get("package", {})
    own = _severity(loaded.get("severity", []))
    severity = own if own is not None else general
    if loaded.get("ecosystem_specific", {}).get("urgency") in _HARMLESS:
        severity = 0.0
    return Affected(
        str(package.get("ecosystem", "")),
        str(package.get("name", "")),
        tuple(
            tuple((str(kind), str(version)) for event in each.get("events", []) for kind, version in event.items())
            for each in loaded.get("ranges", [])
            if each.get("type") in ("ECOSYSTEM", "SEMVER")
        ),
        frozenset(map(str, loaded.get("versions", []))),
        severity,
    )


def _severity(loaded: list[Mapping[str, str]]) -> float | None:
    scores = [score for each in loaded if (score := base_score(str(each.get("score", "")))) is not None]
    return max(scores, default=None)


def find_fix(affected: Affected, version: str) -> str | None:
    """None if `version` is not affected; else the version that fixes it, empty if there is none yet.

    Raises: Refused if a version cannot be compared.
    """
    key = key_of(affected.ecosystem)
    observed = key(version)
    hit, fix = version in affected.versions, ""
    for events in affected.ranges:
        inside = False
        for kind, value in sorted(events, key=lambda event: (_lower(event[1], key), event[0] == "introduced")):
            if kind == "introduced" and (value == "0" or key(value) <= observed):
                inside = True
            elif kind == "fixed" and key(value) > observed:
                fix = fix or (value if inside else "")
            elif kind == "fixed" or (kind == "last_affected" and key(value) < observed):
                inside = False
        hit = hit or inside
    return fix if hit else None


def key_of(ecosystem: str) -> Callable[[str], Any]:
    """How versions of that ecosystem sort."""
    return semantic_key if ecosystem == "Go" else debian_key


def _lower(version: str, key: Callable[[str], Any]) -> tuple[int, Any]:
    return (0, ()) if version == "0" else (1, key(version))
