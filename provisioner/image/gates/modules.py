"""Needed modules load: modprobe finds them and what they need, symbols are there, and the firmware they name."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from provisioner.api.machinery.errors import Refused
from provisioner.image.gates.allowed import reason_for
from provisioner.image.gates.failure import GateFailure
from provisioner.image.gates.read.kernel_module import KernelModule, read_module
from provisioner.image.gates.read.tree import Tree
from provisioner.image.tools.command import clean_environment, require
from provisioner.image.tools.foreign import ForeignPrograms

GATE: Final = "modules"
SYMBOLS: Final = "symbols"
FIRMWARE: Final = "firmware"
FOLDER: Final = "usr/lib/modules/"
_FIRMWARE: Final = "usr/lib/firmware"
_PACKED: Final = ("", ".xz", ".zst")
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
_COMPLAINT: Final = re.compile(r"modprobe: (?:FATAL|ERROR|WARNING): (.*)")
_REMEDY: Final = "add it to root.modules of the recipe (or its package), or correct gates.needed-modules"


@dataclass(frozen=True)
class ModprobeOutput:
    """What `modprobe --show-depends` said: files that it would load (relative to the root), commands, errors."""

    loads: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()


def read_modules(tree: Tree) -> tuple[dict[str, KernelModule], list[GateFailure]]:
    """All modules of the root, by path; and those that cannot be read."""
    found, failures = {}, []
    for entry in tree.files():
        if entry.path.startswith(FOLDER) and entry.path.endswith(".ko"):
            try:
                found[entry.path] = read_module(tree.content(entry.path))
            except Refused as error:
                failures.append(
                    GateFailure(GATE, f"/{entry.path}", str(error), "a kernel module", "build the base again")
                )
    return found, failures


def asked_for(tree: Tree, release: str, needed: Iterable[str]) -> tuple[str, ...]:
    """The recipe's needed modules, and what modules of the root ask for softly, by name, sorted.

    A soft dependency that is absent makes a module that loads and does nothing, or fails much later.
    """
    soft = tree.text(f"{FOLDER}{release}/modules.softdep")
    words = {word for line in re.findall(r"pre: (.*?)(?: post:|$)", soft, flags=re.MULTILINE) for word in line.split()}
    # nvidia.ko joins two names with a comma: modprobe takes that for one name, and goes on without.
    return tuple(sorted({*needed, *filter(_NAME.fullmatch, words)}))


def probe_modules(root: Path, release: str, names: Iterable[str], foreign: ForeignPrograms) -> ModprobeOutput:
    """A dry run of the root's own modprobe, for all names at once. Loads nothing."""
    require("chroot")
    command = ["chroot", str(root), "modprobe", "--set-version", release, "--show-depends", "--all", *names]
    try:
        done = subprocess.run(
            foreign.command(command),
            capture_output=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=300,
            env=clean_environment(0),
        )
    except subprocess.TimeoutExpired:
        return ModprobeOutput(errors=("modprobe had not ended after 300 s",))
    return judge_probe(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


def judge_probe(status: int, said: str, errors: str) -> ModprobeOutput:
    """Read modprobe's words. A status other than 0 without words is an error, too."""
    loads, commands = [], []
    for line in said.splitlines():
        word, _, rest = line.strip().partition(" ")
        if word == "insmod":
            loads.append(rest.split(" ")[0].lstrip("/"))
        elif word == "install":
            commands.append(rest)
    told = [match[1] for line in errors.splitlines() if (match := _COMPLAINT.match(line))]
    if status != 0 and not told:
        told = [f"modprobe ended with status {status}: {errors.strip()[:200]}"]
    return ModprobeOutput(tuple(dict.fromkeys(loads)), tuple(commands), tuple(told))


def check_modules(tree: Tree, release: str, probe: ModprobeOutput) -> Iterator[GateFailure]:
    """All that was asked for resolves, to files of the root; and modules.dep knows all modules of the root."""
    for error in probe.errors:
        yield GateFailure(GATE, "modprobe", error, "the module, and all that it needs", _REMEDY)
    for command in probe.commands:
        yield GateFailure(
            GATE,
            "modprobe",
            f"runs {command!r} in place of loading a module",
            "a module",
            "take the line `install` out of /etc/modprobe.d, or the module out of gates.needed-modules",
        )
    for path in probe.loads:
        if tree.resolve(path) is None:
            yield GateFailure(GATE, f"/{path}", "modprobe would load it, and it is not there", "a file", _REMEDY)
    folder = f"{FOLDER}{release}"
    known = dict(_dependencies(tree.text(f"{folder}/modules.dep")))
    present = {
        entry.path.removeprefix(f"{folder}/")
        for entry in tree.files()
        if entry.path.startswith(f"{folder}/") and entry.path.endswith(".ko")
    }
    for path in sorted(present - known.keys()):
        yield GateFailure(
            GATE,
            f"/{folder}/{path}",
            "modules.dep does not know it",
            "a line of its own",
            "run depmod after the last module was added",
        )
    for path in sorted({needed for each, needs in known.items() for needed in (each, *needs)} - present):
        yield GateFailure(GATE, f"/{folder}/{path}", "modules.dep names it, and it is not there", "a file", _REMEDY)


def check_symbols(
    modules: Mapping[str, KernelModule], kernel: Mapping[str, int | None] | None, allowed: Mapping[str, str]
) -> Iterator[GateFailure]:
    """Every symbol that a module takes is exported by the kernel, with the same checksum, or by a module of the root.

    `kernel` None: its exports are not known (arm64), then symbols are not judged. `allowed`: symbol → reason.
    """
    if kernel is None:
        return
    exported = {symbol for module in modules.values() for symbol in module.exports}
    for path, module in modules.items():
        for symbol, checksum in module.imports.items():
            expected = kernel.get(symbol)
            if symbol in kernel:
                if checksum is not None and expected is not None and checksum != expected:
                    yield GateFailure(
                        SYMBOLS,
                        f"/{path}",
                        f"takes {symbol} with CRC {checksum:08x}",
                        f"CRC {expected:08x}, as exported",
                        "build the module against the headers of this very kernel",
                    )
            elif symbol not in exported and reason_for(symbol, allowed) is None:
                yield GateFailure(
                    SYMBOLS,
                    f"/{path}",
                    f"takes {symbol}, which neither kernel nor module exports",
                    "an exported symbol",
                    "add the module that exports it, or build this one against the headers of this very kernel",
                )


def check_firmware(
    tree: Tree, modules: Mapping[str, KernelModule], allowed: Mapping[str, str]
) -> Iterator[GateFailure]:
    """`allowed`: names below /usr/lib/firmware that may be absent → reason."""
    for path, module in modules.items():
        for name in module.firmware:
            present = any(tree.resolve(f"{_FIRMWARE}/{name}{suffix}") for suffix in _PACKED)
            if not present and reason_for(name, allowed) is None:
                yield GateFailure(
                    FIRMWARE,
                    f"/{path}",
                    f"names firmware {name}, which is not in the root",
                    f"/{_FIRMWARE}/{name}",
                    "add its package, remove the module, or say in gates.allow-missing-firmware what happens without",
                )


def _dependencies(text: str) -> Iterator[tuple[str, list[str]]]:
    for line in text.splitlines():
        path, _, needed = line.partition(":")
        yield path, needed.split()
