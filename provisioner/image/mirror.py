"""Which package archive to use: the one that the building machine itself uses, never one of our own choosing."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from provisioner.api.errors import NotFound
from provisioner.image.recipe import Distribution

# Suites by which an entry is known to be an archive of the distribution (and not a vendor's own repository).
_SUITES = {
    "debian": re.compile(r"^(bullseye|bookworm|trixie|forky|sid|stable|testing|unstable)(-updates|-backports)?$"),
    "ubuntu": re.compile(r"^(jammy|noble|plucky|questing|resolute)(-updates|-backports)?$"),
}
_OPTIONS = re.compile(r"\[[^\]]*\]")


@dataclass(frozen=True)
class Source:
    """One entry of apt's sources."""

    uri: str
    suite: str
    components: tuple[str, ...]


def read_sources(etc_apt: Path = Path("/etc/apt")) -> tuple[Source, ...]:
    """All entries for binary packages in sources.list, sources.list.d/*.list and *.sources, in apt's order."""
    found: list[Source] = []
    for file in (etc_apt / "sources.list", *sorted((etc_apt / "sources.list.d").glob("*"))):
        if not file.is_file():
            continue
        text = file.read_text(errors="replace")
        if file.suffix == ".sources":
            found += parse_deb822(text)
        elif file.suffix == ".list":
            found += parse_one_line(text)
    return tuple(found)


def parse_one_line(text: str) -> list[Source]:
    """Entries of the style `deb [options] uri suite component…`."""
    found = []
    for line in text.splitlines():
        words = _OPTIONS.sub("", line.split("#", 1)[0]).split()
        if len(words) >= 3 and words[0] == "deb":
            found.append(Source(words[1], words[2], tuple(words[3:])))
    return found


def parse_deb822(text: str) -> list[Source]:
    """Entries of the style `Types: deb`, `URIs: …`; one for each URI and suite. Disabled stanzas are left out."""
    found = []
    for stanza in re.split(r"\n\s*\n", text):
        fields: dict[str, list[str]] = {}
        current: list[str] = []
        for line in stanza.splitlines():
            if line.startswith("#") or not line.strip():
                continue
            if line[0] in " \t":
                current += line.split()
            elif ":" in line:
                name, value = line.split(":", 1)
                current = fields.setdefault(name.strip().lower(), [])
                current += value.split()
        if "deb" not in fields.get("types", []) or fields.get("enabled") in (["no"], ["false"], ["0"]):
            continue
        found += [
            Source(uri, suite, tuple(fields.get("components", [])))
            for uri in fields.get("uris", [])
            for suite in fields.get("suites", [])
        ]
    return found


def choose_mirror(distribution: Distribution, sources: Iterable[Source], override: str | None = None) -> str:
    """URI of the archive that serves `distribution`.

    Raises: NotFound if the machine's own sources name none and there is no override.
    """
    if override:
        return override.rstrip("/")
    pattern = _SUITES.get(distribution.name)
    for source in sources:
        if pattern and pattern.match(source.suite) and "main" in source.components and "-security" not in source.uri:
            return source.uri.rstrip("/")
    raise NotFound(
        f"no package archive of {distribution.identifier} ({distribution.suite}) is known: "
        f"the apt sources of this machine name none of {distribution.name}",
        hint="give its address with --mirror, or build with a distribution that this machine has the archive of "
        "(--distribution debian on Debian)",
    )


def choose_archives(
    distribution: Distribution, sources: Iterable[Source], override: str | None = None
) -> tuple[Source, ...]:
    """What to install from: the archive with its updates, and its security archive where the machine uses such a one.

    Raises: NotFound as `choose_mirror`.
    """
    sources = tuple(sources)
    uri = choose_mirror(distribution, sources, override)
    suites = (distribution.suite, *distribution.update_suites)
    archives = tuple(Source(uri, suite, distribution.components) for suite in suites)
    security_suite = f"{distribution.suite}-security"
    if override or security_suite in suites:
        return archives
    pattern = _SUITES.get(distribution.name)
    for source in sources:
        release, _, kind = source.suite.partition("-")
        if kind == "security" and pattern and pattern.match(release) and "main" in source.components:
            return (*archives, Source(source.uri.rstrip("/"), security_suite, distribution.components))
    return archives
