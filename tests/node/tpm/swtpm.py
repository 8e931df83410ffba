"""A real software TPM in a process of its own."""

from __future__ import annotations

import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self

from provisioner.node.tpm.device import TpmDevice
from tests.tools import installed

START_SECONDS = 180.0


class Swtpm:
    """Each folder is another TPM. No resource manager is before it, so what is not flushed stays."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # A path of pytest's is longer than a Unix socket's may be.
        self._sockets = tempfile.TemporaryDirectory(prefix="swtpm-")
        self._socket = Path(self._sockets.name) / "s"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._sockets.cleanup()

    def start(self) -> None:
        """As a machine's power-on: seeds and NV are as they were, PCRs begin anew."""
        path = self._socket
        path.unlink(missing_ok=True)
        program = [installed("swtpm"), "socket", "--tpm2", "--tpmstate", f"dir={self._folder}"]
        speaks = ["--server", f"type=unixio,path={path}", "--flags", "not-need-init,startup-clear"]
        self._process = subprocess.Popen([*program, *speaks], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                self.open().close()
                return
            except (FileNotFoundError, ConnectionRefusedError):
                assert time.monotonic() < deadline, "swtpm did not listen"
                time.sleep(0.02)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(START_SECONDS)
            self._process = None

    def open(self) -> TpmDevice:
        """One connection; the next is taken when this one is closed."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(START_SECONDS)
        try:
            connection.connect(str(self._socket))
        except OSError:
            connection.close()
            raise
        return TpmDevice(connection.detach(), "swtpm")

    def ask(self, command: str) -> bytes:
        """What follows the header of the answer. `command`: hexadecimal digits."""
        device = self.open()
        try:
            return device.call("a command of the test", bytes.fromhex(command))
        finally:
            device.close()

    def loaded(self) -> int:
        """How many keys and sessions are in its memory."""
        counts = 0
        for first in ("80000000", "02000000", "03000000"):  # transient objects, sessions by HMAC, by policy
            answer = self.ask("8001 00000016 0000017a 00000001" + first + "00000040")
            counts += int.from_bytes(answer[5:9], "big")
        return counts

    def write_nv(self, index: int, content: bytes) -> None:
        """As a manufacturer does: anybody may read it, by an empty password."""
        password = "00000009 40000009 0000 00 0000"
        public = f"{index:08x} 000b 00060006 0000 {len(content):04x}"  # written and read by owner and password
        body = f"40000001 {password} 0000 000e {public}"
        self.ask(f"8002 {10 + len(bytes.fromhex(body)):08x} 0000012a {body}")
        for offset in range(0, len(content), 512):
            piece = content[offset : offset + 512]
            body = f"{index:08x} {index:08x} {password} {len(piece):04x} {piece.hex()} {offset:04x}"
            self.ask(f"8002 {10 + len(bytes.fromhex(body)):08x} 00000137 {body}")
