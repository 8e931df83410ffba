"""A host with Debian's systemd as its first process, in namespaces of its own: units run as on a real one.

Its root is the unpacked boot image over packages of Debian that were unpacked and never installed. What it lacks of a
real host: a kernel of its own, cgroup controllers where this machine gives none away, and a console.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from artefacts.__main__ import own_machine
from artefacts.debian import Unpacked, archives_of, unpack
from tests.tools import CACHE

PACKAGES: Final = (
    *("base-files", "bash", "coreutils", "dbus", "libnss-systemd", "mount", "procps", "systemd", "util-linux"),
)
_PATH: Final = "PATH=/usr/sbin:/usr/bin"
_BOOT: Final = """
set -eu
work=$1 lower=$2
mount -t tmpfs tmpfs "$work"
mkdir "$work/upper" "$work/work" "$work/root"
mount -t overlay overlay -o "lowerdir=$lower,upperdir=$work/upper,workdir=$work/work" "$work/root"
cd "$work/root"
mkdir -p old etc/systemd/system etc/provisioner opt/provisioner/bin srv/provisioner/images root home run proc sys dev
chmod 755 . "$work"
cp "$3"/*.service etc/systemd/system/
ln -s /usr/bin/provisioner opt/provisioner/bin/provisioner
echo 0123456789abcdef0123456789abcdef >etc/machine-id
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs dev
for node in null zero full random urandom tty; do touch dev/$node; mount --bind /dev/$node dev/$node; done
mkdir dev/shm dev/pts dev/mqueue dev/hugepages
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
mount -t tmpfs tmpfs dev/shm
mount -t tmpfs -o mode=755 tmpfs run
pivot_root . old
umount -l /old
# As on a real host: credentials reach a unit by it.
mount --make-rshared /
exec env -i container=other PATH=/usr/sbin:/usr/bin /usr/lib/systemd/systemd --unit=basic.target --log-target=journal
"""


@dataclass(frozen=True)
class BootedHost:
    """`pid`: of its first process, as this machine knows it."""

    pid: int

    @property
    def in_its_network(self) -> list[str]:
        """What stands before a program of this machine that shall see its network."""
        return ["nsenter", f"--target={self.pid}", "--net", "--"]

    def run(self, *command: str, check: bool = True, given: str | None = None) -> str:
        """What a program of the host's own printed."""
        enter = ["nsenter", f"--target={self.pid}", "--all", "--root", "--wd", "--", "/usr/bin/env", "-i", _PATH]
        done = subprocess.run([*enter, *command], input=given, capture_output=True, text=True, check=False, timeout=120)
        assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def ask(self, *command: str) -> subprocess.CompletedProcess[str]:
        """A program of this machine, in the host's network."""
        return subprocess.run([*self.in_its_network, *command], capture_output=True, text=True, check=False, timeout=60)

    def write(self, path: str, text: str) -> None:
        """A file that root alone reads."""
        self.run("/bin/sh", "-c", f"umask 077; cat >{path}", given=text)

    def log(self, unit: str) -> str:
        return self.run("journalctl", "--no-pager", "--output=cat", f"--unit={unit}")

    def status(self, unit: str) -> dict[str, str]:
        """Of the unit's main process: /proc/PID/status."""
        pid = self.run("systemctl", "show", "--property=MainPID", "--value", unit).strip()
        lines = self.run("cat", f"/proc/{pid}/status").splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def unpack_systemd() -> Unpacked:
    return unpack(PACKAGES, own_machine(), archives_of("trixie", None), CACHE, print)


@contextmanager
def booted_host(image: Path, units: Path, folder: Path) -> Iterator[BootedHost]:
    """`image`: the unpacked boot image. `units`: folder of unit files. `folder`: an empty one."""
    lower = f"{image}:{unpack_systemd().root}"
    unshare = ["unshare", "--mount", "--pid", "--net", "--uts", "--ipc", "--cgroup", "--fork", "--kill-child"]
    outer = subprocess.Popen(
        [*unshare, "/bin/sh", "-c", _BOOT, "host", str(folder), lower, str(units)],
        stdin=subprocess.DEVNULL,
    )
    try:
        yield _wait_until_it_runs(outer)
    finally:
        outer.kill()  # and with it, the first process of the namespace, and all in it
        outer.wait(60)


def _wait_until_it_runs(outer: subprocess.Popen[bytes]) -> BootedHost:
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        assert outer.poll() is None, "the host did not boot"
        children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
        if children:
            host = BootedHost(int(children[0]))
            # Degraded, as nobody may load kernel modules there.
            if host.run("systemctl", "is-system-running", check=False).strip() in ("running", "degraded"):
                return host
        time.sleep(0.5)
    raise AssertionError("the host did not boot within 300 s")
