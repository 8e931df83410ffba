"""Hosts and DPUs in network namespaces: each DPU has a port to the underlay, and one for each function of its host.

A namespace is held by a process of its own, with its own /run/netns, as each DPU is a machine of its own: what two
agents make there does not meet. The hosts' side of a port is a veth pair, the representor's end of which is the DPU's.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ETH_P_ALL = 3
_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)
ROOT = Path(__file__).parents[3]


@dataclass
class Space:
    """A network namespace (and a mount namespace), as long as the process that holds it lives."""

    name: str
    holder: subprocess.Popen[bytes]

    @classmethod
    def make(cls, name: str) -> Space:
        script = "mount -t tmpfs tmpfs /run && mkdir /run/netns && ip link set lo up && echo ready && exec sleep 600"
        holder = subprocess.Popen(
            ["unshare", "--net", "--mount", "--propagation", "private", "sh", "-c", script], stdout=subprocess.PIPE
        )
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"ready\n"
        return cls(name, holder)

    def close(self) -> None:
        self.holder.kill()
        self.holder.wait()

    @property
    def net(self) -> str:
        return f"/proc/{self.holder.pid}/ns/net"

    def argv(self, argv: Sequence[str]) -> list[str]:
        return ["nsenter", f"--target={self.holder.pid}", "--net", "--mount", "--", *argv]

    def run(self, *argv: str, check: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
        ran = subprocess.run(
            self.argv(argv), capture_output=True, text=True, check=False, timeout=60, cwd=ROOT, **options
        )
        assert not check or ran.returncode == 0, f"{self.name}: {argv}: {ran.stdout}{ran.stderr}"
        return ran

    def socket(self, interface: str) -> socket.socket:
        """A raw socket on an interface of the namespace."""
        return self.inside(lambda: _raw_socket(interface))

    def inside(self, act: Callable[[], Any]) -> Any:
        """What `act` returns in this network namespace. It runs in a thread of its own: a namespace is a thread's."""
        made: list[Any] = []

        def enter() -> None:
            with open(self.net) as namespace:
                if _libc.setns(namespace.fileno(), _CLONE_NEWNET):
                    made.append(OSError(ctypes.get_errno(), "setns"))
                    return
            try:
                made.append(act())
            except OSError as error:
                made.append(error)

        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        if isinstance(made[0], OSError):
            raise made[0]
        return made[0]


def _raw_socket(interface: str) -> socket.socket:
    raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    raw.bind((interface, 0))
    return raw


@dataclass
class Host:
    """What the tenant has root on: one function of a card."""

    space: Space
    mac: str
    interface: str = "eth0"

    def configure(self, *addresses: str, gateways: Sequence[str] = (), mtu: int | None = None) -> None:
        """Addresses with prefix length (10.1.0.3/31), and a default route by each gateway."""
        self.space.run("ip", "addr", "flush", "dev", self.interface)
        if mtu is not None:
            self.space.run("ip", "link", "set", self.interface, "mtu", str(mtu))
        for address in addresses:
            self.space.run("ip", "addr", "add", address, "dev", self.interface, "nodad")
        for gateway in gateways:
            self.space.run("ip", "route", "replace", "default", "via", gateway, "dev", self.interface)

    def pings(self, address: str, *, size: int = 56, fragment: bool = True, seconds: float = 1.0) -> bool:
        """Whether one of a few pings is answered. `size`: of the payload, in bytes."""
        argv = ["ping", "-n", "-q", "-i", "0.2", "-c", "3", "-w", str(max(1, round(seconds))), "-s", str(size), address]
        if not fragment:
            argv[1:1] = ["-M", "do"]
        return self.space.run(*argv, check=False).returncode == 0

    def send(self, frame: bytes) -> None:
        with self.space.socket(self.interface) as raw:
            raw.send(frame)

    @contextmanager
    def listening(self) -> Iterator[Heard]:
        """What arrives at the host meanwhile."""
        with self.space.socket(self.interface) as raw:
            yield Heard(raw)


@dataclass
class Heard:
    raw: socket.socket

    def hears(self, of: Callable[[bytes], bool], *, seconds: float = 0.5) -> bool:
        """Whether a frame arrives, within `seconds`, of which `of` is true; what the host itself sends is none."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0 and select.select([self.raw], [], [], left)[0]:
            frame, origin = self.raw.recvfrom(65535)
            if origin[2] != socket.PACKET_OUTGOING and of(frame):
                return True
        return False


@dataclass
class Dpu:
    """A DPU: its agent runs in its namespace as a process, and its ports are interfaces there."""

    space: Space
    vtep: str
    ports: dict[str, str] = field(default_factory=dict)
    domains: str = "netns"

    def agent(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        ports = [word for function, interface in self.ports.items() for word in ("--port", f"{function}={interface}")]
        argv = [sys.executable, "-m", "provisioner.network.agent", *arguments, *ports, "--domains", self.domains]
        return self.space.run(*argv, check=check, env={**os.environ, "PYTHONPATH": str(ROOT)})

    def enforce(self, spec: Mapping[str, Any], folder: Path, *, check: bool = True) -> dict[str, Any]:
        """Bring the DPU to `spec`; what the agent says of it."""
        file = folder / f"{self.space.name}.json"
        file.write_text(json.dumps({"spec": spec}))
        answer: dict[str, Any] = json.loads(self.agent("once", "--spec", str(file), check=check).stdout)
        return answer

    def without_defence(self, vni: int | None = None) -> None:
        """Take the filters away that the agent made: in the routing domain of `vni`, or in the DPU's own namespace."""
        inside = [] if vni is None else ["ip", "netns", "exec", f"vpc-{vni}"]
        self.space.run(*inside, "nft", "flush", "ruleset")
        if vni is not None:
            script = "for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > $f; done"
            self.space.run(*inside, "sh", "-c", script)


@dataclass
class Underlay:
    """The network between the DPUs: a bridge, on which whoever is attached can send whatever it likes."""

    spaces: list[Space] = field(default_factory=list)
    mtu: int = 1600

    @classmethod
    @contextmanager
    def made(cls, mtu: int = 1600) -> Iterator[Underlay]:
        underlay = cls(mtu=mtu)
        try:
            fabric = underlay.space("fabric")
            fabric.run("ip", "link", "add", "br0", "type", "bridge", "stp_state", "0", "forward_delay", "0")
            fabric.run("ip", "link", "set", "br0", "mtu", str(mtu), "up")
            yield underlay
        finally:
            for space in underlay.spaces:
                space.close()

    @property
    def fabric(self) -> Space:
        return self.spaces[0]

    def space(self, name: str) -> Space:
        space = Space.make(name)
        self.spaces.append(space)
        return space

    def attach(self, space: Space, address: str, interface: str = "up0") -> None:
        """Give `space` a port on the underlay, with an address such as 10.100.0.11/24."""
        port = f"p-{space.name}"[:15]
        self.fabric.run(
            "ip", "link", "add", port, "mtu", str(self.mtu), "type", "veth",
            "peer", "name", interface, "mtu", str(self.mtu), "netns", str(space.holder.pid),
        )  # fmt: skip
        self.fabric.run("ip", "link", "set", port, "master", "br0", "up")
        space.run("ip", "addr", "add", address, "dev", interface)
        space.run("ip", "link", "set", interface, "up")

    def dpu(self, name: str, vtep: str) -> Dpu:
        space = self.space(name)
        self.attach(space, f"{vtep}/24")
        return Dpu(space, vtep)

    def host(self, name: str, dpu: Dpu, function: str, mac: str) -> Host:
        """A host whose function `function` is the DPU's port of that name."""
        host = Host(self.space(name), mac)
        representor = f"{function}hpf" if "vf" not in function else function
        dpu.space.run(
            "ip", "link", "add", representor, "type", "veth",
            "peer", "name", host.interface, "address", mac, "netns", str(host.space.holder.pid),
        )  # fmt: skip
        dpu.ports[function] = representor
        host.space.run("ip", "link", "set", host.interface, "up")
        return host
