"""What a TFTP request says, and transfers over a lossy line."""

from __future__ import annotations

import socket
import struct
import threading

import pytest

from provisioner.network.agent.boot import tftp
from provisioner.network.agent.boot.tftp import Fault, ReadRequest, encode_options, read_request, transfer


def rrq(name: bytes, *options: bytes, mode: bytes = b"octet", operation: int = 1) -> bytes:
    return struct.pack("!H", operation) + b"\0".join((name, mode, *options)) + b"\0"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (rrq(b"snponly.efi"), ReadRequest("snponly.efi")),
        (rrq(b"/snponly.efi", b"tsize", b"0", b"blksize", b"1468"), ReadRequest("snponly.efi", 1432, True)),
        (rrq(b"ipxe-arm64.efi", b"blksize", b"512", b"windowsize", b"64"), ReadRequest("ipxe-arm64.efi", 512)),
        (rrq(b"snponly.efi", b"blksize", b"4"), ReadRequest("snponly.efi")),
    ],
)
def test_a_file_is_asked_for_by_name_with_block_and_size(data: bytes, expected: ReadRequest) -> None:
    assert read_request(data) == expected


def test_other_files_and_writing_are_refused_and_what_is_no_request_is_not_answered() -> None:
    for name in (b"../etc/passwd", b"etc/passwd", b"", b"snponly.efi\xff"):
        found = read_request(rrq(name))
        assert isinstance(found, Fault), name
        assert found.code == 1
    assert read_request(rrq(b"snponly.efi", operation=2)) == Fault(2, "nothing is written here")
    for data in (b"", b"\0\1", b"\0\1snponly.efi", b"\0\4\0\1", rrq(b"snponly.efi", b"x" * 600)):
        assert read_request(data) is None, data


def test_a_window_is_never_agreed_to() -> None:
    request = read_request(rrq(b"snponly.efi", b"windowsize", b"64"))
    assert isinstance(request, ReadRequest)
    assert encode_options(request, 100) is None


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, 512 * 5])
def test_every_byte_arrives_when_each_third_packet_is_lost(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tftp, "TRY_SECONDS", 0.3)
    content = bytes(each % 251 for each in range(size))
    server, client = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    with server, client:
        for each in (server, client):
            each.bind(("127.0.0.1", 0))
        done: list[bool] = []
        request = ReadRequest("snponly.efi")
        thread = threading.Thread(target=lambda: done.append(transfer(server, client.getsockname(), request, content)))
        thread.start()
        client.settimeout(120)
        got, seen, last = b"", 0, 0
        while True:
            packet, sender = client.recvfrom(2048)
            seen += 1
            if seen % 3 == 0:
                continue  # lost
            operation, block = struct.unpack_from("!HH", packet)
            assert operation == 3
            if block == last + 1:
                got, last = got + packet[4:], block
            client.sendto(struct.pack("!HH", 4, block), sender)
            if len(packet) < 516:
                break
        thread.join(120)
    assert got == content
    assert done == [True]
