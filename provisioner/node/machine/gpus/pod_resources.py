"""Which pod has which device, from the kubelet's pod-resources service: one unary gRPC call over its unix socket.

gRPC is HTTP/2 with a frame of five bytes before each message. One call needs no more than a request whose header fields
are written plainly, and an answer of which only the data is read: status and header fields stay compressed, unread.
Sources: RFC 9113, RFC 7541, "gRPC over HTTP2", k8s.io/kubelet/pkg/apis/podresources/v1.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

SOCKET = "/var/lib/kubelet/pod-resources/kubelet.sock"
METHOD = "/v1.PodResourcesLister/List"
MOST_BYTES = 4 << 20
SECONDS = 5.0
MOST_DEVICES = 512
_GPUS = ("GPU-", "MIG-")
"""The plugin names devices by their UUIDs, if its deviceIDStrategy is not index."""

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_END_STREAM, _ACK, _END_HEADERS, _PADDED = 1, 1, 4, 8
_LARGEST_FRAME = 16384
_SETTING_TABLE_SIZE, _SETTING_PUSH, _SETTING_WINDOW = 1, 2, 4


class PodResourcesError(Exception):
    """The kubelet did not answer, or not so."""


def list_gpus(path: str) -> list[dict[str, Any]]:
    """Every GPU, or MIG device, that a container has from NVIDIA's device plugin: namespace, pod, container, device.

    Raises: PodResourcesError.
    """
    try:
        return [each for each in read_pods(_call(path, METHOD)) if each["device"].startswith(_GPUS)][:MOST_DEVICES]
    except (OSError, ValueError, struct.error) as error:
        raise PodResourcesError(f"{path}: {error}") from error


def _call(path: str, method: str) -> bytes:
    """The answer to an empty message. Raises: OSError, ValueError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        stream = _Stream(connection, time.monotonic() + SECONDS)
        connection.settimeout(SECONDS)
        connection.connect(path)
        settings = ((_SETTING_TABLE_SIZE, 0), (_SETTING_PUSH, 0), (_SETTING_WINDOW, MOST_BYTES))
        connection.sendall(
            _PREFACE
            + _frame(_SETTINGS, 0, 0, b"".join(struct.pack(">HI", key, value) for key, value in settings))
            + _frame(_WINDOW_UPDATE, 0, 0, struct.pack(">I", MOST_BYTES))
            + _frame(_HEADERS, _END_HEADERS, 1, _request_fields(method))
            + _frame(_DATA, _END_STREAM, 1, struct.pack(">BI", 0, 0))
        )
        body = stream.read_body()
    if len(body) < 5:
        raise ValueError("the kubelet answered without a message: it refused the call")
    is_compressed, length = struct.unpack(">BI", body[:5])
    if is_compressed or length != len(body) - 5:
        raise ValueError(f"the kubelet answered {len(body)} bytes that are not one plain message")
    return body[5:]


class _Stream:
    """The one stream of a connection."""

    def __init__(self, connection: socket.socket, ends: float) -> None:
        self._connection = connection
        self._ends = ends
        self._left = 2 * MOST_BYTES

    def read_body(self) -> bytes:
        body = bytearray()
        while True:
            head = self._exactly(9)
            length, type_, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
            if length > _LARGEST_FRAME:
                raise ValueError(f"a frame of {length} bytes, more than allowed")
            payload = self._exactly(length)
            if type_ == _DATA:
                body += _without_padding(payload) if flags & _PADDED else payload
            elif type_ == _SETTINGS and not flags & _ACK:
                self._connection.sendall(_frame(_SETTINGS, _ACK, 0, b""))
            elif type_ == _PING and not flags & _ACK:
                self._connection.sendall(_frame(_PING, _ACK, 0, payload))
            elif type_ in (_RESET, _GOAWAY):
                code = payload[:4] if type_ == _RESET else payload[4:8]
                raise ValueError(f"the kubelet ended the call with error {int.from_bytes(code, 'big')}")
            if type_ in (_DATA, _HEADERS) and flags & _END_STREAM:
                return bytes(body)

    def _exactly(self, count: int) -> bytes:
        self._left -= count
        if self._left < 0:
            raise ValueError(f"more than {MOST_BYTES} bytes")
        read = bytearray()
        while len(read) < count:
            self._connection.settimeout(max(0.001, self._ends - time.monotonic()))
            more = self._connection.recv(count - len(read))
            if not more:
                raise ValueError("the kubelet hung up")
            read += more
        return bytes(read)


def _without_padding(payload: bytes) -> bytes:
    if not payload or payload[0] >= len(payload):
        raise ValueError("padding that is longer than its frame")
    return payload[1 : len(payload) - payload[0]]


def _frame(type_: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + struct.pack(">BBI", type_, flags, stream) + payload


def _request_fields(method: str) -> bytes:
    """Header fields by RFC 7541: what its static table has by number, the rest plain and never indexed."""
    post, scheme_http = b"\x83", b"\x86"
    path, authority, content_type = b"\x14" + _string(method), b"\x11" + _string("localhost"), b"\x1f\x10"
    return (
        post + scheme_http + path + authority + content_type + _string("application/grpc")
        + b"\x10" + _string("te") + _string("trailers")
    )  # fmt: skip


def _string(text: str) -> bytes:
    data = text.encode()
    return bytes([len(data)]) + data  # all are shorter than 127 bytes


def read_pods(message: bytes) -> Iterator[dict[str, Any]]:
    """Devices of a ListPodResourcesResponse. Pure. Raises: ValueError."""
    for pod in _messages(message, 1):
        name, namespace = _text(pod, 1), _text(pod, 2)
        for container in _messages(pod, 3):
            container_name = _text(container, 1)
            for devices in _messages(container, 2):
                # Once, not for each device: where the name is missing, the whole message is searched for it.
                resource = _text(devices, 1)
                for device in _messages(devices, 2):
                    yield {
                        "namespace": namespace,
                        "pod": name,
                        "container": container_name,
                        "resource": resource,
                        "device": device.decode("utf-8", "replace"),
                    }


def _text(message: bytes, number: int) -> str:
    return next((value.decode("utf-8", "replace") for value in _messages(message, number)), "")


def _messages(message: bytes, number: int) -> Iterator[bytes]:
    """The length-delimited fields of that number."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        wire = key & 7
        if wire == 0:
            _, place = _varint(message, place)
            continue
        if wire in (1, 5):
            place += 8 if wire == 1 else 4
            continue
        if wire != 2:
            raise ValueError(f"a field of wire type {wire}")
        length, place = _varint(message, place)
        if place + length > len(message):
            raise ValueError("a message that is cut short")
        if key >> 3 == number:
            yield message[place : place + length]
        place += length


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while place < len(message) and shift < 64:
        byte = message[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place
    raise ValueError("a number that is cut short")
