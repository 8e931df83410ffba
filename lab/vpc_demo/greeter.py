"""What listens on every host of the demo: a port answers whoever connects with the host's name, and hangs up.

The sockets are made in the hosts' namespaces and stay there; one process serves all of them.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Final

from lab.virtual_network.namespace import Namespace

PORTS: Final = (80, 22)
_SELECT_SECONDS: Final = 0.5
_SEND_SECONDS: Final = 1.0


def listen(hosts: Mapping[str, Namespace], ports: tuple[int, ...] = PORTS) -> dict[socket.socket, bytes]:
    """Sockets of both families on each port of every host, with what each answers: the host's name."""

    def opened(port: int) -> Callable[[], socket.socket]:
        return lambda: socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)

    return {host.inside(opened(port)): name.encode() for name, host in hosts.items() for port in ports}


def greet(listening: Mapping[socket.socket, bytes], stop: threading.Event) -> None:
    """Answer until `stop` is set, then close the sockets."""
    with contextlib.ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        for each in listening:
            selector.register(stack.enter_context(each), selectors.EVENT_READ)
        while not stop.is_set():
            for key, _ in selector.select(_SELECT_SECONDS):
                assert isinstance(key.fileobj, socket.socket)  # noqa: S101 - nothing else was registered
                _answer(key.fileobj, listening[key.fileobj])


def _answer(listening: socket.socket, words: bytes) -> None:
    with contextlib.suppress(OSError):  # who has gone away meanwhile is not told
        caller, _ = listening.accept()
        with caller:
            caller.settimeout(_SEND_SECONDS)
            caller.sendall(words)
