"""etcdctl and etcdutl, built from etcd's Go modules in the version that the lab's etcd has: 30 s on two cores, once.

They save and restore snapshots (docs/backup.md). An entry of the cache of their own: another one of the control plane's
programs would have all of Kubernetes compiled anew.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.binaries.cache import Report, architecture, fill
from provisioner.image.golang.module import PublishedModule

VERSION: Final = "v3.6.8"
"""Of the etcd that Kubernetes' go.mod names: `etcd --version` of the lab's binaries."""
PROGRAMS: Final = ("etcdctl", "etcdutl")
MODULES: Final = (
    PublishedModule(
        "go.etcd.io/etcd/etcdctl/v3", VERSION, "h1:iO3zX9xuY/X2Y+fnt6mUR7o/18iBGYpd/lhs/4FqHCc=", "etcdctl"
    ),
    PublishedModule(
        "go.etcd.io/etcd/etcdutl/v3", VERSION, "h1:5YolVcLplhVwSR7IXemN7kBpx/L4qHAmyNc+iW+PL/k=", "etcdutl"
    ),
)


@dataclass(frozen=True)
class EtcdTools:
    """`etcdctl` talks to a running etcd, `etcdutl` works on files."""

    etcdctl: Path
    etcdutl: Path


def entry_of(cache: Path) -> Path:
    """Where a build with this recipe is in the cache."""
    recipe = [VERSION, [module.checksum for module in MODULES], _build_command(Path("out")), _main_go()]
    digest = hashlib.sha256(json.dumps(recipe).encode()).hexdigest()[:12]
    return cache / f"etcd-tools-{VERSION}-{architecture()}-{digest}"


def obtain_etcd_tools(cache: Path, report: Report = lambda line: None) -> EtcdTools:
    """Both programs, from `cache` or built into it.

    Raises: NeedsHuman if Go is absent or too old, a module cannot be had or is not the one that is known, or the build
    fails.
    """
    entry = entry_of(cache)
    with fill(entry, report, PROGRAMS) as directory:
        if directory is not None:
            with tempfile.TemporaryDirectory(prefix="etcd-tools-") as work:
                _build(directory, Path(work), report)
    return EtcdTools(entry / "etcdctl", entry / "etcdutl")


def _build(directory: Path, work: Path, report: Report) -> None:
    report(f"fetching the Go modules of etcdctl and etcdutl {VERSION}")
    directives = []
    for module in MODULES:
        directives.append(module.go_directive(module.fetch(work).go_mod))
        module.require_go(module.go(("version",), work), directives[-1])
    needed = [f"require {module.path} {VERSION}" for module in MODULES]
    (work / "go.mod").write_text("\n".join(["module provisioner.dev/lab/etcd", f"go {max(directives)}", *needed, ""]))
    (work / "programs.go").write_text(_main_go())
    MODULES[0].go(("mod", "tidy"), work)
    report("building etcdctl and etcdutl (30 s on two cores the first time)")
    MODULES[0].run(_build_command(directory), work)


def _main_go() -> str:
    imports = "".join(f'\t_ "{module.path}"\n' for module in MODULES)
    return f"//go:build programs\n\npackage programs\n\nimport (\n{imports})\n"


def _build_command(directory: Path) -> tuple[str, ...]:
    return (
        *("env", "CGO_ENABLED=0", "GOWORK=off", "go", "build", "-mod=mod", "-trimpath", "-buildvcs=false"),
        *("-ldflags", "-s -w", "-o", f"{directory}/", *(module.path for module in MODULES)),
    )
