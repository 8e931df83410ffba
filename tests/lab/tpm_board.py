"""What a board does with its TPM, spoken to swtpm as QEMU speaks: power, reset, and a few commands of firmware.

Sources: swtpm_ioctls(3) for the control channel; TPM 2.0 Library, part 3, for the commands.
"""

from __future__ import annotations

import array
import socket
import struct
from pathlib import Path
from types import TracebackType
from typing import Final

_INIT, _SET_DATA_CHANNEL = 2, 0x10
_NO_SESSIONS, _SESSIONS = 0x8001, 0x8002
_SHA256: Final = 0x000B
_PASSWORD: Final = struct.pack(">IIHBH", 9, 0x40000009, 0, 0, 0)
"""The authorization area of an empty password."""


class TpmError(Exception):
    """The TPM answered a command with another code than success."""


class Board:
    """Connected to the TPM, as QEMU is while it runs; gone at the end of the block, as after a power cut."""

    def __init__(self, control_socket: Path) -> None:
        self._control = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._control.settimeout(60)
        self._control.connect(str(control_socket))
        self._data, theirs = socket.socketpair()
        self._data.settimeout(60)
        descriptor = array.array("i", [theirs.fileno()])
        self._control.sendmsg(
            [struct.pack(">I", _SET_DATA_CHANNEL)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptor)]
        )
        self._require_success(self._control.recv(4), "the data channel")
        theirs.close()

    def __enter__(self) -> Board:
        self.reset()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._data.close()
        self._control.close()

    def reset(self) -> None:
        """What happens at power-on and at QEMU's system_reset: initialised, then TPM2_Startup(CLEAR) by firmware."""
        self._control.sendall(struct.pack(">II", _INIT, 0))
        self._require_success(self._control.recv(4), "initialising")
        self.command(_NO_SESSIONS, 0x144, struct.pack(">H", 0))

    def extend(self, register: int, digest: bytes) -> None:
        """TPM2_PCR_Extend in the SHA-256 bank."""
        self.command(
            _SESSIONS, 0x182, struct.pack(">I", register) + _PASSWORD + struct.pack(">IH", 1, _SHA256) + digest
        )

    def read(self, register: int) -> bytes:
        """TPM2_PCR_Read in the SHA-256 bank."""
        mask = (1 << register).to_bytes(3, "little")
        return self.command(_NO_SESSIONS, 0x17E, struct.pack(">IHB", 1, _SHA256, 3) + mask)[-32:]

    def rsa_modulus(self, handle: int) -> int:
        """Of a loaded or persistent RSA key: the end of what TPM2_ReadPublic tells of it."""
        answer = self.command(_NO_SESSIONS, 0x173, struct.pack(">I", handle))
        (size,) = struct.unpack_from(">H", answer)
        return int.from_bytes(answer[2 : 2 + size][-256:], "big")

    def stored(self, index: int) -> bytes:
        """What is in NVRAM at an index."""
        public = self.command(_NO_SESSIONS, 0x169, struct.pack(">I", index))
        (left,) = struct.unpack_from(">H", public, struct.unpack_from(">H", public)[0])
        found = b""
        while left:
            part = min(left, 512)
            asked = struct.pack(">II", index, index) + _PASSWORD + struct.pack(">HH", part, len(found))
            found += self.command(_SESSIONS, 0x14E, asked)[6 : 6 + part]
            left -= part
        return found

    def command(self, tag: int, code: int, body: bytes) -> bytes:
        """What stands behind the answer's header. Raises: TpmError."""
        self._data.sendall(struct.pack(">HII", tag, 10 + len(body), code) + body)
        answer = self._data.recv(4096)
        _, size, result = struct.unpack_from(">HII", answer)
        if result != 0 or size != len(answer):
            raise TpmError(f"command {code:#x}: {result:#x}, {len(answer)} bytes")
        return answer[10:]

    def _require_success(self, answer: bytes, what: str) -> None:
        if answer != bytes(4):
            raise TpmError(f"{what}: swtpm answered {answer.hex()}")
