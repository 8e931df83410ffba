"""What Python, the kernel and this course take at least: receives, copies what an answer must copy, and sends.

It looks nothing up, checks nothing and counts nothing: a bound for a server in Python without C of its own, no server.
It pauses as a worker does, and its receive buffer is that of a worker's queue.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time

from provisioner.boot.dhcp.workers.pause import Pauses
from provisioner.boot.dhcp.workers.sockets import QUEUE_BYTES, SO_RCVBUFFORCE
from tests.benchmarks.dhcp.wire import CLIENT_ADDRESS, SERVER_ADDRESS

_BATCH = 64
_TAIL = bytes(192) + b"\x63\x82\x53\x63"
_SERVER = socket.inet_aton(SERVER_ADDRESS)
_SAYS = {
    asked: _TAIL + bytes((53, 1, said)) + b"\x36\x04" + _SERVER + b"\x33\x04\0\x01\x51\x80\xff" + bytes(40)
    for asked, said in ((1, 2), (3, 5))
}
"""OFFER for DISCOVER, ACK for REQUEST."""


def main() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sock:
        sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, QUEUE_BYTES)
        sock.bind((SERVER_ADDRESS, 67))
        pauses = Pauses(time.monotonic())
        poller = select.epoll()
        poller.register(sock.fileno(), select.EPOLLIN)
        while True:
            poller.poll()
            packets: list[bytes] = []
            with contextlib.suppress(BlockingIOError):
                while len(packets) < _BATCH:
                    packets.append(sock.recv(2048))
            replies = [
                b"\x02\x01\x06\0" + data[4:8] + bytes(8) + _SERVER + bytes(4) + data[24:44] + _SAYS[data[242]]
                for data in packets
            ]
            for reply in replies:
                sock.sendto(reply, (CLIENT_ADDRESS, 67))
            if pause := pauses.after(len(packets), time.monotonic(), emptied=len(packets) < _BATCH):
                time.sleep(pause)


if __name__ == "__main__":
    main()
