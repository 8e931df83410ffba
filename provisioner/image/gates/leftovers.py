"""What a build leaves behind and no server needs: caches, lists of packages, logs, and byte-code that fits no source.

Nothing is newer than the recipe says, in what is packed and in what files say of themselves.
"""

from __future__ import annotations

import _imp
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Final

from provisioner.api.machinery.wording import quantity
from provisioner.image.gates.allowed import reason_for
from provisioner.image.gates.failure import GateFailure
from provisioner.image.gates.read.squashfs import Squashfs
from provisioner.image.gates.read.tree import Tree, TreeEntry

GATE: Final = "leftovers"
TIMES: Final = "times"
PYTHON: Final = "python"
_LEFT: Final[Mapping[str, str]] = {
    "var/cache/**": "a cache",
    "var/lib/apt/**": "a list of apt",
    "etc/apt/**": "configuration of apt, which is not in the root",
    "var/lib/dpkg/info/**": "a list of dpkg",
    "var/lib/dpkg/*-old": "a copy that dpkg kept",
    "provisioner-debs/**": "a package that was unpacked already",
    "var/log/**": "a log of the build",
    "tmp/**": "a temporary file of the build",
    "var/tmp/**": "a temporary file of the build",
    "run/**": "state of the machine that built it",
    "root/**": "a file of the person who built it",
    "home/**": "a file of the person who built it",
    "**/*.deb": "a package",
    "**/*.dpkg-new": "a package's unfinished file",
    "**/*.dpkg-old": "a file that dpkg replaced",
    "**/*.dpkg-dist": "a file that dpkg did not take",
    "**/*.dpkg-tmp": "a package's unfinished file",
    "**/*.ucf-old": "a file that ucf replaced",
    "**/*.orig": "what a patch left",
    "**/*~": "what an editor left",
    "**/*.swp": "what an editor left",
    "**/.git/**": "a repository",
    "**/.cache/**": "a cache",
    "**/core": "a core dump",
    "boot/**": "what boots from a disk",
}
_PYC_HEADER: Final = 16
_HASH_BASED, _CHECKED = 0b01, 0b10
_DAY_SECONDS: Final = 86400


def check_leftovers(tree: Tree, kept: Mapping[str, str]) -> Iterator[GateFailure]:
    """`kept`: paths that may stay, with the reason."""
    for entry in tree.files():
        what = reason_for(entry.path, _LEFT)
        if what is not None and reason_for(entry.path, kept) is None:
            yield GateFailure(
                GATE,
                f"/{entry.path}",
                f"{what}, {entry.size_bytes} bytes",
                "nothing that only the build needed",
                "add it to root.remove of the recipe",
            )


def check_times(tree: Tree, epoch: int) -> Iterator[GateFailure]:
    """Nothing says a time after the recipe's `source-date-epoch`, in seconds: it would be another one at each build."""
    day = epoch // _DAY_SECONDS
    for line in tree.text("etc/shadow").splitlines():
        name, _, rest = line.partition(":")
        changed = rest.split(":")[1:2]
        if changed and changed[0].isdigit() and int(changed[0]) > day:
            yield GateFailure(
                TIMES,
                "/etc/shadow",
                f"account {name!r} was changed on day {changed[0]}",
                f"day {day} or before",
                "write the day of source-date-epoch",
            )
    for entry in tree.files():
        # gzip writes when it packed: bytes 4 to 8 of its header. Source: RFC 1952.
        if entry.head[:3] == b"\x1f\x8b\x08" and (packed := int.from_bytes(entry.head[4:8], "little")) > epoch:
            yield GateFailure(
                TIMES,
                f"/{entry.path}",
                f"packed at {packed}",
                f"{epoch} or before",
                "pack it with gzip -n, or remove it",
            )


def check_packed_times(packed: Mapping[str, Squashfs], epoch: int) -> Iterator[GateFailure]:
    """Every file of every layer, and the layer itself, is as old as the recipe says: `epoch`, in seconds."""
    remedy = "pack it with mksquashfs -all-time and -mkfs-time"
    for layer, squashfs in packed.items():
        if squashfs.made > epoch:
            yield GateFailure(TIMES, f"layer {layer}", f"made at {squashfs.made}", f"{epoch} or before", remedy)
        newer = [file for file in squashfs.files if file.changed > epoch]
        if newer:
            observed = f"{quantity(len(newer), 'file')} changed after it, /{newer[0].path} at {newer[0].changed}"
            yield GateFailure(TIMES, f"layer {layer}", observed, f"{epoch} or before", remedy)


def check_python(tree: Tree) -> Iterator[GateFailure]:
    """Byte-code is taken unchecked on a server: it must be that of the source beside it, and be there."""
    for entry in tree.files():
        path = PurePosixPath(entry.path)
        if path.suffix == ".pyc":
            yield from _check_compiled(tree, entry, path)


def _check_compiled(tree: Tree, entry: TreeEntry, path: PurePosixPath) -> Iterator[GateFailure]:
    remedy = "compile it after the last change of its source"
    source = f"{path.parent.parent}/{path.name.split('.', 1)[0]}.py"
    if path.parent.name != "__pycache__" or source not in tree.entries:
        yield GateFailure(PYTHON, f"/{entry.path}", "no source beside it", f"/{source}", "remove one with the other")
        return
    flags = int.from_bytes(entry.head[4:8], "little")
    if len(entry.head) < _PYC_HEADER or not flags & _HASH_BASED or flags & _CHECKED:
        yield GateFailure(
            PYTHON,
            f"/{entry.path}",
            "it goes by the time of its source, or is checked at each start",
            "an unchecked hash (PEP 552)",
            "compile with --invalidation-mode unchecked-hash",
        )
        return
    # Keyed with the magic number of the Python that compiled it, which need not be the one that runs here.
    expected = _imp.source_hash(int.from_bytes(entry.head[:4], "little"), tree.content(source))
    if entry.head[8:_PYC_HEADER] != expected:
        yield GateFailure(PYTHON, f"/{entry.path}", "compiled from another source", f"that of /{source}", remedy)
