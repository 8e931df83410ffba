"""Two versions of the product beside one another: each runs its own code, in processes of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

import yaml

HERE: Final = Path(__file__).parent
CHECKOUT: Final = HERE.parents[1]
PREVIOUS: Final = HERE / "previous"
STOP_SECONDS: Final = 60.0


@dataclass(frozen=True)
class Release:
    """A version. `code`: the folder in which its package `provisioner` is."""

    version: str
    code: Path

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "provisioner.cli", *arguments]

    def run(self, *arguments: str) -> str:
        """What the command prints. Raises: subprocess.CalledProcessError."""
        done = subprocess.run(
            self.command(*arguments), cwd=self.code, env=self.environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.stdout

    def manifests(self) -> list[dict[str, Any]]:
        """What its `provisioner manifests` prints."""
        return list(yaml.safe_load_all(self.run("manifests")))

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {"PYTHONPATH": str(self.code)}


def previous_release(folder: Path) -> Release:
    """The last one, unpacked into `folder`."""
    (archive,) = PREVIOUS.glob("*.tar.xz")
    with tarfile.open(archive) as tar:
        tar.extractall(folder)  # noqa: S202 - ours, of this folder
    return Release(archive.name.removeprefix("provisioner-").removesuffix(".tar.xz"), folder)


@dataclass
class Running:
    """A service of one release, until it is stopped."""

    name: str
    release: Release
    command: Sequence[str]
    log: Path
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def start(self) -> Running:
        log: IO[bytes]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, cwd=self.release.code, env=self.release.environment, stdout=log, stderr=log
            )
        return self

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def stop(self) -> None:
        """As systemd and kubelets do: a SIGTERM, and time."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """As a machine that loses its power."""
        self._end(signal.SIGKILL)

    def _end(self, with_signal: signal.Signals) -> None:
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.send_signal(with_signal)
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"{self.name} did not end within {STOP_SECONDS} s; see {self.log}") from None
