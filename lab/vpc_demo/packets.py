"""What the demo's hosts try: real echo requests, real connections; and an ear for what comes in at another host."""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from ipaddress import ip_address
from typing import Final, Literal

from lab.virtual_network.namespace import Namespace
from lab.virtual_network.rack import Host
from lab.vpc_demo.trial import ANSWER, HEARD, NOT_HEARD, NOTHING, REFUSAL

_CONNECT_SECONDS: Final = 0.7
_LONGEST_GREETING_BYTES: Final = 64
_HEAR_SECONDS: Final = 1.5
_ETHERNET_BYTES: Final = 14
_IPV4: Final = 0x0800
_MTU_BYTES: Final = 1500


def ping(source: Namespace, address: str) -> str:
    """Whether one of three echo requests is answered."""
    return ANSWER if source.echo(address).answered else NOTHING


def connect(source: Namespace, address: str, port: int) -> str:
    """Who answers there: its name if it gives one; ANSWER if it takes the connection and says nothing."""

    def attempt() -> str:
        try:
            with socket.create_connection((address, port), timeout=_CONNECT_SECONDS) as connection:
                return _greeting(connection)
        except ConnectionRefusedError:
            return REFUSAL
        except OSError:
            return NOTHING

    return source.inside(attempt)


def _greeting(connection: socket.socket) -> str:
    try:
        return connection.recv(_LONGEST_GREETING_BYTES).decode(errors="replace") or ANSWER
    except OSError:
        return ANSWER


def send_as(liar: Host, target: Host, to: str, *, address: str | None = None, mac: str | None = None) -> str:
    """Whether an echo request to `to`, which `target` has, comes in there when the host sends it from that IP address
    or hardware address. Afterwards the host is as it was before."""
    own = liar.inside(lambda: _own_address(to))
    if address is not None:
        _change_address(liar, "add", address)
    if mac is not None:
        before = hardware_address(liar)
        _change_hardware_address(liar, mac)
    try:
        return _heard_at(target, lambda: liar.echo(to, source=address), source=address or own, to=to)
    finally:
        if address is not None:
            _change_address(liar, "del", address)
        if mac is not None:
            _change_hardware_address(liar, before)


def _heard_at(target: Host, act: Callable[[], object], *, source: str, to: str) -> str:
    def opened() -> socket.socket:
        ear = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_IPV4))
        ear.bind(("eth0", 0))
        return ear

    with target.inside(opened) as ear:
        acting = threading.Thread(target=act)
        acting.start()
        try:
            deadline = time.monotonic() + _HEAR_SECONDS
            while (left := deadline - time.monotonic()) > 0:
                if select.select([ear], [], [], left)[0] and is_echo_request(ear.recv(_MTU_BYTES), source, to):
                    return HEARD
            return NOT_HEARD
        finally:
            acting.join()


def is_echo_request(frame: bytes, source: str, to: str) -> bool:
    """Whether an Ethernet frame is an IPv4 echo request from `source` to `to`."""
    packet = frame[_ETHERNET_BYTES:]
    if len(packet) < 20 or packet[9] != socket.IPPROTO_ICMP:
        return False
    length = (packet[0] & 15) * 4
    addresses = (ip_address(source).packed, ip_address(to).packed)
    return struct.unpack_from("4s4s", packet, 12) == addresses and packet[length : length + 1] == b"\x08"


def _own_address(to: str) -> str:
    """From which a packet to `to` leaves. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((to, 9))
        address: str = probe.getsockname()[0]
        return address


def hardware_address(host: Host) -> str:
    """Of its eth0."""
    with host.kernel() as kernel:
        (link,) = kernel.link("get", ifname="eth0")
    return str(link.get("address"))


def _change_address(host: Host, command: Literal["add", "del"], address: str) -> None:
    with host.kernel() as kernel:
        kernel.addr(command, index=socket.if_nametoindex("eth0"), address=address, prefixlen=32)


def _change_hardware_address(host: Host, mac: str) -> None:
    """The default route stays: the device is not taken down for it."""
    with host.kernel() as kernel:
        kernel.link("set", ifname="eth0", address=mac)
