"""TFTP for firmware: the first stage's few files, read-only. Source: RFC 1350, RFC 2347 to 2349.

Blocks of up to 1432 bytes and the file's size are the options that are taken; a window never is, as EDK2 floods the
network with one where packets get lost.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from dataclasses import dataclass
from typing import Final

from provisioner.network.agent.boot.request import FIRST_STAGE

LONGEST_REQUEST: Final = 512
USUAL_BLOCK_BYTES: Final = 512
LARGEST_BLOCK_BYTES: Final = 1432
_READ, _DATA, _ACK, _ERROR, _OPTIONS = 1, 3, 4, 5, 6
_NOT_FOUND, _ACCESS, _ILLEGAL = 1, 2, 4
TRY_SECONDS: Final = 1.0
TRIES: Final = 5
TRANSFER_SECONDS: Final = 120.0


@dataclass(frozen=True)
class ReadRequest:
    """What a client wants to read. block_bytes None, wants_size False: it did not name the option."""

    name: str
    block_bytes: int | None = None
    wants_size: bool = False


@dataclass(frozen=True)
class Fault:
    """An error packet. Source: RFC 1350, 5."""

    code: int
    words: str

    def encode(self) -> bytes:
        return struct.pack("!HH", _ERROR, self.code) + self.words.encode() + b"\0"


def read_request(data: bytes) -> ReadRequest | Fault | None:
    """None: it is no request, and gets no answer. Never raises."""
    if not 4 <= len(data) <= LONGEST_REQUEST or data[-1] != 0:
        return None
    (operation,) = struct.unpack_from("!H", data)
    if operation == 2:
        return Fault(_ACCESS, "nothing is written here")
    if operation != _READ:
        return None
    name, mode, *options = data[2:-1].split(b"\0") if data.count(b"\0", 2) >= 2 else (b"", b"")
    if mode.lower() not in (b"octet", b"netascii") or len(options) % 2:
        return Fault(_ILLEGAL, "mode octet is served")
    said = {options[at].lower(): options[at + 1] for at in range(0, len(options), 2)}
    asked = name.decode("ascii", errors="replace").lstrip("/").removeprefix("tftp/")
    if asked not in FIRST_STAGE:
        return Fault(_NOT_FOUND, "there is no such file")
    block = said.get(b"blksize", b"")
    size = int(block) if block.isdigit() and len(block) < 6 else 0
    return ReadRequest(asked, min(size, LARGEST_BLOCK_BYTES) if size >= 8 else None, b"tsize" in said)


def encode_options(request: ReadRequest, size: int) -> bytes | None:
    """What is agreed to; None where nothing was asked for."""
    words: list[bytes] = []
    if request.block_bytes is not None:
        words += [b"blksize", str(request.block_bytes).encode()]
    if request.wants_size:
        words += [b"tsize", str(size).encode()]
    return struct.pack("!H", _OPTIONS) + b"".join(each + b"\0" for each in words) if words else None


def transfer(opened: socket.socket, client: tuple[str, int], request: ReadRequest, content: bytes) -> bool:
    """Send a file to `client`, by a socket of this transfer alone. Returns: whether it has it all."""
    block_bytes = request.block_bytes or USUAL_BLOCK_BYTES
    deadline = time.monotonic() + TRANSFER_SECONDS
    agreed = encode_options(request, len(content))
    if agreed is not None and not _confirmed(opened, client, agreed, 0, deadline):
        return False
    for block in range(1, len(content) // block_bytes + 2):
        piece = content[(block - 1) * block_bytes : block * block_bytes]
        packet = struct.pack("!HH", _DATA, block & 0xFFFF) + piece
        if not _confirmed(opened, client, packet, block & 0xFFFF, deadline):
            return False
    return True


def _confirmed(opened: socket.socket, client: tuple[str, int], packet: bytes, block: int, deadline: float) -> bool:
    """An acknowledgement of another block is let alone: to answer it would double all that follows."""
    for _ in range(TRIES):
        with contextlib.suppress(OSError):
            opened.sendto(packet, client)
        until = min(time.monotonic() + TRY_SECONDS, deadline)
        while (left := until - time.monotonic()) > 0:
            opened.settimeout(left)
            try:
                data, sender = opened.recvfrom(LONGEST_REQUEST)
            except TimeoutError:
                break
            except OSError:  # closed, as the plane has gone
                return False
            if sender != client or len(data) < 4:
                continue
            operation, number = struct.unpack_from("!HH", data)
            if operation == _ERROR:
                return False
            if (operation, number) == (_ACK, block):
                return True
        if time.monotonic() >= deadline:
            return False
    return False
