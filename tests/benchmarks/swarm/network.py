"""A rack's switch and what hangs on it, in network namespaces; each link has the speed that it is given, both ways."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SWITCH: Final = "swarm-switch"
_MTU: Final = 1500


@dataclass(frozen=True)
class Machine:
    """A namespace `swarm-NAME` with one interface. number: of its address in 10.99.0.0/22."""

    name: str
    number: int
    megabits: float

    @property
    def namespace(self) -> str:
        return f"swarm-{self.name}"

    @property
    def address(self) -> str:
        return f"10.99.{self.number // 250}.{self.number % 250 + 1}"

    @property
    def port(self) -> str:
        """Its end at the switch."""
        return f"p-{self.name}"[:15]

    def command(self, *words: str | Path) -> list[str]:
        return ["nsenter", f"--net=/run/netns/{self.namespace}", "--", *(str(word) for word in words)]


class Rack:
    """`machines` on one switch; used as a context."""

    def __init__(self, machines: Sequence[Machine]) -> None:
        self.machines = machines

    def __enter__(self) -> Rack:
        self._delete()
        run("ip", "netns", "add", SWITCH)
        at_switch("ip", "link", "add", "br0", "type", "bridge", "forward_delay", "0")
        at_switch("ip", "link", "set", "br0", "up")
        for machine in self.machines:
            self._plug(machine)
        return self

    def __exit__(self, *_: object) -> None:
        self._delete()

    def bytes_from(self, machine: Machine) -> int:
        """What it has sent, headers included."""
        said = at_switch("cat", "/proc/self/net/dev")
        (line,) = (line for line in said.splitlines() if line.strip().startswith(f"{machine.port}:"))
        return int(line.partition(":")[2].split()[0])

    def _plug(self, machine: Machine) -> None:
        run("ip", "netns", "add", machine.namespace)
        veth = ("type", "veth", "peer", "name", "eth0", "netns", machine.namespace)
        at_switch("ip", "link", "add", machine.port, *veth)
        at_switch("ip", "link", "set", machine.port, "master", "br0", "up")
        inside = machine.command
        run(*inside("ip", "link", "set", "lo", "up"))
        run(*inside("ip", "address", "add", f"{machine.address}/22", "dev", "eth0"))
        run(*inside("ip", "link", "set", "eth0", "up"))
        at_switch(*_shaped(machine.port, machine.megabits))
        run(*inside(*_shaped("eth0", machine.megabits)))

    def _delete(self) -> None:
        listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False).stdout
        for line in listed.splitlines():
            name = line.split()[0] if line.split() else ""
            if name.startswith("swarm-"):
                subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


def _shaped(device: str, megabits: float) -> list[str]:
    # A token bucket of 10 ms, and a queue that holds 50 ms: as a switch port of that speed would.
    bits = int(megabits * 1_000_000)
    burst = max(bits // 8 // 100, 10 * _MTU)
    rate = ("rate", f"{bits}bit", "burst", str(burst), "latency", "50ms")
    return ["tc", "qdisc", "add", "dev", device, "root", "tbf", *rate]


def at_switch(*words: str) -> str:
    """What a command says in the switch's namespace."""
    return run("nsenter", f"--net=/run/netns/{SWITCH}", "--", *words)


def run(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout
