"""Our scripts in a real iPXE: QEMU with an iPXE ROM, its user network, and an HTTP server whose answers change."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

import pytest
from pytest_httpserver import URI_DEFAULT
from werkzeug import Request, Response

from lab.machine.machine import processors
from provisioner.boot.script.choose import Boot, KeepWaiting
from provisioner.boot.script.kernel_arguments import BootUrls
from provisioner.boot.script.render import render_first_script, render_script
from tests.boot.conftest import Programs
from tests.http_peer import HttpPeer, target
from tests.tools import lab_tools

MAC = "52:54:00:12:34:56"
SCRIPT = "/ipxe/52-54-00-12-34-56.ipxe"
DEADLINE_SECONDS = 240
HOST = "10.0.2.2"  # where QEMU's user network has the machine's loopback


class Server(HttpPeer):
    """Answers by `answer` (None: 404) and remembers what was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.answer: Callable[[str, int], bytes | None] = lambda path, before: None
        self.asked: list[str] = []
        self.changed = threading.Condition()
        self.expect_request(URI_DEFAULT).respond_with_handler(self._serve)

    def _serve(self, request: Request) -> Response:
        with self.changed:
            before = self.paths().count(request.path)
            self.asked.append(target(request))
            self.changed.notify_all()
        body = self.answer(request.path, before)
        return Response(body, 404 if body is None else 200)

    def wait_for(self, path: str, times: int = 1) -> None:
        with self.changed:
            seen = self.changed.wait_for(lambda: self.paths().count(path) >= times, DEADLINE_SECONDS)
            assert seen, f"{path} not asked {times} times: {self.paths()}"

    def paths(self) -> list[str]:
        return [urlsplit(asked).path for asked in self.asked]


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


def urls(server: Server) -> BootUrls:
    return BootUrls(boot=f"http://{HOST}:{server.port}", join=f"https://{HOST}:8443")


def boot_script(server: Server) -> bytes:
    base = f"http://{HOST}:{server.port}/images"
    target = Boot(
        server="r01-u01",
        image="test",
        kernel_url=f"{base}/vmlinuz",
        stage1_url=f"{base}/stage1.img",
        arguments=("initrd=stage1.img",),  # iPXE as a kernel would run any other argument as a command
    )
    return render_script(target).encode()


WAIT = KeepWaiting(reason="Any", message="not yet; ${net0/mac} || shell && reboot #", remedy="none", retry_seconds=1)


@pytest.fixture
def machine(programs: Programs) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts a BIOS machine whose network card has an iPXE ROM."""
    tools, started = programs.tools or lab_tools(), list[subprocess.Popen[bytes]]()

    def start(server: Server, *macs: str) -> subprocess.Popen[bytes]:
        command = ["/usr/bin/qemu-system-x86_64", "-machine", "pc", *processors("tcg", 1), "-m", "256"]
        command += ["-display", "none", "-no-reboot", "-nodefaults"]
        for i, mac in enumerate(macs or (MAC,)):
            command += ["-netdev", f"user,id=n{i},bootfile=http://{HOST}:{server.port}/boot.ipxe"]
            command += ["-device", f"virtio-net-pci,netdev=n{i},mac={mac},bootindex={i + 1}"]
        process = subprocess.Popen(tools.command(command, [programs.shared]), stdin=subprocess.DEVNULL)
        started.append(process)
        return process

    yield start
    for process in started:
        process.terminate()
        process.wait(30)


def test_a_machine_waits_retries_and_boots_kernel_and_stage1(
    server: Server, machine: Callable[..., subprocess.Popen[bytes]], programs: Programs
) -> None:
    """iPXE itself plays the kernel (it has that format, too) and runs the initramfs as a script: it asks /arrived."""
    kernel = (programs.ipxe / "ipxe.lkrn").read_bytes()
    stage1 = f"#!ipxe\nifopen net0\ndhcp net0\nchain http://{HOST}:{server.port}/arrived\n".encode()

    def answer(path: str, before: int) -> bytes | None:
        if path == "/boot.ipxe":
            return render_first_script(urls(server)).encode()
        if path == SCRIPT:
            # Not found, told to wait twice, an image that cannot be fetched, and at last all is well.
            return [None, render_script(WAIT).encode(), render_script(WAIT).encode(), boot_script(server)][
                min(before, 3)
            ]
        if path == "/images/vmlinuz":
            return None if before < 1 else kernel
        if path == "/images/stage1.img":
            return None if before < 1 else stage1
        return b"#!ipxe\nsleep 1000\n" if path == "/arrived" else None

    server.answer = answer
    process = machine(server)
    server.wait_for("/arrived")
    assert process.poll() is None, "the machine never gave up"
    assert "/v1/ipxe" in server.paths(), "it said that iPXE runs, and did not mind that nobody listened"
    paths = [path for path in server.paths() if path != "/v1/ipxe"]
    assert paths[0] == "/boot.ipxe"
    assert paths.count("/boot.ipxe") == 1, "the first script never ended"
    assert paths.count(SCRIPT) == 4
    assert paths[5:] == [
        "/images/vmlinuz", "/images/vmlinuz", "/images/stage1.img", "/images/vmlinuz", "/images/stage1.img", "/arrived",
    ]  # fmt: skip
    asked = next(asked for asked in server.asked if urlsplit(asked).path == SCRIPT)
    query = parse_qs(urlsplit(asked).query)
    assert set(query) >= {"uuid", "manufacturer", "product", "buildarch"}
    assert query["manufacturer"] == ["QEMU"]


def test_an_image_that_stays_away_leads_back_to_the_question_what_to_boot(
    server: Server, machine: Callable[..., subprocess.Popen[bytes]]
) -> None:
    def answer(path: str, before: int) -> bytes | None:
        if path == "/boot.ipxe":
            return render_first_script(urls(server)).encode()
        return boot_script(server) if path == SCRIPT else None

    server.answer = answer
    process = machine(server)
    server.wait_for(SCRIPT, times=2)
    assert process.poll() is None
    paths = server.paths()
    second = [number for number, path in enumerate(paths) if path == SCRIPT][1]
    assert paths[:second].count("/images/vmlinuz") == 4
    assert paths.count("/boot.ipxe") == 1


def test_a_boot_host_that_is_away_for_a_while_is_asked_until_it_is_back(
    server: Server, machine: Callable[..., subprocess.Popen[bytes]]
) -> None:
    def answer(path: str, before: int) -> bytes | None:
        if path == "/boot.ipxe":
            return render_first_script(urls(server)).encode()
        return render_script(replace(WAIT, retry_seconds=3)).encode() if path == SCRIPT else None

    server.answer = answer
    process = machine(server)
    server.wait_for(SCRIPT)
    server.stop()
    time.sleep(12)  # iPXE asks four times in this time, and its connections are refused
    asked = len(server.asked)
    server.start()
    server.wait_for(SCRIPT, times=asked)
    assert process.poll() is None
    assert server.paths().count("/boot.ipxe") == 1


def test_a_machine_asks_by_each_of_its_interfaces_in_turn(
    server: Server, machine: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """The registered boot interface may be another one than the firmware began with."""

    def answer(path: str, before: int) -> bytes | None:
        if path == "/boot.ipxe":
            return render_first_script(urls(server)).encode()
        return render_script(WAIT).encode() if path == SCRIPT else None

    server.answer = answer
    process = machine(server, "52:54:00:aa:bb:cc", MAC)
    server.wait_for(SCRIPT)
    assert process.poll() is None
    assert "/ipxe/52-54-00-aa-bb-cc.ipxe" in server.paths()
