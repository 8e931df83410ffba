"""aria2 as BitTorrent with the boot host as web seed: the peer that servers would be to each other."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.benchmarks.swarm.network import Machine
from tests.benchmarks.swarm.sources import end, wait_for_port

PIECE: Final = 256 * 1024
TRACKER_PORT: Final = 6969
_SECONDS: Final = 600.0


def bencode(value: Any) -> bytes:
    """Source: BEP 3."""
    if isinstance(value, int):
        return b"i%de" % value
    if isinstance(value, bytes):
        return b"%d:%s" % (len(value), value)
    if isinstance(value, str):
        return bencode(value.encode())
    if isinstance(value, list):
        return b"l" + b"".join(bencode(each) for each in value) + b"e"
    return b"d" + b"".join(bencode(key) + bencode(value[key]) for key in sorted(value)) + b"e"


def make_torrent(content: bytes, name: str, seed: str, tracker: str) -> bytes:
    """Source: BEP 19 for the web seed."""
    pieces = b"".join(hashlib.sha1(content[at : at + PIECE]).digest() for at in range(0, len(content), PIECE))  # noqa: S324
    info = {"length": len(content), "name": name, "piece length": PIECE, "pieces": pieces}
    return bencode({"announce": tracker, "info": info, "url-list": [seed]})


@contextmanager
def tracker(machine: Machine) -> Iterator[None]:
    """A tracker at the boot host."""
    words = [sys.executable, "-m", "tests.benchmarks.swarm.tracker", machine.address, str(TRACKER_PORT)]
    process = subprocess.Popen(machine.command(*words), process_group=0)
    try:
        wait_for_port(machine, process, TRACKER_PORT)
        yield
    finally:
        end(process)


def download(servers: Sequence[Machine], torrent: Path, content: bytes, folder: Path) -> list[float]:
    """Seconds until each had the whole, and shared it on; raises RuntimeError if one has it not."""
    shutil.rmtree(folder, ignore_errors=True)
    done = folder / "done"
    done.mkdir(parents=True)
    hook = folder / "hook"
    hook.write_text(f'#!/bin/sh\n: >"{done}/$(basename "$(dirname "$3")")"\n')
    hook.chmod(0o755)
    processes = []
    began = time.time()
    for server in servers:
        (folder / server.name).mkdir()
        options = [
            f"--dir={folder / server.name}", f"--on-bt-download-complete={hook}", "--no-conf", "--summary-interval=0",
            "--enable-dht=false", "--bt-enable-lpd=false", "--seed-ratio=0.0", "--file-allocation=none",
            "--bt-tracker-interval=2", "--bt-max-peers=64", "--bt-request-peer-speed-limit=999M", "--split=1",
            "--max-connection-per-server=1", "--disable-ipv6", "--allow-overwrite", "--console-log-level=notice",
        ]  # fmt: skip
        words = server.command("aria2c", *options, torrent)
        with (folder / f"{server.name}.log").open("w") as said:
            processes.append(subprocess.Popen(words, process_group=0, stdout=said, stderr=said))
    try:
        while len(list(done.iterdir())) < len(servers):
            if time.time() - began > _SECONDS:
                raise RuntimeError(f"aria2: {len(list(done.iterdir()))} of {len(servers)} have it")
            time.sleep(0.02)
        seconds = [(done / server.name).stat().st_mtime - began for server in servers]
    finally:
        for process in processes:
            end(process)
    for server in servers:
        (found,) = (folder / server.name).glob("sha256-" + "?" * 64)
        if found.read_bytes() != content:
            raise RuntimeError(f"aria2: {server.name} has something else")
    shutil.rmtree(folder)
    return seconds
