"""Keeps nginx's access log from filling the disk: one file, one predecessor."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Final

import structlog

from provisioner.boot.host.processes import Child

log = structlog.get_logger(__name__)

LARGEST_BYTES: Final = 64 * 1024 * 1024
LOOK_SECONDS: Final = 30.0


def rotate_access_log(path: Path, nginx: Child, stop: threading.Event, *, largest_bytes: int = LARGEST_BYTES) -> None:
    """Look at the log's size until `stop`; what is full becomes `<path>.1`, and nginx opens a new one."""
    while not stop.wait(LOOK_SECONDS):
        try:
            if path.stat().st_size > largest_bytes:
                path.rename(path.with_name(path.name + ".1"))
                nginx.send_signal(signal.SIGUSR1)
        except FileNotFoundError:
            continue
        except OSError as error:
            log.warning("access log was not rotated", path=str(path), error=str(error))
