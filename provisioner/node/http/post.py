"""One HTTP/1.1 POST over a fresh connection, plain or TLS.

`http.client` would do, but it imports the `email` package: two thirds of the agent's start-up time.
"""

from __future__ import annotations

import socket
import ssl
import time

MAX_ANSWER_BYTES = 1 << 20


class AnswerError(OSError):
    """The peer does not speak HTTP, or answered more than MAX_ANSWER_BYTES."""


class HttpResponse:
    """Status, headers (names in lower case) and body of a response."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body


def split_url(url: str) -> tuple[bool, str, int, str]:
    """`https://10.80.0.1:8443/x` → (True, "10.80.0.1", 8443, "/x"). Raises: ValueError on another scheme."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in ("http", "https"):
        raise ValueError(f"URL {url!r} does not begin with http:// or https://")
    authority, _, path = rest.partition("/")
    if authority.startswith("["):
        host, _, port = authority[1:].partition("]")
        port = port[1:]
    else:
        host, _, port = authority.partition(":")
    if not host:
        raise ValueError(f"URL {url!r} names no host")
    tls = scheme == "https"
    return tls, host, int(port) if port else (443 if tls else 80), "/" + path


def pinned_context(ca_path: str) -> ssl.SSLContext:
    """TLS that trusts the certificates in `ca_path` and nothing else; the peer's name or IP address is checked."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(cafile=ca_path)
    return context


def post(
    url: str,
    body: bytes,
    *,
    context: ssl.SSLContext | None = None,
    source_address: str | None = None,
    timeout_seconds: float = 10.0,
) -> HttpResponse:
    """POST JSON and read the whole answer, in `timeout_seconds` for all. `source_address`: local address to speak from.

    Raises: OSError (ssl.SSLError among them) when there is no connection; AnswerError when there is no HTTP.
    """
    deadline = time.monotonic() + timeout_seconds
    tls, host, port, path = split_url(url)
    if tls and context is None:
        raise ValueError(f"{url}: TLS needs a context")
    source = (source_address, 0) if source_address else None
    with socket.create_connection((host, port), timeout=timeout_seconds, source_address=source) as plain:
        if not tls or context is None:
            return _exchange(plain, host, port, path, body, deadline)
        with context.wrap_socket(plain, server_hostname=host) as connection:
            return _exchange(connection, host, port, path, body, deadline)


def _exchange(connection: socket.socket, host: str, port: int, path: str, body: bytes, deadline: float) -> HttpResponse:
    name = f"[{host}]" if ":" in host else host
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {name}:{port}\r\nUser-Agent: provisioner-node\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    connection.sendall(head.encode("ascii") + body)
    raw = b""
    while len(raw) <= MAX_ANSWER_BYTES:
        # A time-out of the socket bounds the gap between two bytes only.
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"no whole answer in time, {len(raw)} bytes came")
        connection.settimeout(left)
        piece = connection.recv(1 << 16)
        if not piece:
            break
        raw += piece
    return read_answer(raw)


def read_answer(raw: bytes) -> HttpResponse:
    """Parse everything that a peer sent until it closed. Raises: AnswerError."""
    if len(raw) > MAX_ANSWER_BYTES:
        raise AnswerError(f"answer is longer than {MAX_ANSWER_BYTES} bytes")
    head, separator, body = raw.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ", 2)
    if not separator or len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdigit():
        raise AnswerError(f"answer does not begin like HTTP/1.1: {lines[0][:80]!r}")
    headers = {}
    for line in lines[1:]:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = _unchunk(body)
    elif headers.get("content-length", "").isdigit() and len(body) != int(headers["content-length"]):
        raise AnswerError(f"answer was cut: {len(body)} of {headers['content-length']} bytes")
    return HttpResponse(int(words[1]), headers, body)


def _unchunk(raw: bytes) -> bytes:
    body = b""
    while True:
        line, separator, rest = raw.partition(b"\r\n")
        try:
            size = int(line.split(b";")[0], 16)
        except ValueError as error:
            raise AnswerError("answer was cut inside a chunk") from error
        if not separator or len(rest) < size:
            raise AnswerError("answer was cut inside a chunk")
        if size == 0:
            return body
        body += rest[:size]
        raw = rest[size + 2 :]
