"""Which package archive to use: the one that the building machine itself uses, never one of our own choosing."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from provisioner.api.machinery.errors import NotFound
from provisioner.api.servers.server import Architecture
from provisioner.image.recipe import Distribution

# Suites by which an entry is known to be an archive of the distribution (and not a vendor's own repository).
_SUITES = {
    "debian": re.compile(r"^(bullseye|bookworm|trixie|forky|sid|stable|testing|unstable)(-updates|-backports)?$"),
    "ubuntu": re.compile(r"^(jammy|noble|plucky|questing|resolute)(-updates|-backports)?$"),
}
_LINE = re.compile(
    r"deb\s+(?:\[(?P<options>[^\]]*)\]\s+)?(?P<uri>(?:\[[^\]]*\]|\S)+)\s+(?P<suite>\S+)(?P<components>.*)"
)
_NETWORK = ("http://", "https://")
_OFF = frozenset({"no", "false", "without", "off", "disable", "0"})
"""As apt reads a truth value."""
_ARCHITECTURES: dict[Architecture, str] = {"x86_64": "amd64", "arm64": "arm64"}
# Ubuntu has two archives, and each has some of the architectures; every archive of Debian has all.
_UBUNTU_PORTS = re.compile(r"ports\.ubuntu\.com|/ubuntu-ports\b")
_UBUNTU_MAIN = re.compile(r"//([a-z0-9.-]+\.)?(archive|security)\.ubuntu\.com\b")


@dataclass(frozen=True)
class AptSource:
    """One entry of apt's sources. architectures: those that it is for, as Debian calls them; all if empty."""

    uri: str
    suite: str
    components: tuple[str, ...]
    architectures: tuple[str, ...] = field(default=(), compare=False)


def read_sources(etc_apt: Path = Path("/etc/apt")) -> tuple[AptSource, ...]:
    """All entries for binary packages that come by HTTP, in sources.list, sources.list.d/*.list and *.sources, in apt's
    order."""
    found: list[AptSource] = []
    for file in (etc_apt / "sources.list", *sorted((etc_apt / "sources.list.d").glob("*"))):
        if not file.is_file():
            continue
        text = file.read_text(errors="replace")
        if file.suffix == ".sources":
            found += parse_deb822(text)
        elif file.suffix == ".list":
            found += parse_one_line(text)
    return tuple(found)


def parse_one_line(text: str) -> list[AptSource]:
    """Entries of the style `deb [options] uri suite component…`; those of a CD or a folder are left out."""
    found = []
    for line in text.splitlines():
        match = _LINE.fullmatch(line.split("#", 1)[0].strip())
        if match is not None and match["uri"].startswith(_NETWORK):
            options = dict(option.partition("=")[::2] for option in (match["options"] or "").split())
            only = tuple(filter(None, options.get("arch", "").split(",")))
            found.append(AptSource(match["uri"], match["suite"], tuple(match["components"].split()), only))
    return found


def parse_deb822(text: str) -> list[AptSource]:
    """Entries of the style `Types: deb`, `URIs: …`; one for each URI and suite. What is off, of a CD or of a folder
    is left out."""
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
        is_off = bool(_OFF.intersection(word.lower() for word in fields.get("enabled", [])))
        if "deb" not in fields.get("types", []) or is_off:
            continue
        found += [
            AptSource(uri, suite, tuple(fields.get("components", [])), tuple(fields.get("architectures", [])))
            for uri in fields.get("uris", [])
            for suite in fields.get("suites", [])
            if uri.startswith(_NETWORK)
        ]
    return found


def choose_mirror(
    distribution: Distribution,
    sources: Iterable[AptSource],
    override: str | None = None,
    architecture: Architecture = "x86_64",
) -> str:
    """URI of the archive that serves `distribution`: that of an entry for its release, else for another one.

    Raises: NotFound if the machine's own sources name none and there is no override.
    """
    if override:
        return override.rstrip("/")
    pattern = _SUITES.get(distribution.name)
    found = [
        source
        for source in sources
        if pattern and pattern.match(source.suite) and "main" in source.components and "-security" not in source.uri
    ]
    if (chosen := _best(distribution, found, architecture)) is not None:
        return chosen.uri.rstrip("/")
    raise NotFound(
        f"no package archive of {distribution.identifier} ({distribution.suite}) is known: "
        f"the apt sources of this machine name none of {distribution.name} for {architecture} that is on and comes by "
        "HTTP",
        hint="give its address with --mirror, or build with a distribution that this machine has the archive of "
        "(--distribution debian on Debian)",
    )


def choose_archives(
    distribution: Distribution,
    sources: Iterable[AptSource],
    override: str | None = None,
    architecture: Architecture = "x86_64",
) -> tuple[AptSource, ...]:
    """What to install from: the archive with its updates, and its security archive where the machine uses such a one.

    Raises: NotFound as `choose_mirror`.
    """
    sources = tuple(sources)
    uri = choose_mirror(distribution, sources, override, architecture)
    suites = (distribution.suite, *distribution.update_suites)
    archives = tuple(AptSource(uri, suite, distribution.components) for suite in suites)
    security_suite = f"{distribution.suite}-security"
    if override or security_suite in suites:
        return archives
    pattern = _SUITES.get(distribution.name)
    found = []
    for source in sources:
        release, _, kind = source.suite.partition("-")
        if kind == "security" and pattern and pattern.match(release) and "main" in source.components:
            found.append(source)
    security = _best(distribution, found, architecture)
    if security is None:
        return archives
    return (*archives, AptSource(security.uri.rstrip("/"), security_suite, distribution.components))


def _best(distribution: Distribution, sources: Iterable[AptSource], architecture: Architecture) -> AptSource | None:
    """The first that is for the release and the architecture; an archive of Debian has others, too."""
    wanted = _ARCHITECTURES[architecture]

    def is_for_it(source: AptSource) -> bool:
        return not source.architectures or wanted in source.architectures

    if distribution.name == "ubuntu":
        other = _UBUNTU_PORTS if wanted == "amd64" else _UBUNTU_MAIN
        sources = [source for source in sources if is_for_it(source) and not other.search(source.uri)]

    def order(source: AptSource) -> tuple[bool, bool]:
        return source.suite.partition("-")[0] != distribution.suite, not is_for_it(source)

    return min(sources, key=order, default=None)
