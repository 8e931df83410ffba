"""No known vulnerability that is fixed already: what an offline list says, if one is given.

One without a fix fails no build (nothing could be done), and is told. One that may stay is in the recipe, with the
reason and the day on which somebody looks at it again.
"""

from __future__ import annotations

import datetime
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from provisioner.api.machinery.errors import Refused
from provisioner.image.gates.failure import GateFailure
from provisioner.image.gates.packages.go_binary import GoBuild
from provisioner.image.gates.packages.installed import InstalledPackage
from provisioner.image.gates.packages.osv import Affected, Vulnerability, find_fix, key_of

GATE: Final = "vulnerabilities"
LEAST_SEVERITY: Final = 7.0
"""CVSS calls 7.0 and more high."""
_UNTIL: Final = re.compile(r"until (\d{4}-\d{2}-\d{2}): \S.*", re.DOTALL)
_SIGNED: Final = re.compile(r"linux-signed(?:-\w+)?")


@dataclass(frozen=True, order=True)
class OsvPackage:
    """What a list can name: in an ecosystem of OSV, with a version. `found_in`: a package or a path of the image."""

    ecosystem: str
    name: str
    version: str
    found_in: str


@dataclass(frozen=True, order=True)
class Hit:
    """A vulnerability that a part of the image has. `fix` empty: none yet. `severity` None: nobody rated it."""

    identifier: str
    part: OsvPackage
    fix: str
    severity: float | None
    names: tuple[str, ...]


def parts_of(
    distribution: str, packages: Iterable[InstalledPackage], programs: Mapping[str, GoBuild]
) -> tuple[OsvPackage, ...]:
    """Sources of packages and what they are built with; modules of Go programs. `distribution`: `debian-13`."""
    name, _, release = distribution.partition("-")
    ecosystem = f"{name.capitalize()}:{release}"
    found = set()
    for package in packages:
        source, version = package.source, package.source_version
        if _SIGNED.fullmatch(source):  # the list knows the source that was signed; its version is the binary's
            source, version = "linux", package.version
        found.add(OsvPackage(ecosystem, source, version, package.name))
        for used in package.built_using:
            linked, _, linked_version = used.partition(" ")
            found.add(OsvPackage(ecosystem, linked, linked_version, package.name))
    for path, build in programs.items():
        found.add(OsvPackage("Go", "stdlib", build.toolchain.removeprefix("go"), f"/{path}"))
        found |= {OsvPackage("Go", each.path, each.version, f"/{path}") for each in build.modules}
        if build.main is not None and build.main.version.startswith("v"):
            found.add(OsvPackage("Go", build.main.path, build.main.version, f"/{path}"))
    return tuple(sorted(found))


def find_hits(parts: Iterable[OsvPackage], vulnerabilities: Iterable[Vulnerability]) -> list[Hit]:
    """What the image has of the list, sorted."""
    by_name: dict[str, list[OsvPackage]] = defaultdict(list)
    for part in parts:
        by_name[part.name].append(part)
    hits = set()
    for each in vulnerabilities:
        for affected in each.affected:
            for part in by_name.get(affected.name, ()):
                if not _same_ecosystem(part.ecosystem, affected.ecosystem):
                    continue
                if (fix := _fix(each, affected, part)) is not None:
                    hits.add(Hit(each.identifiers[0], part, fix, affected.severity, each.identifiers))
    return sorted(hits, key=lambda hit: (hit.identifier, hit.part))


def check_vulnerabilities(
    hits: Iterable[Hit], exceptions: Mapping[str, str], today: datetime.date, least: float = LEAST_SEVERITY
) -> Iterator[GateFailure]:
    """Those that have a fix and are as severe as `least`, or not rated. `exceptions`: identifier → `until …: why`."""
    ends = {}
    for identifier, reason in exceptions.items():
        match = _UNTIL.fullmatch(reason)
        try:
            ends[identifier] = datetime.date.fromisoformat(match[1]) if match else None
        except ValueError:
            ends[identifier] = None
        if ends[identifier] is None:
            yield GateFailure(
                GATE,
                identifier,
                f"an exception with the reason {reason[:60]!r}",
                "`until <YYYY-MM-DD>: <reason>`",
                "correct gates.allow-vulnerabilities of the recipe",
            )
    for hit in hits:
        if not hit.fix or (hit.severity is not None and hit.severity < least):
            continue
        ended = [end for name in hit.names if (end := ends.get(name)) is not None]
        if any(today <= end for end in ended):
            continue
        rated = "not rated" if hit.severity is None else f"CVSS {hit.severity:.1f}"
        again = f"; its exception ended on {max(ended)}" if ended else ""
        yield GateFailure(
            GATE,
            f"{hit.part.name} {hit.part.version} in {hit.part.found_in}",
            f"{', '.join(hit.names)} ({rated}){again}",
            f"{hit.fix} or newer",
            "build with today's packages (--force), or list it in gates.allow-vulnerabilities",
        )


def _fix(vulnerability: Vulnerability, affected: Affected, part: OsvPackage) -> str | None:
    try:
        key_of(affected.ecosystem)(part.version)
    except Refused:
        return None  # a version that says nothing, such as Go's (devel)
    try:
        return find_fix(affected, part.version)
    except Refused as error:
        raise Refused(
            f"record {vulnerability.identifiers[0]}: {error}", hint="correct the list, or leave it out"
        ) from error


def _same_ecosystem(own: str, listed: str) -> bool:
    """`Debian:13` is `Debian:13`, and `Ubuntu:24.04` also `Ubuntu:24.04:LTS`."""
    return listed == own or listed.startswith(f"{own}:")
