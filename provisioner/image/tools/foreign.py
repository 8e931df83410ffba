"""Programs of an image's architecture, run on a machine of another one: maintainer scripts, depmod, Python, busybox.

The kernel starts them through qemu-user where binfmt_misc says so. Where this machine does not say it (package
qemu-user-static with binfmt-support or systemd-binfmt), each command is told it alone: it runs in a user namespace of
its own with a binfmt_misc of its own, which Linux has since 6.7. Nothing of that is seen outside, and nothing remains.
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from provisioner.api.machinery.errors import NeedsHuman
from provisioner.api.servers.server import Architecture
from provisioner.image.tools.command import run
from provisioner.image.tools.elf import read_linkage

BINFMT: Final = Path("/proc/sys/fs/binfmt_misc")
_MACHINES: Final[dict[str, Architecture]] = {"x86_64": "x86_64", "aarch64": "arm64"}
_QEMU: Final[dict[Architecture, str]] = {"x86_64": "qemu-x86_64", "arm64": "qemu-aarch64"}
_ELF_MACHINE: Final[dict[Architecture, str]] = {"x86_64": r"\x3e\x00", "arm64": r"\xb7\x00"}
# 64-bit little-endian programs, position-independent or not, of any operating system's ABI.
_MAGIC: Final = r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00"
_MASK: Final = r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"

# All user ids are the same inside, so that files get the owners that they are to have; only the parent namespace may
# say so, hence the process beside. It and the loops end by themselves. exec all the way: the program keeps the process
# id that the caller got. C and F: the interpreter is opened here, outside every chroot.
_ENTER: Final = r"""
set -eu
outer=$(readlink /proc/self/ns/user)
(
    for attempt in $(seq 1000); do
        if [ "$(readlink /proc/$$/ns/user)" != "$outer" ]; then
            echo "0 0 4294967295" >/proc/$$/uid_map
            echo "0 0 4294967295" >/proc/$$/gid_map
            exit
        fi
        sleep 0.01
    done
) &
exec unshare --user --mount --propagation private -- /bin/sh -c '
set -eu
for attempt in $(seq 1000); do
    [ -z "$(cat /proc/self/gid_map)" ] || break
    sleep 0.01
done
mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
printf %s "$1" >/proc/sys/fs/binfmt_misc/register
shift
exec "$@"
' foreign "$@"
"""


@dataclass(frozen=True)
class ForeignPrograms:
    """How programs of `architecture` are run here. `interpreter` None: as any others."""

    architecture: Architecture
    interpreter: Path | None = None

    def command(self, argv: Sequence[str]) -> list[str]:
        """Arguments that run `argv`, and all that it starts, as if this machine were of that architecture, too."""
        if self.interpreter is None:
            return list(argv)
        return ["/bin/sh", "-c", _ENTER, "foreign", registration(self.architecture, self.interpreter), *argv]

    def run_inside(
        self, root: Path, argv: Sequence[str], *, hint: str, environment: Mapping[str, str], log: Path | None = None
    ) -> None:
        """`command.run` with `root` as the root of all files."""
        run(self.command(["chroot", str(root), *argv]), hint=hint, environment=environment, log=log)


def registration(architecture: Architecture, interpreter: Path) -> str:
    """What binfmt_misc is told. Source: Documentation/admin-guide/binfmt-misc.rst."""
    escaped = str(interpreter).replace(":", r"\x3a")
    magic, mask = _MAGIC + _ELF_MACHINE[architecture], _MASK
    return f":{_QEMU[architecture]}:M::{magic}:{mask}:{escaped}:PF"


def find_foreign(
    architecture: Architecture,
    *,
    interpreter: Path | None = None,
    machine: str | None = None,
    binfmt: Path = BINFMT,
    path: str | None = None,
) -> ForeignPrograms:
    """How programs of `architecture` can be run here; `interpreter` is the qemu-user to use, found on PATH if None.

    Raises: NeedsHuman if there is none, or it is not linked statically (a chroot has other libraries).
    """
    if _MACHINES.get(machine or platform.machine()) == architecture or _is_registered(binfmt / _QEMU[architecture]):
        return ForeignPrograms(architecture)
    name = _QEMU[architecture]
    found = interpreter or next(
        (Path(each) for each in (shutil.which(f"{name}-static", path=path), shutil.which(name, path=path)) if each),
        None,
    )
    hint = "apt-get install qemu-user-static, or build on a machine of the image's architecture"
    if found is None or not os.access(found, os.X_OK):
        raise NeedsHuman(f"programs of {architecture} cannot be run here: {found or name} is not there", hint=hint)
    if read_linkage(found.read_bytes()).interpreter is not None:
        raise NeedsHuman(f"{found} is not linked statically, and runs in no chroot", hint=hint)
    return ForeignPrograms(architecture, found.absolute())


def _is_registered(entry: Path) -> bool:
    """Whether this machine's own binfmt_misc starts them, also in a chroot (flag F)."""
    try:
        said = entry.read_text()
    except OSError:
        return False
    flags = next((line.removeprefix("flags:") for line in said.splitlines() if line.startswith("flags:")), "")
    return said.startswith("enabled") and "F" in flags
