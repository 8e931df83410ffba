"""A real software TPM in a process of its own, and how often it was asked what."""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path
from typing import Self

from provisioner.node.tpm.device import TpmDevice
from tests.tools import installed


class Swtpm:
    """A TPM whose seeds follow from nothing else: each is another machine's. No resource manager is before it, so what
    is not flushed stays."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """As a machine's power-on: seeds and NV stay, PCRs begin anew."""
        path = self._socket
        path.unlink(missing_ok=True)
        self._process = subprocess.Popen(
            [installed("swtpm"), "socket", "--tpm2", "--tpmstate", f"dir={self._folder}",
             "--server", f"type=unixio,path={path}", "--flags", "not-need-init,startup-clear"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        for _ in range(200):
            if path.exists():
                return
            time.sleep(0.05)
        raise TimeoutError("swtpm made no socket in 10 s")

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)
            self._process = None

    def open(self) -> TpmDevice:
        """One connection; the next is taken when this one is closed."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(10)
        connection.connect(str(self._socket))
        return TpmDevice(connection.detach(), "swtpm")

    @property
    def _socket(self) -> Path:
        return self._folder / "s"
