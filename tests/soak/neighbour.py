"""A neighbour on the boot network that sends whatever it likes, in a network namespace of its own.

    python -m tests.soak.neighbour INTERFACE --boot-host ADDRESS --victim MAC=ADDRESS … --seconds N --seed N

Sends mutated DHCP messages (as broadcasts, from source addresses of its own), requests that are no HTTP, requests that
never end, reports of boots that are not, requests for scripts and for join configurations of others. At most 40
things a second; prints a line of JSON: how many of each it has sent.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import socket
import ssl
import struct
import sys
import time
import uuid
from collections import Counter
from typing import Final

from tests.boot.dhcp.messages import CAPTURED, captured

PER_SECOND: Final = 40
SLOW_CONNECTIONS: Final = 32
ETHERTYPE_IPV4: Final = 0x0800
STAGES: Final = ("Firmware", "IPXE", "Stage1", "Root", "System", "Token", "Kubelet", "Ready", "Failed", "\x1b[2J")


def mutate(dice: random.Random, message: bytes) -> bytes:
    """Some bytes changed, cut off, doubled or put in; sometimes none."""
    changed = bytearray(message)
    for _ in range(dice.choice((0, 1, 1, 2, 8, 64))):
        place = dice.randrange(len(changed))
        match dice.randrange(4):
            case 0:
                changed[place] = dice.randrange(256)
            case 1:
                del changed[place : place + dice.randrange(1, 40)]
            case 2:
                changed[place:place] = dice.randbytes(dice.randrange(1, 300))
            case _:
                changed[place:place] = changed[place : place + 60]
        if not changed:
            return b"\0"
    return bytes(changed[:1400])


def frame(payload: bytes, mac: bytes) -> bytes:
    """Payload as UDP from 0.0.0.0:68 to 255.255.255.255:67 in an Ethernet frame."""
    udp = struct.pack("!HHHH", 68, 67, 8 + len(payload), 0) + payload
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 1, 0, 64, 17, 0, bytes(4), b"\xff" * 4)
    total = sum(struct.unpack("!10H", head))
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    head = head[:10] + struct.pack("!H", ~total & 0xFFFF) + head[12:]
    return b"\xff" * 6 + mac + struct.pack("!H", ETHERTYPE_IPV4) + head + udp


class Neighbour:
    """One at work; `sent` counts."""

    def __init__(self, interface: str, boot_host: str, victims: dict[str, str], dice: random.Random) -> None:
        self._dice = dice
        self._boot_host = boot_host
        self._victims = victims
        self._raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        self._raw.bind((interface, 0))
        self._messages = [captured(name) for name in CAPTURED]
        self._slow: list[socket.socket] = []
        self._context = ssl.create_default_context()
        self._context.check_hostname, self._context.verify_mode = False, ssl.CERT_NONE
        self.sent: Counter[str] = Counter()

    def act(self) -> None:
        """One of the things, by chance."""
        act = self._dice.choices(
            (self._dhcp, self._no_http, self._report, self._script, self._join, self._never_ends),
            (30, 3, 4, 4, 2, 1),
        )[0]
        with contextlib.suppress(OSError):
            act()
            self.sent[act.__name__.strip("_")] += 1

    def _mac(self) -> str:
        own = "52:54:00:" + ":".join(f"{self._dice.randrange(256):02x}" for _ in range(3))
        return self._dice.choice((own, *self._victims))

    def _dhcp(self) -> None:
        message = mutate(self._dice, self._dice.choice(self._messages))
        mac = bytes.fromhex(self._mac().replace(":", ""))
        if self._dice.random() < 0.3 and len(message) > 34:
            message = message[:28] + mac + message[34:]
        # Never by a victim's own source address: the bridge would deliver the victim's packets here.
        source = b"\x02" + self._dice.randbytes(5)
        self._raw.send(frame(message, source))

    def _no_http(self) -> None:
        with self._connect(self._dice.choice((80, 8443))) as connection:
            connection.sendall(self._dice.randbytes(self._dice.randrange(1, 5000)))

    def _report(self) -> None:
        report = {
            "mac": self._mac(),
            "stage": self._dice.choice(STAGES),
            "bootID": str(uuid.UUID(int=self._dice.getrandbits(128))),
            "message": "x" * self._dice.randrange(3000),
        }
        self._post(80, "/v1/progress", json.dumps(report).encode(), None)

    def _script(self) -> None:
        path = f"/ipxe/{self._mac().replace(':', '-')}.ipxe" if self._dice.random() < 0.7 else "/../../etc/passwd"
        self._send(80, f"GET {path} HTTP/1.1\r\nHost: {self._boot_host}\r\nConnection: close\r\n\r\n".encode(), None)

    def _join(self) -> None:
        claim = {
            "macAddress": self._mac(),
            "systemUUID": str(uuid.UUID(int=self._dice.getrandbits(128))),
            "bootID": str(uuid.UUID(int=self._dice.getrandbits(128))),
            "imageDigest": "sha256:" + self._dice.randbytes(32).hex(),
            "requestKey": self._dice.randbytes(32).hex(),
            "evidence": {},
        }
        self._post(8443, "/v1/join", json.dumps(claim).encode(), self._context)

    def _never_ends(self) -> None:
        connection = self._connect(80)
        connection.sendall(b"POST /v1/progress HTTP/1.1\r\nHost: x\r\nContent-Length: 4000\r\n\r\n{")
        self._slow.append(connection)
        while len(self._slow) > SLOW_CONNECTIONS:
            self._slow.pop(0).close()

    def _post(self, port: int, path: str, body: bytes, context: ssl.SSLContext | None) -> None:
        head = f"POST {path} HTTP/1.1\r\nHost: {self._boot_host}\r\nContent-Type: application/json\r\n"
        self._send(port, f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body, context)

    def _send(self, port: int, request: bytes, context: ssl.SSLContext | None) -> None:
        with self._connect(port) as plain:
            connection = context.wrap_socket(plain) if context else plain
            connection.sendall(request)
            connection.recv(4096)

    def _connect(self, port: int) -> socket.socket:
        return socket.create_connection((self._boot_host, port), timeout=1)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="tests.soak.neighbour")
    parser.add_argument("interface")
    parser.add_argument("--boot-host", required=True)
    parser.add_argument("--victim", action="append", default=[])
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--seed", required=True)
    options = parser.parse_args(arguments)
    victims = dict(each.split("=", 1) for each in options.victim)
    neighbour = Neighbour(options.interface, options.boot_host, victims, random.Random(options.seed))
    ends = time.monotonic() + options.seconds
    while (now := time.monotonic()) < ends:
        neighbour.act()
        time.sleep(max(0.0, now + 1 / PER_SECOND - time.monotonic()))
    print(json.dumps(neighbour.sent))


if __name__ == "__main__":
    main(sys.argv[1:])
