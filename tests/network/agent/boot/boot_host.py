"""What a DPU finds on the underlay for its host: a boot host's HTTP, and the ends of the two passages."""

from __future__ import annotations

import contextlib
import hashlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.network.agent.boot.site import BOOT_HOST
from tests.network.agent.rack import Namespace

KERNEL = b"kernel" * 200_000
STAGE1 = b"stage1" * 100_000
ROOT = bytes(range(256)) * 20_000
FIRST_STAGE = b"MZ first stage " * 30_000


def manifest_of(format_: int, files: dict[str, bytes]) -> bytes:
    lines = [f"{name} {hashlib.sha256(content).hexdigest()} {len(content)}" for name, content in files.items()]
    return "\n".join([f"provisioner-image {format_}", "architecture x86_64", *lines, ""]).encode()


def part_of(content: bytes) -> str:
    """Its path by its digest."""
    return f"/images/parts/sha256-{hashlib.sha256(content).hexdigest()}"


MANIFEST = manifest_of(1, {"kernel": KERNEL, "stage1": STAGE1, "root": ROOT})
DIGEST = hashlib.sha256(MANIFEST).hexdigest()
IMAGE = f"/images/sha256-{DIGEST}"
LAYERED_MANIFEST = manifest_of(2, {"kernel": KERNEL, "stage1": STAGE1, "layer.base": ROOT})
LAYERED_DIGEST = hashlib.sha256(LAYERED_MANIFEST).hexdigest()
LAYERED = f"/images/sha256-{LAYERED_DIGEST}"


@dataclass
class BootHost:
    """files: by path. asked: what came, as method, path and body; passed: what came by passages, by port: the sender
    and the first line."""

    files: dict[str, bytes] = field(
        default_factory=lambda: {
            "/boot.ipxe": b"#!ipxe\n# first\n",
            "/tftp/snponly.efi": FIRST_STAGE,
            f"{IMAGE}/manifest": MANIFEST,
            f"{IMAGE}/manifest.sig": b"untrusted comment: signature\n",
            f"{IMAGE}/vmlinuz": KERNEL,
            f"{IMAGE}/stage1.img": STAGE1,
            f"{IMAGE}/root.squashfs": ROOT,
            f"{LAYERED}/manifest": LAYERED_MANIFEST,
            **{part_of(content): content for content in (KERNEL, STAGE1, ROOT)},
        }
    )
    asked: list[tuple[str, str, bytes]] = field(default_factory=list)
    passed: dict[int, list[tuple[str, bytes]]] = field(default_factory=dict)

    def times(self, path: str) -> int:
        """How often it was fetched."""
        return sum(each[:2] == ("GET", path) for each in self.asked)


@contextlib.contextmanager
def boot_host(namespace: Namespace, *ports: int) -> Iterator[BootHost]:
    """HTTP on port 80, and at each of `ports` who answers with a line that it is sent."""
    host = BootHost()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            host.asked.append((self.command, self.path, b""))
            content = host.files.get(self.path.partition("?")[0])
            if content is None:
                self.send_error(404)
                return
            said = self.headers.get("Range")
            if said is not None:
                first, _, last = said.removeprefix("bytes=").partition("-")
                content = content[int(first) : int(last) + 1 if last else None]
            self.send_response(206 if said else 200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                with contextlib.suppress(OSError):
                    self.wfile.write(content)

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            host.asked.append((self.command, self.path, body))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with contextlib.ExitStack() as stack:
        web = namespace.inside(lambda: ThreadingHTTPServer((BOOT_HOST, 80), Handler))
        web.daemon_threads = True
        stack.callback(web.server_close)
        stack.callback(web.shutdown)
        threading.Thread(target=web.serve_forever, daemon=True).start()
        for port in ports:
            opened = stack.enter_context(namespace.inside(lambda port=port: socket.create_server((BOOT_HOST, port))))
            stack.callback(opened.shutdown, socket.SHUT_RDWR)
            threading.Thread(target=_answer, args=(opened, host.passed.setdefault(port, [])), daemon=True).start()
        yield host


def _answer(opened: socket.socket, passed: list[tuple[str, bytes]]) -> None:
    while True:
        try:
            connection, (sender, _) = opened.accept()
        except OSError:
            return
        with connection, contextlib.suppress(OSError):
            connection.settimeout(120)
            line = connection.recv(4096)
            passed.append((sender, line))
            connection.sendall(b"heard " + line)
