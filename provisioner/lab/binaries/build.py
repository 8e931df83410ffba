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
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from provisioner.api.errors import NeedsHuman
from provisioner.lab.binaries.cache import NAMES, VERSION, Report, architecture, fill

MODULE: Final = "k8s.io/kubernetes"
MODULE_SUM: Final = "h1:qDQdoMiluAE2Eab6Fa52YV+WjiGz9mZFFoagEA6cI+o="  # of VERSION, as go.sum would have it
ETCD: Final = "go.etcd.io/etcd/server/v3"
"""In the version that Kubernetes' go.mod names; the API server's consistent reads from its cache need 3.5.13."""
GO_REMEDY: Final = "install Go {wanted} or newer (https://go.dev/dl), or name a directory in KUBEBUILDER_ASSETS"

_VERSION_PACKAGE: Final = "k8s.io/component-base/version"
_STAGING: Final = re.compile(r"^\s*(?:replace\s+)?(k8s\.io/\S+) => \./staging/src/", re.MULTILINE)
_GO_DIRECTIVE: Final = re.compile(r"^go (\d+\.\d+(?:\.\d+)?)$", re.MULTILINE)
_GODEBUG: Final = re.compile(r"^godebug .*$", re.MULTILINE)
_GO_VERSION: Final = re.compile(r"\bgo(\d+)\.(\d+)(?:\.(\d+))?")


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
    recipe = json.dumps([VERSION, MODULE_SUM, names, _build_command(Path("out"), of, names), main_go(names)])
    digest = hashlib.sha256(recipe.encode()).hexdigest()[:12]
    return cache / f"{_called(names)}-{VERSION}-build-{of or architecture()}-{digest}"


def _called(names: Sequence[str]) -> str:
    return "bin" if tuple(names) == NAMES else "-".join(names)


def build_into(
    directory: Path, work: Path, report: Report, of: str | None = None, names: Sequence[str] = NAMES
) -> None:
    """Build the programs for `of`, an architecture in Go's words (this machine's if None). Raises: as `build`."""
    report(f"fetching the Go module {MODULE} {VERSION}")
    found = json.loads(_go(("mod", "download", "-json", f"{MODULE}@{VERSION}"), work))
    if found.get("Sum") != MODULE_SUM:
        raise NeedsHuman(
            f"Go module {MODULE} {VERSION} has checksum {found.get('Sum')}, known is {MODULE_SUM}",
            hint="do not use it; see what stands between this machine and the module proxy",
        )
    upstream = Path(found["GoMod"]).read_text()
    (work / "go.mod").write_text(render_go_mod(upstream))
    (work / "programs.go").write_text(main_go(names))
    require_go(_go(("version",), work), _go_directive(upstream))
    report("fetching the modules that it needs")
    _go(("mod", "tidy"), work)
    report(f"building {', '.join(names)} for {of or architecture()} (2 to 6 minutes on two cores the first time)")
    _run(_build_command(directory, of, names), work)


def render_go_mod(upstream: str) -> str:
    """The go.mod of a module that builds Kubernetes' commands, from Kubernetes' own go.mod."""
    staging = sorted(set(_STAGING.findall(upstream)))
    if not staging:
        raise NeedsHuman(f"{MODULE} {VERSION} names no staging modules", hint="its layout changed: adapt the recipe")
    published = VERSION.replace("v1.", "v0.", 1)
    lines = ["module provisioner.dev/lab/kubernetes", "", f"go {_go_directive(upstream)}", *_GODEBUG.findall(upstream)]
    lines += [f"require {MODULE} {VERSION}", "", "replace ("]
    lines += [f"\t{module} => {module} {published}" for module in staging]
    return "\n".join([*lines, ")", ""])


def main_go(names: Sequence[str] = NAMES) -> str:
    """A file that imports the commands, so that `go mod tidy` keeps what they need."""
    imports = "".join(f'\t_ "{package}"\n' for package in _packages(names))
    return f"//go:build programs\n\npackage programs\n\nimport (\n{imports})\n"


def require_go(version_output: str, wanted: str) -> None:
    """Raises: NeedsHuman if `go version` said an older one than `wanted` (`1.26.0`)."""
    found = _GO_VERSION.search(version_output)
    have = tuple(int(part or 0) for part in found.groups()) if found else (0, 0, 0)
    numbers = [int(part) for part in wanted.split(".")]
    if have < tuple(numbers + [0] * (3 - len(numbers))):
        observed = ".".join(str(part) for part in have) if found else version_output.strip()
        raise NeedsHuman(f"Go {observed} is too old for Kubernetes {VERSION}", hint=GO_REMEDY.format(wanted=wanted))


def _go_directive(upstream: str) -> str:
    found = _GO_DIRECTIVE.search(upstream)
    if found is None:
        raise NeedsHuman(f"{MODULE} {VERSION} says no Go version", hint="its layout changed: adapt the recipe")
    return found.group(1)


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
    return (*(f"{MODULE}/cmd/{name}" for name in names), *([ETCD] if tuple(names) == NAMES else []))


def _go(arguments: Sequence[str], work: Path) -> str:
    return _run(("env", "GOWORK=off", "go", *arguments), work)


def _run(command: Sequence[str], work: Path) -> str:
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
    words = "\n".join((done.stderr or done.stdout).strip().splitlines()[-15:])
    if done.returncode == 127:  # from env: no such program
        raise NeedsHuman("Go is not installed", hint=GO_REMEDY.format(wanted="1.26"))
    if done.returncode != 0:
        shown = " ".join(command[command.index("go") :][:3])
        message = f"`{shown} …` ended with status {done.returncode}:\n{words}\n"
        raise NeedsHuman(message, hint="remedy that and try again")
    return done.stdout
