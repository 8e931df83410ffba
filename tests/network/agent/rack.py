"""DPUs and their hosts in network namespaces, joined by an underlay: a real kernel on every side. Needs root.

Each DPU is a namespace with its own underlay interface and one representor for each host; a host is a namespace at the
other end of a cable. The namespaces' names bear this process's id, those that the agent makes with them.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from provisioner.api.codec import to_json
from provisioner.api.dpu_network import DPUNetworkSpec
from provisioner.network.agent import namespaces
from provisioner.network.agent.enforce import Enforced, Enforcer
from tests.network.agent.echo import Echoes, echo
from tests.tools import installed, need_root

T = TypeVar("T")
_serial = itertools.count()


class Namespace:
    def __init__(self, role: str) -> None:
        self.name = f"prv-{os.getpid()}-{next(_serial)}-{role}"
        subprocess.run(["ip", "netns", "add", self.name], check=True)
        self.ip("link", "set", "lo", "up")

    def ip(self, *arguments: str) -> str:
        return self.output("ip", *arguments)

    def command(self, *arguments: str) -> list[str]:
        """Not `ip netns exec`: what is named there ends with it."""
        return ["nsenter", f"--net=/run/netns/{self.name}", "--", *arguments]

    def output(self, *arguments: str) -> str:
        ran = self.run(*arguments)
        assert ran.returncode == 0, f"{arguments} in {self.name}: {ran.stderr}"
        return ran.stdout

    def run(self, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments), capture_output=True, text=True, timeout=60, check=False, input=stdin
        )

    def inside(self, call: Callable[[], T]) -> T:
        with namespaces.inside(self.name):
            return call()

    def pings(self, address: str, **how: Any) -> bool:
        """Whether one of three echo requests is answered."""
        return bool(self.echo(address, **how).answered)

    def reaches_nothing_at(self, address: str, **how: Any) -> bool:
        """Whether no echo request is answered."""
        return not self.pings(address, count=2, interval_seconds=0.05, patience_seconds=0.15, **how)

    def echo(self, address: str, **how: Any) -> Echoes:
        return self.inside(lambda: echo(address, **how))


class Host(Namespace):
    """Behind a port. Its addresses are the odd ones of pairs, with the even ones as gateways."""

    def __init__(self, name: str, mac: str) -> None:
        super().__init__(f"h{name}")
        # Its link-local address would be of no use for a second or two.
        self.output("sysctl", "-qw", "net.ipv6.conf.default.accept_dad=0")
        self.mac = mac

    def take(self, *addresses: str, mtu: int = 1500) -> None:
        """Addresses such as 10.1.0.3; a default route by each one's gateway."""
        self.ip("link", "set", "eth0", "mtu", str(mtu))
        for address in addresses:
            six = ":" in address
            self.ip("addr", "add", f"{address}/{127 if six else 31}", "dev", "eth0", *(["nodad"] if six else []))
            self.ip(*(["-6"] if six else []), "route", "replace", "default", "via", gateway(address))


def gateway(address: str) -> str:
    head, separator, last = re.match(r"(.*)([.:])(\w+)$", address).groups()  # type: ignore[union-attr]
    return f"{head}{separator}{int(last, 16 if separator == ':' else 10) - 1:{'x' if separator == ':' else 'd'}}"


class DPU(Namespace):
    def __init__(self, name: str, vtep: str, ports: dict[str, str]) -> None:
        super().__init__(name)
        self.vtep, self.ports = vtep, ports
        self.hosts: dict[str, Host] = {}
        self._enforcer: Enforcer | None = None

    @property
    def enforcer(self) -> Enforcer:
        """The agent, which goes on running."""
        if self._enforcer is None:
            self._enforcer = self.another()
        return self._enforcer

    def another(self) -> Enforcer:
        """An agent that was just started."""
        return Enforcer(self.ports, domains="netns")

    def enforce(self, spec: DPUNetworkSpec) -> Enforced:
        return self.inside(lambda: self.enforcer.enforce(spec))

    def release(self) -> Enforced:
        return self.inside(self.enforcer.release)

    def domains(self) -> list[str]:
        """Namespaces that its agents have made."""
        return namespaces.domains_of(self.name)

    def domain(self, vni: int) -> str:
        return f"vpc-{vni}.{self.name}"

    def in_domain(self, vni: int, *arguments: str, stdin: str | None = None) -> str:
        ran = subprocess.run(
            ["nsenter", f"--net=/run/netns/{self.domain(vni)}", "--", *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            input=stdin,
        )
        assert ran.returncode == 0, f"{arguments} in {self.domain(vni)}: {ran.stderr}"
        return ran.stdout

    def agent(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The agent as a program."""
        ports = [word for function, device in self.ports.items() for word in ("--port", f"{function}={device}")]
        verb, *others = arguments
        return self.run(
            "env",
            f"PYTHONPATH={':'.join(path for path in sys.path if path)}",
            sys.executable,
            "-m",
            "provisioner.network.agent",
            verb,
            *others,
            *ports,
            "--domains",
            "netns",
        )

    def once(self, spec: DPUNetworkSpec, path: Path) -> dict[str, Any]:
        path.write_text(json.dumps({"kind": "DPUNetwork", "spec": to_json(spec)}))
        ran = self.agent("once", "--spec", str(path))
        assert ran.returncode in (0, 1), ran.stderr
        said: dict[str, Any] = json.loads(ran.stdout)
        return said


class Rack:
    """DPUs on one underlay."""

    def __init__(self, mtu: int = 1550) -> None:
        self.mtu = mtu
        self.switch = Namespace("sw")
        self.made: list[Namespace] = [self.switch]
        self.switch.ip("link", "add", "br0", "mtu", str(mtu), "type", "bridge", "forward_delay", "0")
        self.switch.ip("link", "set", "br0", "up")

    def dpu(self, vtep: str, functions: tuple[str, ...] = ("pf0",)) -> DPU:
        """A DPU with a host behind each function, whose hardware addresses are those of `mac_of`."""
        last = vtep.rpartition(".")[2]
        dpu = DPU(f"d{last}", vtep, {function: f"{function}hpf" for function in functions})
        self.made.append(dpu)
        self.cable(dpu, "uplink", self.switch, f"to{last}", self.mtu)
        self.switch.ip("link", "set", f"to{last}", "master", "br0")
        dpu.ip("addr", "add", f"{vtep}/24", "dev", "uplink")
        for function, device in dpu.ports.items():
            host = Host(f"{last}{function}", mac_of(vtep, function))
            self.made.append(host)
            # Its own from the beginning: its link-local address is made of it.
            self.cable(host, "eth0", dpu, device, its_mac=host.mac)
            dpu.hosts[function] = host
        return dpu

    def cable(
        self, one: Namespace, its: str, other: Namespace, others: str, mtu: int = 1500, its_mac: str | None = None
    ) -> None:
        subprocess.run(
            ["ip", "link", "add", its, "mtu", str(mtu), *(["address", its_mac] if its_mac else []),
             "netns", one.name, "type", "veth",
             "peer", "name", others, "mtu", str(mtu), "netns", other.name],
            check=True,
        )  # fmt: skip
        one.ip("link", "set", its, "up")
        other.ip("link", "set", others, "up")

    def delete(self) -> None:
        for namespace in self.made:
            for domain in namespaces.domains_of(namespace.name):
                subprocess.run(["ip", "netns", "delete", domain], check=False)
            subprocess.run(["ip", "netns", "delete", namespace.name], check=False)


def mac_of(vtep: str, function: str) -> str:
    return f"52:54:00:00:{int(vtep.rpartition('.')[2]):02x}:{int(function[-1]):02x}"


@contextlib.contextmanager
def rack() -> Iterator[Rack]:
    need_root("make network namespaces")
    for program in ("ip", "nft", "nsenter"):
        installed(program)
    made = Rack()
    try:
        yield made
    finally:
        made.delete()
