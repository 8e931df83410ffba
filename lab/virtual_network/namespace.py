"""A network namespace that stands for a machine: commands in it, threads in it, echo requests from it. Needs root."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any, Final, TypeVar

from lab.virtual_network.echo import Echoes, echo
from provisioner.api.machinery.errors import NeedsHuman
from provisioner.network.agent.model import namespaces

T = TypeVar("T")
_COMMAND_SECONDS: Final = 60
_ANSWER_SECONDS: Final = 60.0
"""For an answer that shall come, on a machine however busy: it is not waited for once it is there."""


class Namespace:
    """The namespace `name`; `create` makes it, with `lo` up."""

    def __init__(self, name: str) -> None:
        self.name = name

    def create(self) -> None:
        """Raises: NeedsHuman in the words of `ip`."""
        ip("netns", "add", self.name)
        self.ip("link", "set", "lo", "up")

    def delete(self) -> None:
        """Take it away, and those that agents in it have made for VPCs. Absent is fine."""
        for name in (*namespaces.domains_of(self.name), self.name):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)

    def ip(self, *arguments: str) -> str:
        """Raises: NeedsHuman."""
        return self.output("ip", *arguments)

    def command(self, *arguments: str) -> list[str]:
        """Not `ip netns exec`: what is named there ends with it."""
        return ["nsenter", f"--net={namespaces.NAMED / self.name}", "--", *arguments]

    def output(self, *arguments: str) -> str:
        """What it prints. Raises: NeedsHuman if it fails."""
        ran = self.run(*arguments)
        if ran.returncode != 0:
            raise _failed(arguments, ran, f" in namespace {self.name}")
        return ran.stdout

    def run(self, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments), capture_output=True, text=True, timeout=_COMMAND_SECONDS, check=False, input=stdin
        )

    def inside(self, call: Callable[[], T]) -> T:
        """What `call` returns, when this thread is in the namespace meanwhile."""
        with namespaces.inside(self.name):
            return call()

    def pings(self, address: str, **how: Any) -> bool:
        """Whether one of three echo requests is answered; who expects none says how long it waits."""
        return bool(self.echo(address, **{"patience_seconds": _ANSWER_SECONDS, **how}).answered)

    def reaches_nothing_at(self, address: str, **how: Any) -> bool:
        """Whether no echo request is answered."""
        return not self.pings(address, count=2, interval_seconds=0.05, patience_seconds=0.15, **how)

    def echo(self, address: str, **how: Any) -> Echoes:
        return self.inside(lambda: echo(address, **how))


def ip(*arguments: str) -> str:
    """`ip` in the caller's namespace. Raises: NeedsHuman in its words."""
    ran = subprocess.run(["ip", *arguments], capture_output=True, text=True, timeout=_COMMAND_SECONDS, check=False)
    if ran.returncode != 0:
        raise _failed(("ip", *arguments), ran)
    return ran.stdout


def _failed(arguments: tuple[str, ...], ran: subprocess.CompletedProcess[str], where: str = "") -> NeedsHuman:
    return NeedsHuman(
        f"`{' '.join(arguments)}`{where} ended with {ran.returncode}: {ran.stderr.strip()}",
        hint="a virtual network needs root, iproute2, nftables and a kernel with network namespaces, veth and VXLAN",
    )
