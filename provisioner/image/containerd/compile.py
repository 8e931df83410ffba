"""The pause program: pause.c beside this file, compiled when an image is built, for whichever architecture it is.

Freestanding C needs a compiler and no libc: Debian's cross compilers make it for the other architecture as well. The
bytes follow from source, options and compiler alone; an image whose compiler is another one is another image.
"""

from __future__ import annotations

import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

from provisioner.api.machinery.errors import NeedsHuman
from provisioner.api.servers.server import Architecture
from provisioner.image.tools.command import clean_environment, run

SOURCE: Final = Path(__file__).with_name("pause.c")

_TRIPLETS: Final[dict[Architecture, str]] = {"x86_64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}
_PACKAGES: Final[dict[Architecture, str]] = {"x86_64": "gcc-x86-64-linux-gnu", "arm64": "gcc-aarch64-linux-gnu"}
_OPTIONS: Final = (
    *("-std=c11", "-Wall", "-Wextra", "-Werror", "-Os"),
    # No libc, and at its entry no aligned stack, which vector registers would need.
    *("-ffreestanding", "-nostdlib", "-static", "-no-pie", "-fno-pie", "-mgeneral-regs-only"),
    # Nothing in the file but the program: no tables, no canary, no compiler's name, no build id.
    *("-fno-stack-protector", "-fno-asynchronous-unwind-tables", "-fno-ident", "-s", "-Wl,--build-id=none"),
    # Segments: what runs cannot be written to, and the stack does not run.
    *("-Wl,-z,noexecstack", "-Wl,-z,noseparate-code"),
)
_OPTIONS_FOR: Final[dict[Architecture, tuple[str, ...]]] = {"x86_64": ("-fcf-protection=none",), "arm64": ()}


def compiler(architecture: Architecture) -> str:
    """Name of the compiler that makes programs for `architecture`; Debian calls it so on machines of either one."""
    return f"{_TRIPLETS[architecture]}-gcc"


@cache
def pause_program(architecture: Architecture) -> bytes:
    """A static ELF program, some 600 bytes. Raises: NeedsHuman naming the package if there is no compiler."""
    name = compiler(architecture)
    if shutil.which(name) is None:
        raise NeedsHuman(
            f"the pause program for {architecture} is compiled, and {name} is not on this machine",
            hint=f"apt-get install gcc (on a machine of {architecture}) or {_PACKAGES[architecture]} (on another)",
        )
    with tempfile.TemporaryDirectory(prefix="pause-") as folder:
        made = Path(folder) / "pause"
        run(
            [name, *_OPTIONS, *_OPTIONS_FOR[architecture], "-o", str(made), str(SOURCE)],
            hint=f"use GCC 10 or newer for {architecture}",
            environment=clean_environment(0),
        )
        return made.read_bytes()
