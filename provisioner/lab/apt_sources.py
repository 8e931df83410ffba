"""Which Debian mirror this machine installs from, read from apt's own configuration (both of its formats)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

DEFAULT_MIRROR: Final = "http://deb.debian.org/debian"


def find_debian_mirror(apt_directory: Path = Path("/etc/apt"), os_release: Path = Path("/etc/os-release")) -> str:
    """The archive from which this Debian machine installs `main`; Debian's own if it is no Debian or names none.

    A machine behind a firewall reaches its own mirror and perhaps nothing else, and that mirror has the other
    suites too.
    """
    codename = _codename(os_release.read_text() if os_release.exists() else "")
    for uri, suite, components in _entries(apt_directory):
        if suite == codename and "main" in components and uri.startswith(("http://", "https://")):
            return uri.rstrip("/")
    return DEFAULT_MIRROR


def _codename(os_release: str) -> str | None:
    fields = dict(line.split("=", 1) for line in os_release.splitlines() if "=" in line)
    if fields.get("ID", "").strip('"') != "debian":
        return None
    return fields.get("VERSION_CODENAME", "").strip('"') or None


def _entries(apt_directory: Path) -> Iterator[tuple[str, str, list[str]]]:
    parts = apt_directory / "sources.list.d"
    for path in [apt_directory / "sources.list", *sorted(parts.glob("*.list"))]:
        if path.is_file():
            yield from parse_one_line_sources(path.read_text().splitlines())
    for path in sorted(parts.glob("*.sources")):
        yield from parse_deb822_sources(path.read_text())


def parse_one_line_sources(lines: Iterable[str]) -> Iterator[tuple[str, str, list[str]]]:
    """`deb [options] URI SUITE COMPONENT…` → (URI, suite, components)."""
    for line in lines:
        words = line.split("#", 1)[0].split()
        if not words or words[0] != "deb":
            continue
        del words[0]
        if words and words[0].startswith("["):
            while words and not words[0].endswith("]"):
                del words[0]
            del words[:1]
        if len(words) >= 3:
            yield words[0], words[1], words[2:]


def parse_deb822_sources(text: str) -> Iterator[tuple[str, str, list[str]]]:
    """Stanzas of `Types`, `URIs`, `Suites`, `Components`, with continuation lines → (URI, suite, components)."""
    for stanza in text.split("\n\n"):
        fields: dict[str, list[str]] = {}
        key = ""
        for line in stanza.splitlines():
            if line.startswith("#"):
                continue
            if line[:1].isspace():
                fields.setdefault(key, []).extend(line.split())
            elif ":" in line:
                key, value = line.split(":", 1)
                key = key.lower()
                fields[key] = value.split()
        if "deb" not in fields.get("types", []) or fields.get("enabled") == ["no"]:
            continue
        for uri in fields.get("uris", []):
            for suite in fields.get("suites", []):
                yield uri, suite, fields.get("components", [])
