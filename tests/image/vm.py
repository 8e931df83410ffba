"""One QEMU guest in a network namespace of its own, and the boot host that it sees at 10.0.2.2.

QEMU's user-mode network ends at the loopback interface of the namespace, where the server listens; there is nothing
else. Everything waits for what the guest says, with generous bounds: a busy machine is four times slower.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import time
import urllib.parse
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pytest_httpserver import URI_DEFAULT
from werkzeug import Request, Response

from lab.machine.machine import EMULATED_KERNEL_ARGUMENTS, processors
from lab.tools import Tools
from provisioner.image.assembly.build import Built
from provisioner.node.image.manifest import read_manifest
from tests.emulator import Heard, emulator
from tests.http_peer import HttpPeer, target

HOST = "10.0.2.2"
MAC = "52:54:00:12:34:56"

Answer = Callable[[str], bytes | None]
"""Path in, body out; None is 404."""


class Dripping(bytes):
    """A body behind which a byte comes now and then, until the guest leaves."""


@contextmanager
def boot_host(namespace: str, answer: Answer, heard: Heard) -> Iterator[None]:
    """Serve images by `answer`, and take progress reports, at port 80 of the namespace's loopback."""

    def pieces(body: bytes) -> Iterator[bytes]:
        yield body
        while isinstance(body, Dripping) and not heard.ended:
            yield b"x"
            time.sleep(0.5)

    def serve(request: Request) -> Response:
        if request.method == "POST":
            body = request.data.decode()
            fields = json.loads(body) if body.startswith("{") else dict(urllib.parse.parse_qsl(body))
            heard.add(heard.posts, {"path": target(request), **fields})
            return Response(status=204)
        content = answer(target(request))
        if content is None:
            return Response(status=404)
        size = len(content) + (1 << 30) * isinstance(content, Dripping)
        return Response(pieces(content), headers={"Content-Length": str(size)})

    server = HttpPeer(port=80)
    server.expect_request(URI_DEFAULT).respond_with_handler(serve)
    with _inside(namespace):
        server.start()
    try:
        yield
    finally:
        server.stop()


def boot_files(built: Built) -> tuple[Path, Path]:
    """Kernel and stage-1 of an image in a store."""
    contents = read_manifest((built.folder / "manifest").read_bytes(), built.digest, "x86_64")
    return built.folder.parent / contents.kernel.path, built.folder.parent / contents.stage1.path


@contextmanager
def guest(
    tools: Tools,
    files: tuple[Path, Path],
    answer: Answer,
    *,
    arguments: Mapping[str, str],
    card: str = "virtio-net-pci",
    memory_mib: int = 512,
    initrd: Path | None = None,
    words: Sequence[str] = (),
) -> Iterator[Heard]:
    """Boot kernel and stage-1 (or another `initrd`) with `provisioner.*` arguments, and kernel arguments beside them;
    nothing remains when the block ends."""
    heard, namespace, (kernel, stage1) = Heard(), f"image-{uuid.uuid4().hex[:8]}", files
    ours = [f"provisioner.{name}={value}" for name, value in arguments.items()]
    lab = ["console=ttyS0,115200", "net.ifnames=0", "quiet", "panic=-1", *EMULATED_KERNEL_ARGUMENTS]
    command_line = " ".join([*lab, *ours, *words])
    qemu = tools.command(
        [
            *("qemu-system-x86_64", "-machine", "q35", *processors("tcg", 1)),
            *("-m", str(memory_mib), "-nographic", "-no-reboot"),
            *("-kernel", kernel, "-initrd", initrd or stage1, "-append", command_line),
            *("-netdev", "user,id=n", "-device", f"{card},netdev=n,mac={MAC}"),
        ],
        binds=[kernel.parent, *([initrd.parent] if initrd else [])],
    )
    inside = ["ip", "netns", "exec", namespace, *qemu]
    with _namespace(namespace), boot_host(namespace, answer, heard), emulator(inside, heard):
        yield heard


@contextmanager
def _namespace(name: str) -> Iterator[None]:
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        yield
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


@contextmanager
def _inside(namespace: str) -> Iterator[None]:
    """This thread in the namespace; a socket stays in the one that it was made in."""
    libc = ctypes.CDLL(None, use_errno=True)
    here = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    there = os.open(f"/run/netns/{namespace}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.setns(there, 0) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
        yield
    finally:
        assert libc.setns(here, 0) == 0
        os.close(here)
        os.close(there)
