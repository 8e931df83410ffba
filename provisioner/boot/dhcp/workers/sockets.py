"""Open the sockets of all workers. The parent opens and keeps them; workers inherit them.

So a port that is taken fails at start, not in a child; a worker that died leaves its queue to the next one; and the
order of the reuseport group, on which the steering relies, never changes.
"""

from __future__ import annotations

import array
import errno
import fcntl
import socket
import struct
from typing import Final, NamedTuple

import structlog

from provisioner.api.machinery.errors import NeedsHuman
from provisioner.boot.dhcp.model.config import DhcpConfig
from provisioner.boot.dhcp.wire.reply import BROADCAST
from provisioner.boot.dhcp.workers import steer

log = structlog.get_logger()

IP_PKTINFO: Final = 8
_IP_FREEBIND: Final = 15
SO_RCVBUFFORCE: Final = 33
_SIOCGIFCONF: Final = 0x8912
_SIOCGSTAMPNS: Final = 0x8907
_IFREQ_BYTES: Final = 40
_MOST_ADDRESSES: Final = 256

QUEUE_BYTES: Final = 1 << 20
"""Of each queue. Linux doubles it and counts more for a packet than its length (see pause.MOST_GATHERED), so it holds
480 to 1,600 packets: at most 0.05 s of work. A longer queue would only make packets wait longer. Without CAP_NET_ADMIN
net.core.rmem_max limits it; at 212,992 bytes a queue still holds more than gathers in a pause."""


class WorkerSocket(NamedTuple):
    """One queue of one worker."""

    sock: socket.socket
    interface: str | None
    interface_index: int
    """Of a broadcast queue; 0 for the unicast ones."""
    discovers: bool


def open_listeners(config: DhcpConfig) -> list[list[WorkerSocket]]:
    """Open the sockets: a list for each worker, its last one the unicast queue for all but DISCOVERs.

    Raises: NeedsHuman if a port is taken, an interface is missing or rights are.
    """
    opened: list[list[WorkerSocket]] = [[] for _ in range(config.workers)]
    try:
        for name in config.interfaces:
            index = _interface_index(name)
            for worker, listeners in enumerate(opened):
                for discovers in (True, False):
                    sock = _open((BROADCAST, config.server_port), name)
                    listeners.append(WorkerSocket(sock, name, index, discovers))
                    program = steer.broadcast_filter(worker, config.workers, discovers=discovers)
                    steer.attach(sock, steer.SO_ATTACH_FILTER, program)
        for listeners in opened:
            for discovers in (True, False):
                sock = _open((config.server_address, config.server_port), None)
                listeners.append(WorkerSocket(sock, None, 0, discovers))
        steer.attach(opened[0][-1].sock, steer.SO_ATTACH_REUSEPORT_CBPF, steer.unicast_choice(config.workers))
    except OSError as error:
        close(opened)
        raise _explain(error, config) from error
    except BaseException:
        close(opened)
        raise
    return opened


def close(opened: list[list[WorkerSocket]]) -> None:
    for listeners in opened:
        for listener in listeners:
            listener.sock.close()


def _open(address: tuple[str, int], interface: str | None) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        try:
            sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, QUEUE_BYTES)
        except PermissionError:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, QUEUE_BYTES)
        if interface is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
        try:
            sock.bind(address)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise
            # An address that moves between boot hosts may be elsewhere now.
            sock.setsockopt(socket.IPPROTO_IP, _IP_FREEBIND, 1)
            sock.bind(address)
            log.warning("DHCP server address was not found on this host", address=address[0])
    except BaseException:
        sock.close()
        raise
    return sock


def _interface_index(name: str) -> int:
    try:
        return socket.if_nametoindex(name)
    except OSError as error:
        raise NeedsHuman(
            f"DHCP interface {name!r} does not exist on this host", hint="name an interface that `ip link` shows"
        ) from error


def _explain(error: OSError, config: DhcpConfig) -> NeedsHuman:
    what = f"DHCP cannot listen at {config.server_address} port {config.server_port}: {error.strerror}"
    hints = {
        errno.EADDRINUSE: "stop the other DHCP server on this host (`ss -ulpn sport = :67` names it)",
        errno.EACCES: "run as root, or with CAP_NET_BIND_SERVICE",
        errno.EPERM: "run as root, or with CAP_NET_RAW for named interfaces",
    }
    return NeedsHuman(what, hint=hints.get(error.errno or 0, "check the setting server_address"))


def interface_addresses(sock: socket.socket) -> dict[str, tuple[bytes, ...]]:
    """IPv4 addresses of each interface, in the network namespace of `sock`."""
    buffer = array.array("B", bytes(_IFREQ_BYTES * _MOST_ADDRESSES))
    pointer, _ = buffer.buffer_info()
    # struct ifconf: length and pointer; the kernel writes the length that it used
    answer = fcntl.ioctl(sock.fileno(), _SIOCGIFCONF, struct.pack("@iP", len(buffer), pointer))
    used = struct.unpack("@iP", answer)[0]
    found: dict[str, tuple[bytes, ...]] = {}
    data = buffer.tobytes()
    for at in range(0, used, _IFREQ_BYTES):
        # struct ifreq: name (a label `eth0:1` on some secondary addresses), then a sockaddr_in
        name = data[at : at + 16].split(b"\0", 1)[0].decode().split(":")[0]
        found[name] = (*found.get(name, ()), data[at + 20 : at + 24])
    return found


def pack_pktinfo(interface_index: int, source: str) -> bytes:
    """struct in_pktinfo for a datagram that is to leave by this interface, from this address."""
    return struct.pack("@I4s4s", interface_index, socket.inet_aton(source), bytes(4))


_timespec: Final = struct.Struct("@ll")
_stamp: Final = bytearray(_timespec.size)


def received_time(sock: socket.socket) -> float | None:
    """When the kernel received the datagram that was read last, in seconds since 1970: waiting in the queue counts.

    The first call turns that on: it is None before. Not for several threads.
    """
    try:
        fcntl.ioctl(sock, _SIOCGSTAMPNS, _stamp)
    except OSError:
        return None
    seconds, nanoseconds = _timespec.unpack_from(_stamp)
    return float(seconds + nanoseconds / 1e9)
