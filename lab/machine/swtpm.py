"""A virtual server's TPM 2.0: one swtpm beside one QEMU, with a state that lasts as the chip's does.

swtpm ends when QEMU closes its data channel, so that a power cut takes both, and the next power-on begins as a chip
does that had no power: registers empty, keys and counters as they were. QEMU's reset initialises it anew by the control
channel. Source: swtpm(8), and its man page of the control channel, swtpm_ioctls(3).
"""

from __future__ import annotations

import os
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

from lab.child_process import LabProcess
from lab.machine.machine import MachineFiles
from lab.tools import Tools
from provisioner.api.machinery.errors import Retryable

_START_SECONDS: Final = 30.0
_GET_CAPABILITY: Final = (1).to_bytes(4, "big")


class SoftwareTpm:
    """The TPM of the machine `name`, which dies with this process. Calls must not overlap."""

    def __init__(self, name: str, files: MachineFiles, *, tools: Tools, launcher: ThreadPoolExecutor) -> None:
        self._files = files
        self._launcher = launcher
        self._process = LabProcess(
            f"TPM of {name}", tools.command(swtpm_command(files), [files.directory]), files.tpm_log
        )

    @property
    def pid(self) -> int | None:
        """Of swtpm, while it runs."""
        return self._process.pid if self._process.running else None

    def start(self) -> None:
        """Give it power: whatever ran on its state before is ended. Returns when QEMU can connect.

        Raises: Retryable with swtpm's own words if it does not start.
        """
        self.stop()
        self._end_stale()
        self._files.tpm_state.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._files.tpm_socket.unlink(missing_ok=True)
        # The kernel ends a child when the thread that made it ends, so it is made by a thread that stays.
        self._launcher.submit(self._process.start).result()
        deadline = time.monotonic() + _START_SECONDS
        while not _answers(self._files.tpm_socket):
            if not self._process.running or time.monotonic() > deadline:
                self._process.kill()
                raise Retryable(f"{self._process.name} did not start; swtpm said: {self._process.log_tail()}")
            time.sleep(0.01)

    def stop(self) -> None:
        """Cut its power. Absent is fine."""
        if self._process.running:
            self._process.kill()

    def _end_stale(self) -> None:
        """End a swtpm that another process left on this state, which would hold its lock. Raises: Retryable."""
        try:
            pid = int(self._files.tpm_pid.read_text())
        except (FileNotFoundError, ValueError):
            return
        deadline = time.monotonic() + _START_SECONDS
        while _serves(pid, self._files.tpm_socket):
            if time.monotonic() > deadline:
                raise Retryable(f"{self._process.name} did not start: process {pid} holds its state and does not end")
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)


def swtpm_command(files: MachineFiles) -> list[str]:
    """swtpm's arguments, as run inside the tools' chroot."""
    return [
        *("swtpm", "socket", "--tpm2"),
        *("--tpmstate", f"dir={files.tpm_state},mode=0600"),
        *("--ctrl", f"type=unixio,path={files.tpm_socket},mode=0600"),
        *("--pid", f"file={files.tpm_pid}"),
        "--terminate",
    ]


def _answers(path: Path) -> bool:
    """Whether swtpm takes a command on its control channel; to ask it and hang up leaves it as it was."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_START_SECONDS)
        try:
            connection.connect(str(path))
            connection.sendall(_GET_CAPABILITY)
            return bool(connection.recv(64))
        except OSError:
            return False


def _serves(pid: int, path: Path) -> bool:
    """Whether this process is a swtpm on that socket, rather than another one that got its number."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return words[0].endswith(b"swtpm") and any(b"path=" + bytes(path) + b"," in word for word in words)
