"""Where the programs of a control plane come from.

In this order: a directory that was named (`KUBEBUILDER_ASSETS`), the cache, the official release with its checksums
(`binaries_download`), a build from the Go module (`binaries_build`). The cache is addressed by content: its directory
carries the version and, for a build, the digest of the recipe.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from provisioner.api.errors import NeedsHuman

VERSION: Final = "v1.36.3"
NAMES: Final = ("kube-apiserver", "kube-controller-manager", "kubelet", "kubectl", "kube-scheduler")
DEFAULT_CACHE: Final = Path("~/.cache/provisioner")

Report = Callable[[str], None]
"""Takes a line that tells a waiting person what happens."""


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
    report: Report = lambda line: None,
) -> Binaries:
    """The programs, fetched or built if need be (a cold build takes about 6 minutes on two cores).

    `assets`: value of KUBEBUILDER_ASSETS. `tools_root`: a Debian chroot that has etcd, used if PATH has none.
    Raises: NeedsHuman with what was tried and the remedy.
    """
    cache = (cache or DEFAULT_CACHE).expanduser()
    etcd = find_etcd(assets, tools_root)
    return _binaries_in(cache / f"bin-{VERSION}", "cache", etcd)


def _binaries_in(directory: Path, source: str, etcd: tuple[str, ...]) -> Binaries:
    path = {name: directory / name for name in NAMES}
    return Binaries(
        version=VERSION,
        source=f"{source} ({directory})",
        kube_apiserver=path["kube-apiserver"],
        kube_controller_manager=path["kube-controller-manager"],
        kubelet=path["kubelet"],
        kubectl=path["kubectl"],
        kube_scheduler=path["kube-scheduler"] if path["kube-scheduler"].exists() else None,
        etcd=etcd,
    )


def missing_in(directory: Path) -> list[str]:
    """Names of the programs that `directory` lacks; the scheduler is optional."""
    wanted = [name for name in NAMES if name != "kube-scheduler"]
    return [name for name in wanted if not os.access(directory / name, os.X_OK)]


def find_etcd(assets: Path | None, tools_root: Path | None) -> tuple[str, ...]:
    """The command that runs etcd. Raises: NeedsHuman if there is none."""
    if assets is not None and os.access(assets / "etcd", os.X_OK):
        return (str(assets / "etcd"),)
    if found := shutil.which("etcd"):
        return (found,)
    if tools_root is not None and (tools_root / "usr/bin/etcd").exists():
        loaders = [path for folder in ("usr/lib64", "usr/lib") for path in (tools_root / folder).glob("ld-linux-*")]
        libraries = ":".join(str(path) for path in sorted((tools_root / "usr/lib").glob("*-linux-gnu")))
        if loaders:
            return (str(loaders[0]), "--library-path", libraries, str(tools_root / "usr/bin/etcd"))
    raise NeedsHuman("etcd not found on PATH", hint="apt-get install --no-install-recommends etcd-server")
