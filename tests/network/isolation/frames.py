"""Frames that no honest host sends, and ears for them: raw sockets in network namespaces."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from scapy.compat import raw
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet

from provisioner.network.agent.model.naming import GATEWAY_MAC
from tests.network.agent.rack import Namespace

MARK = b"not for everybody"
_ALL = 0x0003


def udp(source: str, target: str, *, source_port: int = 4000) -> Packet:
    """A datagram with the mark, without the frame around it."""
    layer = IPv6 if ":" in source else IP
    return layer(src=source, dst=target) / UDP(sport=source_port, dport=4001) / MARK


def frame(packet: Packet, *, mac: str, to: str = GATEWAY_MAC) -> Packet:
    """From `mac`, to the gateway of the port unless said otherwise."""
    return Ether(src=mac, dst=to) / packet


@contextmanager
def ear(namespace: Namespace, device: str = "eth0") -> Iterator[socket.socket]:
    """A socket that hears all of a device."""

    def opened() -> socket.socket:
        heard = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL))
        heard.bind((device, 0))
        return heard

    with namespace.inside(opened) as heard:
        yield heard


def send(namespace: Namespace, packet: Packet, *, device: str = "eth0", times: int = 1) -> None:
    with ear(namespace, device) as mouth:
        for _ in range(times):
            mouth.send(raw(packet))


def count_heard(heard: socket.socket, of: Callable[[bytes], bool], *, seconds: float, enough: int) -> int:
    """How many frames of `of` come in within `seconds`; what the listener sends itself is none. No more than `enough`
    are waited for."""
    found, late, deadline = 0, 0, time.monotonic() + seconds
    while found < enough and late < 100:  # who comes to look too late still finds what was there in time
        left = deadline - time.monotonic()
        late += left <= 0
        if not select.select([heard], [], [], max(0.0, left))[0]:
            break
        got, origin = heard.recvfrom(65535)
        found += origin[2] != socket.PACKET_OUTGOING and of(got)
    return found


def _has_mark(got: bytes) -> bool:
    return MARK in got


def is_heard(heard: socket.socket, of: Callable[[bytes], bool] = _has_mark) -> bool:
    """What shall be heard has time."""
    return count_heard(heard, of, seconds=60.0, enough=1) == 1


def arrives(
    sender: Namespace,
    packet: Packet,
    heard: socket.socket,
    of: Callable[[bytes], bool] = _has_mark,
    *,
    device: str = "eth0",
) -> bool:
    """Whether it is heard. It is sent again, as a kernel that another test floods drops frames in all namespaces."""
    for _ in range(12):
        send(sender, packet, device=device)
        if count_heard(heard, of, seconds=5.0, enough=1) == 1:
            return True
    return False


def is_silent(heard: socket.socket, of: Callable[[bytes], bool] = _has_mark) -> bool:
    """Whether it is not heard within a moment."""
    return count_heard(heard, of, seconds=0.3, enough=1) == 0
