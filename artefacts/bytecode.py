"""Byte-code of a layer's modules, made by the Python that will run them, wherever the folder lies.

A container's root is read-only and starts often: without it each start would compile everything anew. It is the same
for all architectures, so that the Python of this machine's own compiles for the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from provisioner.image.tools.command import clean_environment, run

_FOLDERS: Final = ("usr/lib/python3.13", "usr/local/lib/python3.13")


def compile_modules(stage: Path, python_root: Path) -> None:
    """Compile all modules below `stage`, with the Python unpacked in `python_root`, which fits this machine.

    What is imported is checked by no time and no hash: nothing in the image changes. Raises: NeedsHuman.
    """
    folders = [str(stage / folder) for folder in _FOLDERS if (stage / folder).is_dir()]
    if folders:
        run(
            _command(python_root, stage, folders),
            hint="correct the sources that it names",
            environment={**clean_environment(0), "PYTHONHOME": str(python_root / "usr"), "PYTHONNOUSERSITE": "1"},
        )


def _command(python_root: Path, stage: Path, folders: Iterable[str]) -> list[str]:
    # Through its own loader: this machine's C library may be older.
    (loader,) = python_root.glob("usr/lib/*/ld-linux-*.so.*")
    return [
        str(loader),
        *("--library-path", str(loader.parent)),
        str(python_root / "usr/bin/python3.13"),
        *("-S", "-B", "-m", "compileall", "-q", "-f", "-j", "1", "--invalidation-mode", "unchecked-hash"),
        *("-s", str(stage), "-p", "/"),
        *folders,
    ]
