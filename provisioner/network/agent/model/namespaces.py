"""Network namespaces: entered by the thread that works in one, named by `ip netns`, whose mounts all processes see."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from provisioner.network.agent.model.naming import is_namespace_of
from provisioner.network.agent.model.state import HOME, Place

NAMED: Final = Path("/run/netns")
_OWN: Final = Path("/proc/thread-self/ns/net")
_CLONE_NEWNET: Final = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def owner() -> str:
    """What the namespace is called in which this thread is; "" where it has no name, as that of the system."""
    mine = _OWN.stat()
    for path in NAMED.iterdir() if NAMED.is_dir() else ():
        with contextlib.suppress(OSError):
            its = path.stat()
            if (its.st_dev, its.st_ino) == (mine.st_dev, mine.st_ino):
                return path.name
    return ""


def domains_of(name: str) -> list[Place]:
    """The namespaces of domains that agents of `name` have made, and of its boot plane."""
    if not NAMED.is_dir():
        return []
    return sorted(path.name for path in NAMED.iterdir() if is_namespace_of(path.name, name))


def are_seen_by_others() -> bool:
    """Whether namespaces named here are seen outside. Below `ip netns exec`, and in a service with private mounts, they
    are not, and would end with this process: with everything in them."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, _ = line.partition(" - ")
        words = before.split()
        if words[4] in ("/", "/run", str(NAMED)) and any(word.startswith("master:") for word in words[6:]):
            return False
    return True


def add(name: Place) -> None:
    """Raises: OSError, with what `ip` says."""
    _ip("add", name)


def delete(name: Place) -> None:
    """Raises: OSError, with what `ip` says."""
    _ip("delete", name)


def _ip(verb: str, name: Place) -> None:
    try:
        ran = subprocess.run(["ip", "netns", verb, name], capture_output=True, text=True, timeout=30, check=False)
    except subprocess.TimeoutExpired:
        raise OSError(errno.ETIMEDOUT, "ip did not end within 30 s") from None
    if ran.returncode != 0:
        raise OSError(ran.returncode, ran.stderr.strip() or "no reason was given")


@contextlib.contextmanager
def inside(place: Place) -> Iterator[None]:
    """This thread is in `place`: sockets that it opens, settings that it writes, programs that it starts belong there.

    Raises: OSError if there is no such namespace.
    """
    if place == HOME:
        yield
        return
    with opened(HOME) as before:
        with opened(place) as there:
            _enter(there)
        try:
            yield
        finally:
            _enter(before)


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """No other agent works for the namespace in which the thread is. Waits for one that does."""
    with opened(HOME) as own:
        fcntl.flock(own, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def opened(place: Place) -> Iterator[int]:
    """A file descriptor of the namespace, HOME's being that in which the thread is."""
    fd = os.open(_OWN if place == HOME else NAMED / place, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def interfaces() -> list[str]:
    """Those of the namespace in which the thread is."""
    return [name for _, name in socket.if_nameindex()]


def device_here(device: str) -> tuple[tuple[int, int], int]:
    """Which one it is, for as long as something holds the namespace in which the thread is: that one's device and
    inode, and its index there. Raises: OSError if there is none."""
    namespace = _OWN.stat()
    return (namespace.st_dev, namespace.st_ino), socket.if_nametoindex(device)


def _enter(fd: int) -> None:
    if _libc.setns(fd, _CLONE_NEWNET) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"setns: {os.strerror(code)}")
