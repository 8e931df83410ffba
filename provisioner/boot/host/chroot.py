"""Programs that do not lie on this machine's own root: those of the lab, in a directory made beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# The host's /dev, /proc, /sys, /run and /tmp are shared, /usr is borrowed, /etc is copied and everything else starts
# empty. exec all the way: the program keeps the process id that the caller got.
_ENTER: Final = """
set -eu
tools=$1; shift
root="$tools/mnt"
mount -t tmpfs -o size=64m,mode=755 tools "$root"
mkdir "$root/usr" "$root/var" "$root/var/lib" "$root/var/log" "$root/var/cache" "$root/var/tmp" "$root/root"
ln -s ../run "$root/var/run"
for link in bin sbin lib lib64; do ln -s "usr/$link" "$root/$link"; done
mount --bind -o ro "$tools/usr" "$root/usr"
cp -a "$tools/etc" "$root/etc"
for path in /dev /proc /sys /run /tmp; do mkdir -p "$root$path"; mount --rbind "$path" "$root$path"; done
while [ "$1" != -- ]; do
    if [ -d "$1" ]; then mkdir -p "$root$1"; else mkdir -p "$root${1%/*}"; : > "$root$1"; fi
    mount --rbind "$1" "$root$1"
    shift
done
shift
exec chroot "$root" "$@"
"""


@dataclass(frozen=True)
class Chroot:
    """The one at `root`, which borrows its /usr. Nothing in it is written to."""

    root: Path

    def command(self, argv: Sequence[str | Path], binds: Sequence[Path] = ()) -> list[str]:
        """Arguments that run `argv` inside the chroot, with each of `binds` visible at its own absolute path.

        The mount namespace is private: nothing stays mounted when the program ends. The program keeps the process id,
        the network namespace and the environment of the caller; /dev, /proc, /sys, /run and /tmp are the host's.
        """
        for path in binds:
            if not path.is_absolute():
                raise ValueError(f"bind {path} is not absolute")
        return [
            *("unshare", "--mount", "--propagation", "private", "--"),
            *("/bin/sh", "-c", _ENTER, "tools", str(self.root)),
            *(str(path) for path in dict.fromkeys(binds) if not _below(path, "/dev", "/proc", "/sys", "/run", "/tmp")),  # noqa: S108 (shared as a whole)
            "--",
            *(str(word) for word in argv),
        ]


def _below(path: Path, *parents: str) -> bool:
    return any(path == Path(parent) or Path(parent) in path.parents for parent in parents)
