"""The sockets: one for each served port, bound to its device in its domain, all read by one thread.

A socket is the namespace's in which it was opened, wherever its thread is afterwards. One whose device has gone is deaf
for ever: at each `serve`, which the agent calls with every look at the kernel, it is told by namespace and index
whether the device is still the one that it was bound to.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Final

from provisioner.network.agent.dhcp.answer import answer
from provisioner.network.agent.dhcp.served import ServedPort
from provisioner.network.agent.dhcp.wire import LONGEST_REQUEST, MessageType, Reply, decode, encode
from provisioner.network.agent.model.namespaces import device_here, inside

SERVER_PORT: Final = 67
_CLIENT_PORT: Final = 68
_REQUESTS_AT_ONCE: Final = 8
"""Of one port, before others have their turn."""
_QUEUE_BYTES: Final = 65536
_NO_CHECKSUM: Final = 11  # linux/socket.h: SO_NO_CHECK
_PACKET_INFO: Final = 8  # linux/in.h: IP_PKTINFO
_STOP_SECONDS: Final = 10.0


@dataclass
class _Listener:
    """`port`: what is answered at present. `device`: as `device_here` tells it. `has_told`: whether a refused address
    was told of."""

    port: ServedPort
    device: tuple[tuple[int, int], int]
    socket: socket.socket
    has_told: bool = False


class HostDhcpServer:
    """Answers on the ports of the last `serve`, until `stop`. `say`: what a person should know, seldom.

    HOME is the namespace in which `start` is called.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._lock = threading.Lock()
        self._wanted: dict[str, ServedPort] = {}
        self._is_stopped = False
        self._listeners: dict[str, _Listener] = {}
        self._faults: dict[str, str] = {}
        self._selector = selectors.DefaultSelector()
        self._ours, self._theirs = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="dhcp", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        for each in (self._ours, self._theirs):
            each.setblocking(False)
        self._selector.register(self._ours, selectors.EVENT_READ)
        self._thread.start()

    def serve(self, ports: Iterable[ServedPort]) -> None:
        """From now on these and no others. Returns at once."""
        wanted = {port.function: port for port in ports}
        with self._lock:
            self._wanted = wanted
        self._wake()

    def stop(self) -> None:
        """Close all sockets. May be called once, after `start`."""
        with self._lock:
            self._is_stopped = True
        self._wake()
        self._thread.join(_STOP_SECONDS)

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # full: it is awake; closed: it has ended
            self._theirs.send(b"\0")

    def _run(self) -> None:
        try:
            while self._follows():
                for key, _ in self._selector.select():
                    listener = key.data
                    if isinstance(listener, _Listener):
                        self._read(listener)
        finally:
            for function in list(self._listeners):
                self._close(function)
            for each in (self._ours, self._theirs, self._selector):
                each.close()

    def _follows(self) -> bool:
        """Bring the sockets to what is wanted, if `serve` was called; False once `stop` was."""
        try:
            self._ours.recv(4096)
        except BlockingIOError:
            return True
        with self._lock:
            wanted, is_stopped = self._wanted, self._is_stopped
        for function in [each for each in self._listeners if each not in wanted]:
            self._close(function)
        self._faults = {function: why for function, why in self._faults.items() if function in wanted}
        for function, port in wanted.items():
            try:
                self._listen(function, port)
                self._faults.pop(function, None)
            except OSError as error:
                self._close(function)
                self._fault(function, error)
        return not is_stopped

    def _listen(self, function: str, port: ServedPort) -> None:
        """Raises: OSError, if the device is not there, or its port 67 is another's."""
        with inside(port.place):
            device = device_here(port.device)
            known = self._listeners.get(function)
            if known is not None and known.device == device:
                known.port = port
                return
            opened = _opened(port.device)
        self._close(function)
        self._listeners[function] = listener = _Listener(port, device, opened)
        self._selector.register(opened, selectors.EVENT_READ, listener)

    def _close(self, function: str) -> None:
        listener = self._listeners.pop(function, None)
        if listener is not None:
            self._selector.unregister(listener.socket)
            listener.socket.close()

    def _read(self, listener: _Listener) -> None:
        """Some of what has come."""
        for _ in range(_REQUESTS_AT_ONCE):
            try:
                data = listener.socket.recv(LONGEST_REQUEST + 1)
            except BlockingIOError:
                return
            except OSError as error:
                self._close(listener.port.function)  # opened anew at the next `serve`
                self._fault(listener.port.function, error)
                return
            request = decode(data)
            if request is None:
                continue
            reply = answer(request, listener.port)
            if reply is not None:
                send(listener.socket, listener.port.gateway, reply)
            elif request.kind is MessageType.DECLINE and request.mac == listener.port.mac:
                self._declined(listener)

    def _declined(self, listener: _Listener) -> None:
        if not listener.has_told:
            listener.has_told = True
            self._say(
                f"the host on port {listener.port.function} says that {listener.port.address} is in use on its link, "
                "where there is nobody but itself: see what answers for that address on the host"
            )

    def _fault(self, function: str, error: OSError) -> None:
        why = error.strerror or str(error)
        if self._faults.get(function) != why:
            self._faults[function] = why
            self._say(f"DHCP is not answered on port {function}: {why}; trying again")


def _opened(device: str) -> socket.socket:
    """In the namespace in which the thread is. Raises: OSError."""
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        opened.setblocking(False)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
        # In VRFs beside a DHCP server of the DPU's own, for other devices of HOME.
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _QUEUE_BYTES)
        # A checksum that is left to the card looks wrong to clients that read frames, where the card is a virtual one.
        opened.setsockopt(socket.SOL_SOCKET, _NO_CHECKSUM, 1)
        opened.bind(("", SERVER_PORT))
    except OSError:
        opened.close()
        raise
    return opened


def send(opened: socket.socket, source: IPv4Address, reply: Reply) -> None:
    """From the gateway `source`. To a host that has no address yet the port's permanent neighbour leads. What cannot be
    sent was asked by a host that will ask again."""
    info = socket.IPPROTO_IP, _PACKET_INFO, struct.pack("=i4s4s", 0, source.packed, bytes(4))
    with contextlib.suppress(OSError):
        opened.sendmsg([encode(reply)], [info], 0, (str(reply.to), _CLIENT_PORT))
