"""Set-uid programs, file capabilities, and what everybody may write: only what the recipe names with a reason.

mksquashfs is told `-no-xattrs`, so a file capability does not arrive on a server: its program would lose, without a
word, what it was given. So each is a failure, whatever the recipe allows; a unit's `AmbientCapabilities=` does that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from provisioner.image.gates.allowed import reason_for
from provisioner.image.gates.failure import GateFailure
from provisioner.image.gates.read.tree import Tree

SET_ID: Final = "set-uid"
CAPABILITIES: Final = "capabilities"
WRITABLE: Final = "world-writable"
_SET_ID, _STICKY, _OTHERS_WRITE = 0o6000, 0o1000, 0o0002


def check_privileges(
    tree: Tree, set_uid: Mapping[str, str], world_writable: Mapping[str, str]
) -> Iterator[GateFailure]:
    """The allow-lists are those of the recipe: pattern → reason."""
    for entry in tree.entries.values():
        mode, path = entry.mode, entry.path
        if entry.kind == "file" and mode & _SET_ID and reason_for(path, set_uid) is None:
            yield GateFailure(
                SET_ID,
                f"/{path}",
                f"mode {mode:04o}",
                "no set-uid or set-gid program but those of gates.allow-setuid",
                "add it to root.remove of the recipe, or to gates.allow-setuid with the reason",
            )
        if entry.capability:
            yield GateFailure(
                CAPABILITIES,
                f"/{path}",
                f"security.capability {entry.capability.hex()}",
                "no file capability: the squashfs is packed without extended attributes, it would be lost",
                "remove the package, or give its unit AmbientCapabilities=",
            )
        if entry.kind == "other" and not path.startswith("dev/"):
            yield GateFailure(
                WRITABLE,
                f"/{path}",
                f"a device, socket or pipe of mode {mode:04o}",
                "files, folders and links",
                "add it to root.remove of the recipe: the kernel makes devices in /dev, programs their sockets in /run",
            )
        if entry.kind in ("file", "folder") and mode & _OTHERS_WRITE:
            if reason_for(path, world_writable) is None:
                yield GateFailure(
                    WRITABLE,
                    f"/{path}",
                    f"{entry.kind} of mode {mode:04o}",
                    "nobody but its owner writes it",
                    "correct its mode, or add it to gates.allow-world-writable with the reason",
                )
            elif entry.kind == "folder" and not mode & _STICKY:
                yield GateFailure(
                    WRITABLE,
                    f"/{path}",
                    f"folder of mode {mode:04o}",
                    "the sticky bit: mode 1777",
                    "correct its mode: without the bit anybody removes anybody's files in it",
                )
