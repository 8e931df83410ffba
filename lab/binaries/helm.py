"""Helm, built from its Go module: 2 minutes on two cores, once. By it the chart is tested, and packed.

The module is pinned by the checksum of its content, and what it needs by the go.sum in it.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path
from typing import Final

from lab.binaries.cache import architecture
from provisioner.image.golang.entry import Report, fill
from provisioner.image.golang.module import PublishedModule

MODULE: Final = PublishedModule(
    path="helm.sh/helm/v4",
    version="v4.3.1",
    checksum="h1:UndCoLe9UPmNoL7IvWzaUXveL7T5t/ijoorEmgJdI9g=",
    called="Helm",
)


def obtain_helm(cache: Path, report: Report = lambda line: None) -> Path:
    """The program, from the cache or built into it.

    Raises: NeedsHuman if Go is absent or too old, the module cannot be had or is another one, or the build fails.
    """
    entry = entry_of(cache)
    with fill(entry, report, ("helm",)) as directory:
        if directory is not None:
            _build(directory, report)
    return entry / "helm"


def entry_of(cache: Path) -> Path:
    """Where a build with this recipe is in the cache."""
    recipe = json.dumps([MODULE.path, MODULE.version, MODULE.checksum, build_command(Path("out"))])
    digest = hashlib.sha256(recipe.encode()).hexdigest()[:12]
    return cache / f"helm-{MODULE.version}-build-{architecture()}-{digest}"


def build_command(folder: Path) -> tuple[str, ...]:
    """What builds the program into `folder`, in the module's own folder. No setting of the caller's counts."""
    flags = f"-s -w -X {MODULE.path}/internal/version.version={MODULE.version}"
    return (
        *("env", "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=", "GOOS=linux", f"GOARCH={architecture()}"),
        *("go", "build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", f"{folder}/"),
        "./cmd/helm",
    )


def _build(directory: Path, report: Report) -> None:
    with tempfile.TemporaryDirectory(prefix="helm-build-") as work:
        report(f"fetching the Go module {MODULE.path} {MODULE.version}")
        module = MODULE.fetch(Path(work))
        MODULE.require_go(MODULE.go(("version",), Path(work)), MODULE.go_directive(module.go_mod))
    report("building helm (2 minutes on two cores the first time)")
    MODULE.run(build_command(directory), module.folder)
