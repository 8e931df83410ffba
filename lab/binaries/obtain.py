"""Where the programs of a control plane come from, in this order: a directory that was named (`KUBEBUILDER_ASSETS`),
the cache, the official release with its checksums, a build from the Go module.

The cache's directories carry the version and where they are from; for a build, the digest of its recipe too.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.binaries import build as binaries_build
from lab.binaries import download as binaries_download
from lab.binaries.cache import VERSION, Report, architecture, missing_in
from provisioner.api.machinery.errors import NeedsHuman

DEFAULT_CACHE: Final = Path("~/.cache/provisioner")
OLDEST: Final = (1, 34)


@dataclass(frozen=True)
class Binaries:
    """Programs of one Kubernetes version, and an etcd. `etcd` is a command: it may run through a foreign loader."""

    version: str
    source: str
    kube_apiserver: Path
    kube_controller_manager: Path
    kubelet: Path
    kubectl: Path
    etcd: tuple[str, ...]
    kube_scheduler: Path | None = None


def find_binaries(
    *,
    assets: Path | None = None,
    cache: Path | None = None,
    tools_root: Path | None = None,
    allow_download: bool = True,
    allow_build: bool = True,
    release_url: str = binaries_download.RELEASE_URL,
    report: Report = lambda line: None,
) -> Binaries:
    """The programs, fetched or built if need be.

    `assets`: what KUBEBUILDER_ASSETS says. `cache`: default ~/.cache/provisioner. `tools_root`: a Debian chroot whose
    etcd is used if there is none otherwise. `report` is called with a line for each step that may take long.

    Raises: NeedsHuman with what was tried and the remedy.
    """
    cache = (cache or DEFAULT_CACHE).expanduser()
    tried = []
    if assets is not None:
        missing = missing_in(assets)
        if not missing:
            return _binaries_in(assets, _version_of(assets), "KUBEBUILDER_ASSETS", tools_root)
        tried.append(f"KUBEBUILDER_ASSETS ({assets}) lacks {', '.join(missing)}")
        report(tried[-1])
    for entry in cache_entries(cache):
        if not missing_in(entry):
            return _binaries_in(entry, VERSION, "cache", tools_root)
    tried.append(f"nothing in the cache ({cache})")
    try:
        if allow_download:
            entry = binaries_download.download(cache, report, release_url=release_url)
            return _binaries_in(entry, VERSION, "release", tools_root)
    except binaries_download.Unavailable as error:
        tried.append(str(error))
        report(tried[-1])
    if not allow_build:
        raise NeedsHuman(
            f"no programs of Kubernetes {VERSION}: {'; '.join(tried)}",
            hint="run `make demo` once, which fetches or builds them, or name a directory in KUBEBUILDER_ASSETS",
        )
    try:
        return _binaries_in(binaries_build.build(cache, report), VERSION, "build", tools_root)
    except NeedsHuman as error:
        raise NeedsHuman(
            f"no programs of Kubernetes {VERSION}: {'; '.join([*tried, str(error)])}",
            hint="remedy one of these",
        ) from error


def cache_entries(cache: Path) -> tuple[Path, ...]:
    """Directories in which the programs may already be, best first."""
    return (binaries_download.entry_of(cache, architecture()), binaries_build.entry_of(cache))


def find_etcd(directory: Path, tools_root: Path | None) -> tuple[str, ...]:
    """The command that runs etcd: beside the other programs, on PATH, or of a Debian chroot.

    Raises: NeedsHuman if there is none.
    """
    if os.access(directory / "etcd", os.X_OK):
        return (str(directory / "etcd"),)
    if found := shutil.which("etcd"):
        return (found,)
    if tools_root is not None and (tools_root / "usr/bin/etcd").exists():
        loaders = [path for folder in ("usr/lib64", "usr/lib") for path in (tools_root / folder).glob("ld-linux-*")]
        libraries = ":".join(str(path) for path in sorted((tools_root / "usr/lib").glob("*-linux-gnu")))
        if loaders:
            return (str(loaders[0]), "--library-path", libraries, str(tools_root / "usr/bin/etcd"))
    raise NeedsHuman("etcd not found on PATH", hint="apt-get install --no-install-recommends etcd-server")


def _binaries_in(directory: Path, version: str, source: str, tools_root: Path | None) -> Binaries:
    scheduler = directory / "kube-scheduler"
    return Binaries(
        version=version,
        source=f"{source} ({directory})",
        kube_apiserver=directory / "kube-apiserver",
        kube_controller_manager=directory / "kube-controller-manager",
        kubelet=directory / "kubelet",
        kubectl=directory / "kubectl",
        kube_scheduler=scheduler if os.access(scheduler, os.X_OK) else None,
        etcd=find_etcd(directory, tools_root),
    )


def _version_of(assets: Path) -> str:
    """What the named API server says it is. Raises: NeedsHuman if it does not run or is too old."""
    hint = f"name a directory with Kubernetes {OLDEST[0]}.{OLDEST[1]} or newer in KUBEBUILDER_ASSETS, or none"
    command = (str(assets / "kube-apiserver"), "--version")
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout
        version: str = said.split()[-1]
        numbers = tuple(int(part) for part in version.removeprefix("v").split(".")[:2])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        raise NeedsHuman(f"{command[0]} does not say its version: {error}", hint=hint) from error
    if numbers < OLDEST:
        raise NeedsHuman(f"{command[0]} is {version}", hint=hint)
    return version
