from __future__ import annotations

import os
import platform
import signal
import subprocess
import time
from pathlib import Path

import pytest

from lab.tools import ARM64_PACKAGES
from provisioner.api.machinery.errors import NeedsHuman
from provisioner.api.servers.server import Architecture
from provisioner.image.containerd import compile as containerd_compile
from provisioner.image.containerd.bolt import Bucket, encode
from provisioner.image.containerd.compile import compiler, pause_program
from provisioner.image.containerd.pause import pause_image
from provisioner.image.containerd.state import go_time, varint
from provisioner.image.tools.elf import read_architecture, read_linkage
from tests.image.bolt_files import decode
from tests.tools import installed, lab_tools, missing, need_root

RT_SIGTIMEDWAIT = {"x86_64": "128", "aarch64": "137"}.get(platform.machine(), "")
"""Number of the system call, here."""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """The program of this machine."""
    own: Architecture | None = {"x86_64": "x86_64", "aarch64": "arm64"}.get(platform.machine())  # type: ignore[assignment]
    if own is None:
        missing("a processor of x86_64 or arm64", "run it on one")
    return compiled(tmp_path, own)


def compiled(folder: Path, architecture: Architecture) -> Path:
    installed(compiler(architecture))
    file = folder / "pause"
    file.write_bytes(pause_program(architecture))
    file.chmod(0o755)
    return file


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_pause_program_waits_until_it_is_told_to_end(program: Path, number: signal.Signals) -> None:
    process = subprocess.Popen([program])
    try:
        _wait_until_it_pauses(process.pid)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        process.send_signal(number)
        assert process.wait(60) == 0
    finally:
        process.kill()


def test_the_pause_program_of_arm64_does_the_same(tmp_path: Path) -> None:
    """Cross-compiled, and run by QEMU."""
    file = compiled(tmp_path, "arm64")
    process = subprocess.Popen(lab_tools(ARM64_PACKAGES).command(["qemu-aarch64", file]))
    try:
        _wait_until_it_pauses(process.pid)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()


def test_the_pause_program_reaps_children_that_are_not_its_own(program: Path) -> None:
    """As PID 1 of a pod: a shell in its namespace leaves a child behind, which becomes the pause program's."""
    need_root("make a process namespace")
    script = 'exec "$0"'
    pod = subprocess.Popen(["unshare", "--pid", "--fork", "--kill-child", "sh", "-c", script, program])
    try:
        pause = _child_of(pod.pid)
        subprocess.run(["nsenter", "--target", str(pause), "--pid", "sh", "-c", "sleep 0.2 & exit"], check=True)
        deadline = time.monotonic() + 60
        while (children := Path(f"/proc/{pause}/task/{pause}/children").read_text()) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert children == ""
        os.kill(pause, signal.SIGTERM)
        assert pod.wait(60) == 0, "it is not lost on PID 1, which ignores what it does not handle"
    finally:
        pod.kill()


def _child_of(pid: int) -> int:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if children and Path(f"/proc/{children[0]}/comm").read_text().strip() == "pause":
            _wait_until_it_pauses(int(children[0]))
            return int(children[0])
        time.sleep(0.02)
    raise AssertionError("the pause program did not start")


def _wait_until_it_pauses(pid: int) -> None:
    """A signal that comes before it waits for one would end it by itself."""
    deadline = time.monotonic() + 60
    while Path(f"/proc/{pid}/syscall").read_text().split()[0] != RT_SIGTIMEDWAIT:
        assert time.monotonic() < deadline, "the pause program does not pause"
        time.sleep(0.02)


def test_the_image_is_the_same_every_time_and_says_its_architecture() -> None:
    assert pause_image("x86_64") == pause_image("x86_64")
    assert b'"architecture":"arm64"' in pause_image("arm64").config.content
    assert pause_image("arm64").layer.digest != pause_image("x86_64").layer.digest


@pytest.mark.parametrize("architecture", ["x86_64", "arm64"])
def test_the_program_is_small_static_for_its_architecture_and_the_same_from_another_folder(
    architecture: Architecture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(compiler(architecture))
    program = pause_program(architecture)
    assert len(program) < 2048
    assert read_architecture(program[:20]) == architecture
    assert read_linkage(program).interpreter is None
    moved = tmp_path / "a" / "rather" / "long" / "path" / "pause.c"
    moved.parent.mkdir(parents=True)
    moved.write_text(containerd_compile.SOURCE.read_text())
    monkeypatch.setattr(containerd_compile, "SOURCE", moved)
    assert pause_program.__wrapped__(architecture) == program


def test_without_the_compiler_its_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NeedsHuman, match=r"aarch64-linux-gnu-gcc is not on this machine; .* gcc-aarch64-linux-gnu"):
        pause_program.__wrapped__("arm64")


def test_a_database_holds_what_was_put_into_it() -> None:
    content = Bucket({"v1": Bucket({"long": b"x" * 9000, "a": Bucket({"b": b""}, sequence=7)}), "plain": b"1"})
    assert decode(encode(content)) == content
    assert len(encode(content)) % 4096 == 0


def test_numbers_and_times_are_written_as_go_does() -> None:
    assert varint(3) == b"\x06"
    assert varint(10240) == b"\x80\xa0\x01"
    # 2026-11-21T04:15:22Z as containerd 1.7.24 wrote it, without its nanoseconds
    assert go_time(1795234522) == b"\x01\x00\x00\x00\x0e\xe2\x93\x11\xda\x00\x00\x00\x00\xff\xff"
