"""A list of known vulnerabilities in the format of OSV, which Debian, Ubuntu and Go publish theirs in.

A file holds one record, an array of them, one a line, or is the archive `all.zip` of an ecosystem.
Source: Open Source Vulnerability format, version 1.
"""

from __future__ import annotations

import math
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from provisioner.api.machinery.documents import Unreadable, read_json
from provisioner.api.machinery.errors import NotFound, Refused

# Which of two versions of a Go module is the newer one. Source: Semantic Versioning 2.0.0, chapter 11.

_VERSION: Final = re.compile(r"v?(\d{1,9})(?:\.(\d{1,9}))?(?:\.(\d{1,9}))?(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]*)?")
_TOOLCHAIN: Final = re.compile(r"(\d+\.\d+)(rc|beta)(\d+)")

SemanticKey = tuple[tuple[int, int, int], int, tuple[tuple[int, int, str], ...]]


def semantic_key(version: str) -> SemanticKey:
    """What sorts as the standard says. Raises: Refused if it is no version."""
    if toolchain := _TOOLCHAIN.fullmatch(version):  # Go's own: 1.27rc1
        version = f"{toolchain[1]}.0-{toolchain[2]}.{toolchain[3]}"
    match = _VERSION.fullmatch(version)
    if match is None:
        raise Refused(f"{version[:80]!r} is no semantic version", hint="check the list it comes from")
    numbers = (int(match[1]), int(match[2] or 0), int(match[3] or 0))
    before = tuple(
        (0, int(word), "") if word.isdecimal() else (1, 0, word) for word in (match[4] or "").split(".") if word
    )
    return numbers, 0 if before else 1, before


# Which of two versions of a Debian package is the newer one, as dpkg says. Source: deb-version(7).

_PART: Final = re.compile(r"([^0-9]*)([0-9]*)")
_ALLOWED: Final = re.compile(r"(?:(\d{1,9}):)?([0-9A-Za-z.+~:-]+?)(?:-([0-9A-Za-z.+~]+))?")

DebianKey = tuple[int, tuple[tuple[tuple[int, ...], int], ...], tuple[tuple[tuple[int, ...], int], ...]]


def debian_key(version: str) -> DebianKey:
    """What sorts as dpkg sorts. Raises: Refused if it is no version."""
    match = _ALLOWED.fullmatch(version)
    if match is None:
        raise Refused(f"{version[:80]!r} is no version of a Debian package", hint="check the list it comes from")
    return int(match[1] or 0), _parts(match[2]), _parts(match[3] or "")


def _parts(text: str) -> tuple[tuple[tuple[int, ...], int], ...]:
    """Pairs of what is no digit and a number; an end, which is less than all but `~`, behind each and behind all."""
    found = [
        (tuple(map(_order, letters)), int(digits or 0)) for letters, digits in _PART.findall(text) if letters or digits
    ]
    return (*(((*letters, 0), number) for letters, number in found or [((), 0)]), ((0,), 0))


def _order(character: str) -> int:
    """`~` before the end, the end before letters, letters before all others."""
    if character == "~":
        return -1
    return ord(character) if character.isalpha() else ord(character) + 256


# How bad a vulnerability is: the base score of a CVSS 3 vector. Source: FIRST, CVSS v3.1 specification, chapter 7.

_WEIGHTS: Final = {
    "AV": {"N": 0.85, "A": 0.62, "L": 0.55, "P": 0.2},
    "AC": {"L": 0.77, "H": 0.44},
    "UI": {"N": 0.85, "R": 0.62},
    "C": {"H": 0.56, "L": 0.22, "N": 0.0},
    "I": {"H": 0.56, "L": 0.22, "N": 0.0},
    "A": {"H": 0.56, "L": 0.22, "N": 0.0},
}
_PRIVILEGES: Final = {"U": {"N": 0.85, "L": 0.62, "H": 0.27}, "C": {"N": 0.85, "L": 0.68, "H": 0.5}}
_PREFIXES: Final = ("CVSS:3.0/", "CVSS:3.1/")
_WORDS: Final = {"negligible": 0.0, "low": 3.9, "medium": 6.9, "high": 8.9, "critical": 10.0}


def base_score(vector: str) -> float | None:
    """0.0 to 10.0; None if it is no whole vector of CVSS 3, or a word that distributions use (`high`)."""
    if vector.lower() in _WORDS:
        return _WORDS[vector.lower()]
    if not vector.startswith(_PREFIXES):
        return None
    metrics = dict(part.split(":", 1) for part in vector.split("/")[1:] if ":" in part)
    scope = metrics.get("S", "")
    try:
        weight = {name: weights[metrics[name]] for name, weights in _WEIGHTS.items()}
        privileges = _PRIVILEGES[scope][metrics["PR"]]
    except KeyError:
        return None
    base = 1 - (1 - weight["C"]) * (1 - weight["I"]) * (1 - weight["A"])
    impact = 6.42 * base if scope == "U" else 7.52 * (base - 0.029) - 3.25 * (base - 0.02) ** 15
    if impact <= 0:
        return 0.0
    exploitability = 8.22 * weight["AV"] * weight["AC"] * privileges * weight["UI"]
    return _rounded_up(min((1.0 if scope == "U" else 1.08) * (impact + exploitability), 10.0))


def _rounded_up(score: float) -> float:
    """To one decimal, up; in whole numbers, as the specification's appendix A does it."""
    whole = round(score * 100_000)
    return whole / 100_000 if whole % 10_000 == 0 else (math.floor(whole / 10_000) + 1) / 10


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
