"""The HTTP server of metrics: one thread per request, and a bounded number of them.

Anyone who reaches the port may connect and say nothing. Each address may hold a few connections, and all addresses
together no more than threads and descriptors allow. When the limit is reached, the oldest connection of the busiest
address is closed: a newcomer from another address takes its place; one more from the same address is closed as well.
Newcomers are refused while too many closed connections still have running threads. A client with as many addresses as
there are places, or one that keeps requesting answers, can still delay Prometheus: keep the port in the management
network.
"""

from __future__ import annotations

import socket
import threading
from collections import Counter
from contextlib import suppress
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.types import WSGIApplication

from provisioner.node.http.lingering_close import LingeringHandler

MOST_CONNECTIONS: Final = 64
"""Open at once, from all addresses; up to MOST_OF_ONE more are closed while their threads end."""
MOST_OF_ONE: Final = 8
REQUEST_SECONDS: Final = 15.0
"""For which a client may be silent."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, *args: Any, **more: Any) -> None:
        self._lock = threading.Lock()
        self._open: dict[socket.socket, str] = {}
        self._ending: set[socket.socket] = set()
        """Closed to make room; their threads have not ended yet."""
        super().__init__(*args, **more)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._admits(request, str(client_address[0])):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
            self._ending.discard(request)
        super().shutdown_request(request)

    def _admits(self, request: socket.socket, source: str) -> bool:
        with self._lock:
            counts = Counter(self._open.values())
            has_most = counts[source] >= MOST_OF_ONE
            if has_most or len(self._open) >= MOST_CONNECTIONS:
                if len(self._ending) >= MOST_OF_ONE:
                    return False
                self._end_the_oldest_of(source if has_most else counts.most_common(1)[0][0])
            if not has_most:
                self._open[request] = source
            return not has_most

    def _end_the_oldest_of(self, source: str) -> None:
        oldest = next(each for each, who in self._open.items() if who == source)
        del self._open[oldest]
        self._ending.add(oldest)
        with suppress(OSError):  # it may be gone already
            oldest.shutdown(socket.SHUT_RDWR)


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Quiet(LingeringHandler, WSGIRequestHandler):
    timeout = int(REQUEST_SECONDS)

    def log_message(self, *_: Any) -> None:
        """Prometheus asks every few seconds."""


def bounded_server(application: WSGIApplication, address: str, port: int) -> WSGIServer:
    """Answers by `application` once it is made to. Raises: OSError if the address is taken."""
    server = _Server6 if ":" in address else _Server
    return make_server(address, port, application, server_class=server, handler_class=_Quiet)


def serve_in_background(application: WSGIApplication, address: str, port: int) -> WSGIServer:
    """The same, and answers from now on. Raises: OSError."""
    server = bounded_server(application, address, port)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server
