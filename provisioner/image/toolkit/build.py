"""The two programs of NVIDIA's container toolkit that CDI needs, built from its Go module: 40 s on two cores, once.

`nvidia-ctk` writes the CDI specification at boot, `nvidia-cdi-hook` is what containerd's runtime calls for each
container by that specification. Not built: `nvidia-container-runtime` and its hook, which do the same for runtimes that
know no CDI, and would stand between containerd and runc for every container.

The module is pinned by the checksum of its content, and what it needs by the go.sum in it. NVML is loaded at run time
(dlopen), hence cgo and a C compiler for the image's architecture; the programs need a glibc of 2.34 or newer.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from pathlib import Path
from typing import Final

from provisioner.api.machinery.errors import NeedsHuman
from provisioner.api.servers.server import Architecture
from provisioner.image.containerd.compile import compiler
from provisioner.image.containerd.pause import GO_NAMES
from provisioner.image.golang.entry import Report, fill
from provisioner.image.golang.module import PublishedModule

MODULE: Final = PublishedModule(
    path="github.com/NVIDIA/nvidia-container-toolkit",
    version="v1.20.1",
    checksum="h1:DsE0Pnu2XAl7IC00W2tmld7i/GerwnZGzRbmChj295Q=",
    called="NVIDIA's container toolkit",
)
PROGRAMS: Final = ("nvidia-ctk", "nvidia-cdi-hook")
LICENCE: Final = Path("usr/share/licenses/nvidia-container-toolkit/LICENSE")

_FOLDER: Final = Path("usr/bin")
_HEADERS: Final[dict[Architecture, str]] = {"x86_64": "libc6-dev-amd64-cross", "arm64": "libc6-dev-arm64-cross"}
# As the toolkit's own Makefile has them: NVML's symbols are looked up when its library is there.
_LINKED: Final = "-Wl,--export-dynamic -Wl,--unresolved-symbols=ignore-in-object-files -Wl,-z,lazy -Wl,--build-id=none"


def obtain_toolkit(architecture: Architecture, cache: Path, report: Report = lambda line: None) -> Path:
    """A tree to lay over a root: the programs in usr/bin, and their licence. From `cache`, or built into it.

    Raises: NeedsHuman if Go or a C compiler for `architecture` is absent, the module cannot be had or is another one,
    or the build fails.
    """
    entry = cache / f"nvidia-container-toolkit-{MODULE.version}-{GO_NAMES[architecture]}-{fingerprint(architecture)}"
    with fill(entry, report, [str(_FOLDER / name) for name in PROGRAMS]) as tree:
        if tree is not None:
            _build(architecture, tree, report)
    return entry


def fingerprint(architecture: Architecture) -> str:
    """Names what the programs follow from: the module, the commands, and the versions of the compilers.

    Raises: NeedsHuman if Go or the C compiler is absent.
    """
    if shutil.which(compiler(architecture)) is None:
        raise NeedsHuman(
            f"{MODULE.called} for {architecture} is compiled, and {compiler(architecture)} is not on this machine",
            hint=f"apt-get install gcc libc6-dev (on a machine of {architecture}), or its cross compiler and "
            f"{_HEADERS[architecture]}",
        )
    with tempfile.TemporaryDirectory(prefix="toolkit-") as work:
        go = MODULE.go(("env", "GOVERSION"), Path(work))
        c = MODULE.run(("env", compiler(architecture), "-dumpfullversion"), Path(work))
    recipe = [MODULE.path, MODULE.version, MODULE.checksum, build_command(architecture, Path("out")), go, c]
    return hashlib.sha256(json.dumps(recipe).encode()).hexdigest()[:12]


def build_command(architecture: Architecture, folder: Path) -> tuple[str, ...]:
    """What builds the programs into `folder`, in the module's own folder. No setting of the caller's counts."""
    version = f"-X {MODULE.path}/internal/info.version={MODULE.version.removeprefix('v')}"
    environment = {
        "GOWORK": "off",
        "GOFLAGS": "",
        "GOOS": "linux",
        "GOARCH": GO_NAMES[architecture],
        "GOAMD64": "v1",
        "GOARM64": "v8.0",
        "CGO_ENABLED": "1",
        "CC": compiler(architecture),
        "CGO_CFLAGS": "-g -O2",  # Go's default; what the compiler knows for debuggers, -s and -w leave out
        "CGO_LDFLAGS": "",
    }
    return (
        *("env", *(f"{name}={value}" for name, value in environment.items())),
        *("go", "build", "-mod=readonly", "-trimpath", "-buildvcs=false"),
        *("-ldflags", f"-s -w '-extldflags={_LINKED}' {version}", "-o", f"{folder}/"),
        *(f"./cmd/{name}" for name in PROGRAMS),
    )


def _build(architecture: Architecture, tree: Path, report: Report) -> None:
    with tempfile.TemporaryDirectory(prefix="toolkit-") as work:
        report(f"fetching the Go module {MODULE.path} {MODULE.version}")
        module = MODULE.fetch(Path(work))
        MODULE.require_go(MODULE.go(("version",), tree), MODULE.go_directive(module.go_mod))
        (tree / _FOLDER).mkdir(parents=True)
        report(f"building {', '.join(PROGRAMS)} for {architecture} (40 s on two cores the first time)")
        # cgo compiles from a file that it writes there, beside which the compiler looks for headers first: in /tmp
        # anybody's nvml.h would be taken for that of the module.
        command = ("env", f"TMPDIR={work}", *build_command(architecture, tree / _FOLDER))
        MODULE.run(command, module.folder)
    for name in PROGRAMS:
        (tree / _FOLDER / name).chmod(0o755)
    (tree / LICENCE).parent.mkdir(parents=True)
    shutil.copyfile(module.folder / "LICENSE", tree / LICENCE)
    (tree / LICENCE).chmod(0o644)
