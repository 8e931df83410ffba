"""A build of the programs from the Go module `k8s.io/kubernetes`, for machines that reach a Go module proxy and no
more: about 6 minutes on two cold cores, 1 minute with a warm build cache. With them the etcd of the version that this
Kubernetes is tested with: what distributions have is older than what the API server's caches need.

The published module replaces its staging modules (k8s.io/api and so on) by directories that are not in it; another
module may not use such a replacement anyway. Each is published under v0.<minor>.<patch>: a generated go.mod says so.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from lab.binaries.cache import NAMES, VERSION, Report, architecture, fill
from provisioner.api.machinery.errors import NeedsHuman
from provisioner.image.golang.module import GO_REMEDY, PublishedModule

MODULE: Final = PublishedModule(
    path="k8s.io/kubernetes",
    version=VERSION,
    checksum="h1:qDQdoMiluAE2Eab6Fa52YV+WjiGz9mZFFoagEA6cI+o=",
    called="Kubernetes",
    remedy=f"{GO_REMEDY}, or name a directory in KUBEBUILDER_ASSETS",
)
ETCD: Final = "go.etcd.io/etcd/server/v3"
"""In the version that Kubernetes' go.mod names; the API server's consistent reads from its cache need 3.5.13."""

_VERSION_PACKAGE: Final = "k8s.io/component-base/version"
_STAGING: Final = re.compile(r"^\s*(?:replace\s+)?(k8s\.io/\S+) => \./staging/src/", re.MULTILINE)
_GODEBUG: Final = re.compile(r"^godebug .*$", re.MULTILINE)


def build(cache: Path, report: Report) -> Path:
    """Build the programs into the cache; returns their directory.

    Raises: NeedsHuman if Go is absent or too old, the module cannot be had or is not the one that is known, or the
    build fails; with the end of what the failing command said.
    """
    entry = entry_of(cache)
    with fill(entry, report) as directory:
        if directory is not None:
            with tempfile.TemporaryDirectory(prefix="kubernetes-build-") as work:
                build_into(directory, Path(work), report)
                (directory / "server").rename(directory / "etcd")  # Go names a program after its package's folder
    return entry


def entry_of(cache: Path, of: str | None = None, names: Sequence[str] = NAMES) -> Path:
    """Where a build with this recipe is in the cache: of all programs for this machine, or of `names` for `of`."""
    recipe = json.dumps([VERSION, MODULE.checksum, names, _build_command(Path("out"), of, names), main_go(names)])
    digest = hashlib.sha256(recipe.encode()).hexdigest()[:12]
    return cache / f"{_called(names)}-{VERSION}-build-{of or architecture()}-{digest}"


def _called(names: Sequence[str]) -> str:
    return "bin" if tuple(names) == NAMES else "-".join(names)


def build_into(
    directory: Path, work: Path, report: Report, of: str | None = None, names: Sequence[str] = NAMES
) -> None:
    """Build the programs for `of`, an architecture in Go's words (this machine's if None). Raises: as `build`."""
    report(f"fetching the Go module {MODULE.path} {VERSION}")
    upstream = MODULE.fetch(work).go_mod
    (work / "go.mod").write_text(render_go_mod(upstream))
    (work / "programs.go").write_text(main_go(names))
    MODULE.require_go(MODULE.go(("version",), work), MODULE.go_directive(upstream))
    report("fetching the modules that it needs")
    MODULE.go(("mod", "tidy"), work)
    report(f"building {', '.join(names)} for {of or architecture()} (2 to 6 minutes on two cores the first time)")
    MODULE.run(_build_command(directory, of, names), work)


def render_go_mod(upstream: str) -> str:
    """The go.mod of a module that builds Kubernetes' commands, from Kubernetes' own go.mod."""
    staging = sorted(set(_STAGING.findall(upstream)))
    if not staging:
        raise NeedsHuman(
            f"{MODULE.path} {VERSION} names no staging modules", hint="its layout changed: adapt the recipe"
        )
    published = VERSION.replace("v1.", "v0.", 1)
    lines = [
        "module provisioner.dev/lab/kubernetes",
        "",
        f"go {MODULE.go_directive(upstream)}",
        *_GODEBUG.findall(upstream),
    ]
    lines += [f"require {MODULE.path} {VERSION}", "", "replace ("]
    lines += [f"\t{module} => {module} {published}" for module in staging]
    return "\n".join([*lines, ")", ""])


def main_go(names: Sequence[str] = NAMES) -> str:
    """A file that imports the commands, so that `go mod tidy` keeps what they need."""
    imports = "".join(f'\t_ "{package}"\n' for package in _packages(names))
    return f"//go:build programs\n\npackage programs\n\nimport (\n{imports})\n"


def _build_command(directory: Path, of: str | None = None, names: Sequence[str] = NAMES) -> tuple[str, ...]:
    major, minor, _ = VERSION.removeprefix("v").split(".")
    stamps = {"gitVersion": VERSION, "gitMajor": major, "gitMinor": minor, "gitTreeState": "archive"}
    flags = " ".join(["-s -w", *(f"-X {_VERSION_PACKAGE}.{name}={value}" for name, value in stamps.items())])
    return (
        *("env", "CGO_ENABLED=0", "GOWORK=off", *([f"GOARCH={of}"] if of else [])),
        *("go", "build", "-mod=mod", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", f"{directory}/"),
        *_packages(names),
    )


def _packages(names: Sequence[str]) -> tuple[str, ...]:
    # etcd comes with all of them, which are a control plane.
    return (*(f"{MODULE.path}/cmd/{name}" for name in names), *([ETCD] if tuple(names) == NAMES else []))
