"""Where a demo keeps what its commands must agree on: one directory, one JSON file, written atomically."""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ADDRESS: Final = "10.80.0.1"
"""Address of the boot host and of the API server inside the lab's network namespace."""

INTERFACE: Final = "boot0"


@dataclass(frozen=True)
class DemoState:
    """Paths of the demo called `name` below `cache`; nothing is created by making one."""

    cache: Path
    name: str

    @property
    def directory(self) -> Path:
        return self.cache / "labs" / self.name

    @property
    def namespace(self) -> str:
        return f"provisioner-{self.name}"

    @property
    def kubeconfig(self) -> Path:
        """Administrator's kubeconfig; it works inside the lab's network namespace only."""
        return self.directory / "control-plane" / "admin.kubeconfig"

    @property
    def keys(self) -> Path:
        """Keys of all labs on this machine: kept, so that an image built once stays valid."""
        return self.cache / "lab-keys"

    @property
    def image_store(self) -> Path:
        return self.cache / "images"

    @property
    def daemon_log(self) -> Path:
        return self.directory / "daemon.log"

    def image_record(self, pool: str) -> Path:
        """The file that names the image which was built for the pool."""
        return self.directory / f"image-{pool}"

    def pools(self) -> list[str]:
        """Those for which an image was built."""
        return sorted(record.name.removeprefix("image-") for record in self.directory.glob("image-*"))

    def fresh_directory(self) -> None:
        """An empty directory, but for the names of the images that were built for it."""
        kept = {record: record.read_text() for record in self.directory.glob("image-*")}
        self.remove_directory()
        self.directory.mkdir(parents=True)
        for record, image in kept.items():
            record.write_text(image)

    def remove_directory(self) -> None:
        """All that the demo left on disk; what was built stays elsewhere in the cache."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def read(self) -> dict[str, Any]:
        """What the daemon last said of itself; empty if there is none."""
        try:
            return dict(json.loads((self.directory / "state.json").read_text()))
        except FileNotFoundError:
            return {}

    def update(self, **values: Any) -> None:
        """Add to what `read` returns. Only the daemon calls it."""
        merged = {**self.read(), **values}
        temporary = self.directory / ".state.json"
        temporary.write_text(json.dumps(merged, indent=1))
        temporary.rename(self.directory / "state.json")


def process_start_time(pid: int) -> str | None:
    """Start time of a process in clock ticks since boot; tells a reused pid from the process that was meant."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] == "Z" else fields[19]


def is_running(state: DemoState) -> bool:
    """Whether the daemon that wrote the state file still runs."""
    said = state.read()
    return "pid" in said and process_start_time(said["pid"]) == said.get("startTime")


def stop_daemon(state: DemoState, *, timeout_seconds: float = 30.0) -> None:
    """End the daemon, which takes all that it started along; SIGKILL if it does not go in time."""
    if not is_running(state):
        return
    pid = state.read()["pid"]
    for signal_number in (15, 9):
        try:
            os.kill(pid, signal_number)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + timeout_seconds
        while time.monotonic() < deadline:
            if not is_running(state):
                return
            time.sleep(0.1)
