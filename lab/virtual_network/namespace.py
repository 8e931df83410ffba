"""A network namespace that stands for a machine: its links and addresses, commands in it, threads in it, echo requests
from it. Needs root."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

from pyroute2 import IPRoute, NetlinkError

from lab.virtual_network.echo import Echoes, echo
from provisioner.api.machinery.errors import NeedsHuman
from provisioner.network.agent.model import namespaces
from provisioner.network.agent.netlink.socket import own_event_loop

T = TypeVar("T")
_HINT: Final = (
    "a virtual network needs root, iproute2, nftables and a kernel with network namespaces, bridge, tun, veth and VXLAN"
)
_COMMAND_SECONDS: Final = 60
_ANSWER_SECONDS: Final = 60.0
"""For an answer that shall come, on a machine however busy: it is not waited for once it is there."""


class Namespace:
    """The namespace `name`; `create` makes it, with `lo` up."""

    def __init__(self, name: str) -> None:
        self.name = name

    def create(self) -> None:
        """Raises: NeedsHuman."""
        ip("netns", "add", self.name)
        with self.kernel() as kernel:
            kernel.link("set", ifname="lo", state="up")

    def delete(self) -> None:
        """Take it away, and those that agents in it have made for VPCs. Absent is fine."""
        for name in (*namespaces.domains_of(self.name), self.name):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)

    @contextlib.contextmanager
    def kernel(self) -> Iterator[IPRoute]:
        """Its links, addresses and routes; this thread is in the namespace meanwhile.

        Raises: NeedsHuman in the kernel's words.
        """
        try:
            with namespaces.inside(self.name), own_event_loop(), IPRoute(ext_ack=True) as kernel:
                yield kernel
        except (NetlinkError, OSError) as error:
            raise NeedsHuman(f"namespace {self.name}: {error.args[-1]}", hint=_HINT) from error

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
    return NeedsHuman(f"`{' '.join(arguments)}`{where} ended with {ran.returncode}: {ran.stderr.strip()}", hint=_HINT)
