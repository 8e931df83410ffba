"""TFTP as firmware speaks it, against the real dnsmasq in a network namespace of its own; the first-stage files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from provisioner.api.machinery.errors import NeedsHuman
from provisioner.boot.host.processes import Child
from provisioner.boot.tftp.dnsmasq import dnsmasq_command, run_as
from provisioner.boot.tftp.firmware import FIRMWARE_FILES, collect_firmware
from tests.boot.conftest import Programs
from tests.tools import need_root

CLIENT = r"""
import json, socket, struct, sys
name, mode, options = sys.argv[1], "octet", json.loads(sys.argv[2])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(2)
request = struct.pack("!H", 1) + name.encode() + b"\0" + mode.encode() + b"\0"
for key, value in options.items():
    request += key.encode() + b"\0" + str(value).encode() + b"\0"
s.sendto(request, ("127.0.0.1", 69))
data, agreed, size, block = b"", {}, 512, 1
while True:
    packet, peer = s.recvfrom(65536)
    code = struct.unpack("!H", packet[:2])[0]
    if code == 5:
        print(json.dumps({"error": packet[4:-1].decode()})); break
    if code == 6:
        words = packet[2:].decode().split("\0")[:-1]
        agreed = dict(zip(words[::2], words[1::2])); size = int(agreed.get("blksize", 512))
        s.sendto(struct.pack("!HH", 4, 0), peer); continue
    number = struct.unpack("!H", packet[2:4])[0]
    if number == block & 0xffff:
        data += packet[4:]; block += 1
    s.sendto(struct.pack("!HH", 4, number), peer)
    if len(packet) - 4 < size:
        import hashlib
        print(json.dumps({"agreed": agreed, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()})); break
"""


@pytest.fixture
def namespace() -> Iterator[str]:
    """An empty network namespace: port 69 is nobody else's there."""
    need_root("make a network namespace")
    name = f"tftp-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
    yield name
    subprocess.run(["ip", "netns", "delete", name], check=True)


@pytest.fixture
def dnsmasq(programs: Programs, namespace: str) -> Iterator[Child]:
    root = programs.shared / "tftp"
    root.mkdir()
    root.chmod(0o755)
    collect_firmware([programs.ipxe], root, "#!ipxe\necho first\n")
    (programs.shared / "secret").write_text("no")

    def enter(command: object) -> list[str]:
        return ["ip", "netns", "exec", namespace, *programs.enter(command)]  # type: ignore[arg-type]

    stop = threading.Event()
    child = Child("dnsmasq", dnsmasq_command(root, "127.0.0.1"), privileges=run_as("www-data"), enter=enter)
    thread = threading.Thread(target=child.run, args=(stop,))
    thread.start()
    yield child
    stop.set()
    thread.join(30)


def fetch(namespace: str, name: str, **options: int) -> dict[str, object]:
    """One transfer; tried again while dnsmasq has not opened its port yet."""
    deadline = time.monotonic() + 60
    while True:
        command = ["ip", "netns", "exec", namespace, sys.executable, "-c", CLIENT, name, json.dumps(options)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        if done.returncode == 0:
            answer: dict[str, object] = json.loads(done.stdout)
            return answer
        assert time.monotonic() < deadline, done.stderr
        time.sleep(0.2)


def test_firmware_fetches_its_first_stage_and_our_script(dnsmasq: Child, namespace: str, programs: Programs) -> None:
    import hashlib

    for name in FIRMWARE_FILES:
        wanted = (programs.ipxe / name).read_bytes()
        got = fetch(namespace, name, blksize=1432, tsize=0)
        assert got["sha256"] == hashlib.sha256(wanted).hexdigest()
        assert got["agreed"] == {"blksize": "1432", "tsize": str(len(wanted))}
    assert fetch(namespace, "autoexec.ipxe")["bytes"] == len("#!ipxe\necho first\n")


def test_large_blocks_are_cut_and_windows_are_never_acknowledged(dnsmasq: Child, namespace: str) -> None:
    """With loss, EDK2 turned 1.7 MB into 20 GB of traffic by windowsize."""
    agreed = fetch(namespace, "snponly.efi", blksize=8192, windowsize=4)["agreed"]
    assert agreed == {"blksize": "1432"}


@pytest.mark.parametrize("name", ["../secret", "/secret", "missing.efi", "/etc/passwd"])
def test_nothing_else_is_served(dnsmasq: Child, namespace: str, name: str) -> None:
    assert "error" in fetch(namespace, name)


def test_dnsmasq_is_nobody_of_importance(dnsmasq: Child, namespace: str) -> None:
    fetch(namespace, "autoexec.ipxe")
    assert dnsmasq.pid is not None
    status = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{dnsmasq.pid}/status").read_text().splitlines() if ":\t" in line
    )
    assert "0" not in status["Uid"].split()
    assert int(status["CapEff"], 16) == 1 << 10, "the right to open a port below 1024 and no other"
    assert Path(f"/proc/{dnsmasq.pid}/comm").read_text().strip() == "dnsmasq"


def test_missing_firmware_is_named_with_its_remedy(tmp_path: Path) -> None:
    with pytest.raises(NeedsHuman, match=r"snponly\.efi is in none of: .*nowhere; install the package ipxe"):
        collect_firmware([tmp_path / "nowhere"], tmp_path / "tftp", "#!ipxe\n")


def test_an_ipxe_that_does_not_read_our_script_is_refused(tmp_path: Path) -> None:
    for name in FIRMWARE_FILES:
        (tmp_path / name).write_bytes(b"iPXE of 2019")
    with pytest.raises(NeedsHuman, match="too old"):
        collect_firmware([tmp_path], tmp_path / "tftp", "#!ipxe\n")


def test_firmware_is_copied_once_and_repaired_when_damaged(tmp_path: Path) -> None:
    for name in FIRMWARE_FILES:
        (tmp_path / name).write_bytes(b"...autoexec.ipxe..." + name.encode())
    target = tmp_path / "tftp"
    collect_firmware([tmp_path / "nowhere", tmp_path], target, "#!ipxe\n")
    stamps = {path.name: path.stat().st_mtime_ns for path in target.iterdir()}
    assert set(stamps) == {*FIRMWARE_FILES, "autoexec.ipxe"}
    (target / "snponly.efi").write_bytes(b"damaged")
    collect_firmware([tmp_path], target, "#!ipxe\n")
    assert (target / "snponly.efi").read_bytes().endswith(b"snponly.efi")
    assert {p.name for p in target.iterdir() if p.stat().st_mtime_ns != stamps[p.name]} == {"snponly.efi"}
