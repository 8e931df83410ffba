"""The servers of the measurement: the real stage-1, its own shell and signify in a chroot, from the first report to
layers that were verified. Firmware, kernel and the mounting of layers are left out."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.tools import Tools
from provisioner.image.finished.sign import SecretKey
from tests.benchmarks.swarm.network import Machine
from tests.signed_image import SignedImage

STAGE1: Final = Path(__file__).parents[3] / "images/node/stage1"
LOOK_SECONDS: Final = 0.5
"""Between two looks at what has come, in place of stage-1's own tenth of a second."""
_SECONDS: Final = 600
_SCRIPT: Final = """
mount -t proc proc /proc && mount -o bind "$1" /proc/cmdline && mount -t tmpfs tmpfs /run &&
mount -t tmpfs tmpfs /ram && mkdir -p /run/stage1 || exit 9
until /lib/stage1/attempt; do sleep 1; done
"""


@dataclass(frozen=True)
class Finished:
    """seconds: from the start of all of them to this one's last verified layer. said: on its console."""

    seconds: float
    said: str


class Stage1Tree:
    """The tree that all servers of a run share; each has its own /run and /ram."""

    def __init__(self, folder: Path, tools: Tools, key: SecretKey) -> None:
        self.folder = folder
        for name in ("bin", "dev", "etc/provisioner", "lib", "proc", "ram", "run", "tmp", "usr/lib", "cmdlines"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        self._copy_programs(tools)
        shutil.copytree(STAGE1 / "lib/stage1", folder / "lib/stage1")
        (folder / "lib/stage1/network.sh").write_text(
            "bring_up_network() { echo interface=eth0 >/run/stage1/network; }\n"
        )
        fetch = (folder / "lib/stage1/fetch.sh").read_text()
        if fetch.count("sleep 0.1\n") != 1:
            raise RuntimeError("stage-1 looks at what has come in another way than it did")
        # All servers share this machine's few cores: each look costs five processes.
        (folder / "lib/stage1/fetch.sh").write_text(fetch.replace("sleep 0.1\n", f"sleep {LOOK_SECONDS}\n"))
        with (folder / "lib/stage1/handover.sh").open("a") as handover:
            handover.write("mount_root() { :; }\nhand_over() { :; }\n")
        (folder / "etc/provisioner/image.pub").write_text(key.public.encode())
        for name, minor in (("null", 3), ("urandom", 9)):
            os.mknod(folder / "dev" / name, 0o20666, os.makedev(1, minor))
        (folder / "dev/console").touch()

    def _copy_programs(self, tools: Tools) -> None:
        busybox, signify = tools.root / "usr/bin/busybox", tools.root / "usr/bin/signify-openbsd"
        shutil.copy(busybox, self.folder / "bin/busybox")
        listed = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout
        for applet in listed.split():
            if applet != "busybox":
                (self.folder / "bin" / applet).symlink_to("busybox")
        shutil.copy(signify, self.folder / "bin/signify-openbsd")
        needed = subprocess.run(
            tools.command(["ldd", "/usr/bin/signify-openbsd"]), capture_output=True, text=True, check=True
        )
        for word in needed.stdout.split():
            if word.startswith("/"):
                target = self.folder / word.lstrip("/")
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(tools.root / "usr" / word.lstrip("/").removeprefix("usr/"), target)

    def boot(
        self, servers: Sequence[Machine], image: SignedImage, boot_host: str, sources: Sequence[str], least_rate: int
    ) -> list[Finished]:
        """All at once; in the order of `servers`. Raises: RuntimeError if one has no image after ten minutes."""
        finished: dict[str, Finished] = {}
        began = time.monotonic()

        def boot(server: Machine, process: subprocess.Popen[str]) -> None:
            try:
                said, _ = process.communicate(timeout=_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                said, _ = process.communicate()
            if process.returncode == 0:
                finished[server.name] = Finished(time.monotonic() - began, said)
            else:
                print(f"{server.name} ended with {process.returncode}: {said[-2000:]}", flush=True)

        threads = []
        for server in servers:
            words = self._command(server, image, boot_host, sources, least_rate)
            process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            threads.append(threading.Thread(target=boot, args=(server, process)))
            threads[-1].start()
        for thread in threads:
            thread.join()
        if missing := [server.name for server in servers if server.name not in finished]:
            raise RuntimeError(f"without an image: {', '.join(missing)}")
        return [finished[server.name] for server in servers]

    def _command(
        self, server: Machine, image: SignedImage, boot_host: str, sources: Sequence[str], least_rate: int
    ) -> list[str]:
        first, *rest = sources
        words = [
            f"provisioner.server={server.name}",
            f"provisioner.mac=52:54:00:00:{server.number // 256:02x}:{server.number % 256:02x}",
            f"provisioner.url={boot_host}",
            "provisioner.join=https://127.0.0.1:8443",
            f"provisioner.image={image.name}",
            f"provisioner.images={first}",
            *(f"provisioner.nextimages={source}" for source in rest),
            f"provisioner.leastrate={least_rate}",
        ]
        (self.folder / "cmdlines" / server.name).write_text(" ".join(words) + "\n")
        apart = ("unshare", "--mount", "--pid", "--fork", "--kill-child")
        chroot = ("chroot", self.folder, "/bin/busybox", "sh", "-c", _SCRIPT, "boot", f"/cmdlines/{server.name}")
        return ["env", "-i", "PATH=/bin:/usr/bin:/sbin:/usr/sbin", *server.command(*apart, *chroot)]
