"""TLS records that bring nothing of an answer, as many as one likes: OpenSSL reads them inside of one call."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256, SHA384
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

FLOOD_BYTES: Final = 128 << 20
"""All of a flood: some minutes of a client's time. A test of one that is not cut off fails, and does not hang."""
CUT_BYTES: Final = 48 << 20
"""What is sent by far not before a client that ends it after a second has gone; buffers of the kernel are in it."""
_PIECE: Final = 16_000
_SUITES: Final = {"TLS_AES_256_GCM_SHA384": (32, SHA384()), "TLS_AES_128_GCM_SHA256": (16, SHA256())}

HELLO_REQUESTS: Final = b"\x16\x03\x03" + struct.pack(">H", _PIECE) + bytes(_PIECE)
"""One record, for who is still in the handshake: a client skips each of these messages of four zeros."""


def prepare(context: ssl.SSLContext, keys: Path) -> None:
    """Let connections of a server's `context` be ones that `flood_tickets` can be used on."""
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0
    context.keylog_filename = str(keys)


def flood_tickets(connection: ssl.SSLSocket, keys: Path, sent: Callable[[int], None] = lambda _: None) -> None:
    """Session tickets, on the connection of `prepare` that shook hands last and on which nothing was sent.

    `sent` is told the bytes of each record. Raises: OSError once the client has gone.
    """
    for record in _tickets(connection, keys):
        # Past the server's own TLS: that would have to shake hands for each of them.
        socket.socket.sendall(connection, record)
        sent(len(record))


def _tickets(connection: ssl.SSLSocket, keys: Path) -> Iterator[bytes]:
    named = [line.split() for line in keys.read_text().splitlines()]
    secret = next(bytes.fromhex(words[2]) for words in reversed(named) if words[0] == "SERVER_TRAFFIC_SECRET_0")
    suite = connection.cipher()
    assert suite is not None
    length, algorithm = _SUITES[suite[0]]

    def derived(label: bytes, size: int) -> bytes:
        # RFC 8446, 7.1 and 7.3
        info = struct.pack(">HB", size, len(label)) + label + b"\0"
        return HKDFExpand(algorithm, size, info).derive(secret)

    cipher, start = AESGCM(derived(b"tls13 key", length)), int.from_bytes(derived(b"tls13 iv", 12), "big")
    # RFC 8446, 4.6.1: for two hours, no nonce, a ticket of one byte, no extensions
    body = struct.pack(">IIBHBH", 7200, 0, 0, 1, 0, 0)
    ticket = b"\x04" + len(body).to_bytes(3, "big") + body
    piece = ticket * (_PIECE // len(ticket)) + b"\x16"
    head = b"\x17\x03\x03" + struct.pack(">H", len(piece) + 16)
    for number in range(FLOOD_BYTES // len(piece)):
        yield head + cipher.encrypt((start ^ number).to_bytes(12, "big"), piece, head)
