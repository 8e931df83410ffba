"""The store for oneself alone: while no publication and no pull is under way, and none can begin."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from provisioner.api.machinery.errors import NotFound, Retryable
from provisioner.image.finished.store import LOCK

_POLL_SECONDS: Final = 0.1


@contextmanager
def alone(
    store: Path,
    wait_seconds: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[None]:
    """Hold the lock that all who write share. Raises: Retryable if it is not to be had in time; NotFound."""
    if not store.is_dir():
        raise NotFound(f"image store {store} does not exist", hint="name the folder that provisioner boot serves")
    ends = clock() + wait_seconds
    with (store / LOCK).open("a") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                if clock() >= ends:
                    raise Retryable(
                        f"image store {store} is in use: an image is published or pulled for more than "
                        f"{wait_seconds:g} s; nothing was deleted, run it again later",
                        after_seconds=60,
                    ) from error
                sleep(_POLL_SECONDS)
            else:
                break
        yield
