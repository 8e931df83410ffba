"""What nginx needs while it runs: a renewed certificate taken up, an access log that does not fill the disk."""

from __future__ import annotations

import resource
import signal
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import structlog

from provisioner.boot.host.processes import Child

log = structlog.get_logger(__name__)

LOOK_SECONDS: Final = 30.0
TEST_SECONDS: Final = 30.0
LARGEST_BYTES: Final = 64 * 1024 * 1024
OPEN_FILES: Final = 65_536

Stamp = tuple[tuple[int, int, int] | None, ...]


def most_open_files() -> int:
    """How many files each worker of nginx may open: what it asks for, or all that this process may hand on."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= OPEN_FILES:
        return OPEN_FILES
    log.warning(
        "limit of open files is low", limit=hard, wanted=OPEN_FILES, remedy="raise it, such as LimitNOFILE=65536"
    )
    return hard


def stamp_of(files: Sequence[Path]) -> Stamp:
    """What changes when one of `files` is written or replaced: time, inode and size; None for a missing one."""
    return tuple(_stamp(file) for file in files)


def follow_certificate(
    files: Sequence[Path],
    loaded: Stamp,
    test_command: Sequence[str],
    nginx: Child,
    stop: threading.Event,
    *,
    look_seconds: float = LOOK_SECONDS,
) -> None:
    """Look at certificate and key until `stop`; when they changed and nginx accepts them, have it load them.

    loaded: their stamp before nginx read them. test_command: nginx checking its configuration, certificate and key
    with it. What nginx refuses, such as a certificate whose key is not there yet, is looked at again once it changes;
    until then the former one is served.
    """
    while not stop.wait(look_seconds):
        seen = stamp_of(files)
        if seen == loaded:
            continue
        refusal = find_refusal(test_command, TEST_SECONDS)
        if stamp_of(files) != seen:
            continue  # somebody is writing
        loaded = seen
        if refusal is not None:
            log.warning(
                "renewed certificate was not loaded",
                files=[str(file) for file in files],
                error=refusal,
                remedy="write a certificate and the key that belongs to it; the former ones are served until then",
            )
            continue
        nginx.send_signal(signal.SIGHUP)
        log.info("renewed certificate was loaded", files=[str(file) for file in files])


def rotate_access_logs(
    paths: Sequence[Path], nginx: Child, stop: threading.Event, *, largest_bytes: int = LARGEST_BYTES
) -> None:
    """Look at the logs' sizes until `stop`; what is full becomes `<path>.1`, and nginx opens a new one."""
    while not stop.wait(LOOK_SECONDS):
        for path in paths:
            try:
                if path.stat().st_size > largest_bytes:
                    path.rename(path.with_name(path.name + ".1"))
                    nginx.send_signal(signal.SIGUSR1)
            except FileNotFoundError:
                continue
            except OSError as error:
                log.warning("access log was not rotated", path=str(path), error=str(error))


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


def find_refusal(test_command: Sequence[str], seconds: float | None = None) -> str | None:
    """Why nginx would not take its configuration; None if it would. seconds: how long it may take to say so."""
    try:
        done = subprocess.run(test_command, capture_output=True, text=True, check=False, timeout=seconds)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if done.returncode == 0 else done.stderr.strip()[-800:] or f"status {done.returncode}"
