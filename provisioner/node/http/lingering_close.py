"""How a server ends a connection on which the client may still send: the answer arrives nevertheless.

A kernel that closes a socket with unread input, or gets more input for it, resets the connection. The client then fails
while it sends, and never reads why it was refused. So the server ends its own direction only, and discards what still
comes until the client ends the other one. Both bounds are small, as a client may send for ever.
Source: RFC 9112, section 9.6.
"""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from typing import Final

LINGER_SECONDS: Final = 2.0
LINGER_BYTES: Final = 1 << 20
_PIECE_BYTES: Final = 65536


class LingeringClose:
    """Of a connection on which the whole answer has been sent. The server's direction ends with the constructor."""

    def __init__(self, connection: socket.socket, clock: Callable[[], float] = time.monotonic) -> None:
        self._connection = connection
        self._left_bytes = LINGER_BYTES
        self.ends = clock() + LINGER_SECONDS
        with suppress(OSError):  # the client is gone
            # Not by the methods of an SSLSocket: what is discarded need not be decrypted.
            socket.socket.shutdown(connection, socket.SHUT_WR)

    def discard(self) -> bool:
        """Discard what has come. Returns: whether more may come; if not, the connection is to be closed.

        Raises: BlockingIOError, TimeoutError as the socket's timeout has it.
        """
        try:
            came = len(socket.socket.recv(self._connection, _PIECE_BYTES))
        except (BlockingIOError, TimeoutError):
            raise
        except OSError:
            return False
        self._left_bytes -= came
        return came > 0 and self._left_bytes > 0


def linger(connection: socket.socket, most_seconds: float = math.inf) -> None:
    """Wait until the client has ended its direction: LINGER_SECONDS, or `most_seconds` if that is less.

    Raises nothing. A connection that another thread cuts off ends it at once.
    """
    closing = LingeringClose(connection)
    ends = min(closing.ends, time.monotonic() + most_seconds)
    with suppress(OSError):
        while (left := ends - time.monotonic()) > 0:
            connection.settimeout(left)
            if not closing.discard():
                return


class LingeringHandler(BaseHTTPRequestHandler):
    """Ends each connection on which it has answered so."""

    def handle(self) -> None:
        super().handle()
        self.wfile.flush()
        linger(self.connection)
