"""QEMU's monitor protocol, as much of it as a virtual BMC needs. Source: QEMU, docs/interop/qmp-spec."""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from provisioner.api.machinery.errors import Retryable

_REPLY_SECONDS: Final = 10.0
_MAX_SOCKET_PATH_BYTES: Final = 107


class MonitorGone(Retryable):
    """QEMU closed its monitor, or does not answer."""


class QmpClient:
    """One connection to a monitor. A thread of its own reads from it and calls `on_event(name, data)`.

    `on_event` must not call `execute`: it runs in the thread that would read the reply.
    """

    def __init__(self, path: Path, on_event: Callable[[str, Mapping[str, Any]], None]) -> None:
        self._path = path
        self._on_event = on_event
        self._replies: queue.Queue[Mapping[str, Any] | None] = queue.Queue()
        self._one_command_at_a_time = threading.Lock()
        self._socket: socket.socket | None = None

    def connect(self) -> None:
        """Connect and negotiate. Raises: MonitorGone (also while QEMU starts), ValueError if the path is too long."""
        if len(bytes(self._path)) > _MAX_SOCKET_PATH_BYTES:
            raise ValueError(
                f"socket path {self._path} is longer than {_MAX_SOCKET_PATH_BYTES} bytes; use a shorter lab directory"
            )
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(str(self._path))
        except OSError as error:
            connection.close()
            raise MonitorGone(f"monitor {self._path} does not accept a connection: {error}") from error
        self._socket = connection
        threading.Thread(
            target=self._read, args=(connection,), name=f"qmp {self._path.parent.name}", daemon=True
        ).start()
        self.execute("qmp_capabilities")

    def execute(self, command: str, **arguments: Any) -> Any:
        """Run a command and return what it returns. Raises: MonitorGone, also when QEMU refuses the command."""
        request = json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n"
        with self._one_command_at_a_time:
            if self._socket is None:
                raise MonitorGone(f"monitor {self._path} is not connected")
            try:
                self._socket.sendall(request)
                reply = self._replies.get(timeout=_REPLY_SECONDS)
            except (OSError, queue.Empty) as error:
                raise MonitorGone(f"monitor {self._path} did not answer {command}: {error}") from error
        if reply is None:
            raise MonitorGone(f"monitor {self._path} was closed during {command}")
        if "error" in reply:
            raise MonitorGone(f"monitor {self._path} refused {command}: {reply['error'].get('desc')}")
        return reply["return"]

    def close(self) -> None:
        if self._socket is not None:
            # Wakes the reading thread, which a close alone does not.
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()

    def _read(self, connection: socket.socket) -> None:
        try:
            with connection.makefile("rb") as lines:
                for line in lines:
                    message = json.loads(line)
                    if "event" in message:
                        self._on_event(message["event"], message.get("data", {}))
                    elif "return" in message or "error" in message:
                        self._replies.put(message)
        except (OSError, ValueError):
            pass
        self._replies.put(None)
