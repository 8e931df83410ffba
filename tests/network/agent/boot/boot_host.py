"""What a DPU finds on the underlay for its host: a boot host's HTTP, and the ends of the two passages."""

from __future__ import annotations

import contextlib
import hashlib
import socket
import threading
from collections.abc import Iterator

from pytest_httpserver import URI_DEFAULT
from werkzeug import Request, Response

from tests.http_peer import HttpPeer, target
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


class BootHost(HttpPeer):
    """files: by path. asked: what came, as method, path and body; passed: what came by passages, by port: the sender
    and the first line."""

    def __init__(self) -> None:
        super().__init__(BOOT_HOST, 80)
        self.files = {
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
        self.asked: list[tuple[str, str, bytes]] = []
        self.passed: dict[int, list[tuple[str, bytes]]] = {}
        self.expect_request(URI_DEFAULT).respond_with_handler(self._serve)

    def times(self, path: str) -> int:
        """How often it was fetched."""
        return sum(each[:2] == ("GET", path) for each in self.asked)

    def _serve(self, request: Request) -> Response:
        self.asked.append((request.method, target(request), request.data))
        if request.method == "POST":
            return Response(status=204)
        content = self.files.get(request.path)
        if content is None:
            return Response(status=404)
        return Response(content).make_conditional(request, accept_ranges=True, complete_length=len(content))


@contextlib.contextmanager
def boot_host(namespace: Namespace, *ports: int) -> Iterator[BootHost]:
    """HTTP on port 80, and at each of `ports` who answers with a line that it is sent."""
    host = BootHost()
    with contextlib.ExitStack() as stack:
        namespace.inside(host.start)
        stack.callback(host.stop)
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
