"""Network namespaces joined by cables, for tests with a real kernel on both ends. Needs root."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.tools import installed, need_root

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)
_serial = itertools.count()


class Namespace:
    """One network namespace with the programs that were started in it."""

    def __init__(self) -> None:
        self.name = f"provisioner-dhcp-{os.getpid()}-{next(_serial)}"
        subprocess.run(["ip", "netns", "add", self.name], check=True)
        self.ip("link", "set", "lo", "up")

    def ip(self, *arguments: str) -> str:
        return subprocess.run(["ip", "-n", self.name, *arguments], check=True, capture_output=True, text=True).stdout

    def command(self, *arguments: str) -> list[str]:
        return ["ip", "netns", "exec", self.name, *arguments]

    def run(self, *arguments: str, timeout_seconds: float = 180) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments), capture_output=True, text=True, timeout=timeout_seconds, check=False
        )

    @contextlib.contextmanager
    def started(self, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """A program that runs until the block ends. `ip netns exec` becomes it: the process is the program itself."""
        process = subprocess.Popen(self.command(*arguments), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(120)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """This thread is in the namespace: sockets that it opens belong there."""
        with Path("/proc/thread-self/ns/net").open() as before, Path(f"/var/run/netns/{self.name}").open() as inside:
            _setns(inside.fileno())
            try:
                yield
            finally:
                _setns(before.fileno())

    def delete(self) -> None:
        subprocess.run(["ip", "netns", "delete", self.name], check=False)


def _setns(fd: int) -> None:
    if _libc.setns(fd, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def connect(one: Namespace, its_name: str, other: Namespace, other_name: str) -> None:
    """A cable between two namespaces; both ends are up."""
    subprocess.run(
        ["ip", "link", "add", its_name, "netns", one.name, "type", "veth",
         "peer", "name", other_name, "netns", other.name],
        check=True,
    )  # fmt: skip
    one.ip("link", "set", its_name, "up")
    other.ip("link", "set", other_name, "up")


@contextlib.contextmanager
def namespaces(count: int) -> Iterator[list[Namespace]]:
    need_root("make network namespaces")
    installed("ip")
    made: list[Namespace] = []
    try:
        for _ in range(count):
            made.append(Namespace())  # noqa: PERF401 - those made before a failure are deleted
        yield made
    finally:
        for namespace in made:
            namespace.delete()
