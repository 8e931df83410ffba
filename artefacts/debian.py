"""Packages of Debian, downloaded with all that they depend on, and unpacked into one folder.

Nothing is installed and no script of a package runs: the architecture may be another than this machine's. The folder is
kept in the cache, named by what was asked for and by what the archives were at that time.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from artefacts.recipe import Machine
from provisioner.image.gates.packages.installed import package_of, read_paragraphs
from provisioner.image.golang import entry
from provisioner.image.mirror import AptSource, choose_archives, read_sources
from provisioner.image.recipe import Distribution
from provisioner.image.tools.command import clean_environment, run

DISTRIBUTION: Final = "debian-13"
KEYRINGS: Final = "/usr/share/keyrings"
_ARCHIVES: Final = "var/cache/apt/archives"
_RELEASE_SECONDS: Final = 30
_LARGEST_RELEASE_BYTES: Final = 4 << 20

Report = entry.Report


@dataclass(frozen=True, kw_only=True)
class DebianPackage:
    """One that was unpacked. `control`: its paragraph; `sha256` of the .deb; `files`: paths relative to the root."""

    name: str
    version: str
    architecture: str
    source: str
    sha256: str
    control: str
    files: tuple[str, ...]


@dataclass(frozen=True)
class Unpacked:
    """Packages in the cache; nothing in it is changed any more."""

    folder: Path

    @property
    def root(self) -> Path:
        return self.folder / "root"

    @property
    def packages(self) -> tuple[DebianPackage, ...]:
        """By name."""
        loaded: list[dict[str, Any]] = json.loads((self.folder / "packages.json").read_text())
        return tuple(DebianPackage(**{**each, "files": tuple(each["files"])}) for each in loaded)


def archives_of(suite: str, mirror: str | None) -> tuple[AptSource, ...]:
    """Where packages come from: `mirror`, such as one that keeps what Debian was on a day, else where this machine
    installs from. Raises: NotFound if its sources name no archive of Debian."""
    debian = Distribution(
        name="debian",
        identifier=DISTRIBUTION,
        suite=suite,
        update_suites=(),
        components=("main",),
        keyring="debian-archive",
        architectures={},
        kernel={},
        kernel_packages=(),
        install=(),
        stage1_install=(),
    )
    return choose_archives(debian, read_sources(), mirror)


def unpack(
    packages: Sequence[str], machine: Machine, archives: Sequence[AptSource], cache: Path, report: Report
) -> Unpacked:
    """The packages with their dependencies, without what is only recommended.

    Raises: NeedsHuman if an archive cannot be reached, or lacks one.
    """
    inputs = json.dumps([sorted(packages), machine, [asdict(each) for each in archives], _releases(archives)])
    folder = cache / f"packages-debian-{machine}-{hashlib.sha256(inputs.encode()).hexdigest()[:16]}"
    with entry.fill(folder, report, ()) as staging:
        if staging is not None:
            report(f"downloading {len(packages)} packages of Debian for {machine}, and what they depend on")
            _unpack_into(staging, packages, machine, archives)
    return Unpacked(folder)


def _unpack_into(staging: Path, packages: Sequence[str], machine: Machine, archives: Sequence[AptSource]) -> None:
    root = staging / "root"
    run(
        bootstrap_command(root, packages, machine, archives),
        hint=f"the archive {archives[0].uri} must be reachable and have the suite {archives[0].suite} for {machine}",
        environment=clean_environment(0),
    )
    debs = sorted((root / _ARCHIVES).glob("*.deb"))
    described = [_describe(deb) for deb in debs]
    (staging / "packages.json").write_text(json.dumps([asdict(each) for each in described], indent=1))
    shutil.rmtree(root / _ARCHIVES)


def bootstrap_command(
    root: Path, packages: Iterable[str], machine: Machine, archives: Sequence[AptSource]
) -> list[str]:
    """mmdebstrap, which unpacks and does not install."""
    return [
        "mmdebstrap",
        "--quiet",
        "--mode=root",
        "--variant=extract",
        "--format=directory",
        f"--architectures={machine}",
        "--skip=check/qemu",  # nothing of it is run
        "--skip=cleanup/apt/cache",
        f"--keyring={KEYRINGS}",
        '--aptopt=Acquire::Languages "none"',
        '--aptopt=APT::Install-Recommends "false"',
        "--aptopt=Acquire::Retries 3",
        f"--include={','.join(sorted(packages))}",
        archives[0].suite,
        str(root),
        *(f"deb {archive.uri} {archive.suite} {' '.join(archive.components)}" for archive in archives),
    ]


def _describe(deb: Path) -> DebianPackage:
    damaged = "the download is damaged; run it again"
    control = run(["dpkg-deb", "--field", str(deb)], hint=damaged).decode()
    (paragraph,) = read_paragraphs(control)
    package = package_of(paragraph)
    listed = run(["dpkg-deb", "--contents", str(deb)], hint=damaged).decode(errors="replace")
    with deb.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return DebianPackage(
        name=package.name,
        version=package.version,
        architecture=package.architecture,
        source=package.source,
        sha256=digest,
        control=control,
        files=tuple(sorted(_paths(listed))),
    )


def _paths(listed: str) -> Iterable[str]:
    """Of lines as `tar tv` writes them: everything but folders."""
    for line in listed.splitlines():
        if not line.startswith("d"):
            yield line.split(maxsplit=5)[5].split(" -> ")[0].split(" link to ")[0].removeprefix("./")


def _releases(archives: Iterable[AptSource]) -> list[str]:
    """What tells one state of an archive from another; of one that only apt can reach, nothing."""
    found = []
    for archive in archives:
        url = f"{archive.uri}/dists/{archive.suite}/InRelease"
        try:
            with urllib.request.urlopen(url, timeout=_RELEASE_SECONDS) as answer:  # noqa: S310 - of apt's own sources
                found.append(hashlib.sha256(answer.read(_LARGEST_RELEASE_BYTES)).hexdigest())
        except (urllib.error.URLError, OSError, ValueError):
            found.append("")
    return found
