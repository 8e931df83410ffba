"""DPUs on one underlay, with hosts behind their ports.

Each DPU is a namespace with an interface on the underlay and one representor for each host; a host is a namespace at
the other end of a cable.
"""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Generic, TypeVar

from lab.virtual_network.namespace import Namespace
from provisioner.network.agent.model import namespaces

BRIDGE: Final = "br0"
_NO_DAD: Final = 0x02


class Host(Namespace):
    """Behind a port. Its addresses are the odd ones of pairs, with the even ones as gateways."""

    def __init__(self, name: str, mac: str) -> None:
        super().__init__(name)
        self.mac = mac

    def create(self) -> None:
        super().create()
        # Its link-local address would be of no use for a second or two.
        self.output("sysctl", "-qw", "net.ipv6.conf.default.accept_dad=0")

    def take(self, *addresses: str, mtu: int = 1500) -> None:
        """Addresses such as 10.1.0.3; a default route by each one's gateway."""
        with self.kernel() as kernel:
            index = socket.if_nametoindex("eth0")
            kernel.link("set", index=index, mtu=mtu)
            for address in addresses:
                length, flags, everywhere = (127, _NO_DAD, "::/0") if ":" in address else (31, None, "0.0.0.0/0")
                kernel.addr("add", index=index, address=address, prefixlen=length, flags=flags)
                kernel.route("replace", dst=everywhere, gateway=gateway(address))

    def become(self, mac: str, *addresses: str) -> None:
        """What an attachment was given, in place of what the host had."""
        with self.kernel() as kernel:
            index = socket.if_nametoindex("eth0")
            kernel.flush_addr(index=index)
            kernel.link("set", index=index, address=mac)
        self.mac = mac
        self.take(*addresses)


class DPU(Namespace):
    """`ports`: of each function the representor, which leads to its host."""

    def __init__(self, name: str, vtep: str, ports: Mapping[str, str]) -> None:
        super().__init__(name)
        self.vtep, self.ports = vtep, dict(ports)
        self.hosts: dict[str, Host] = {}

    def domains(self) -> list[str]:
        """Namespaces that its agents have made."""
        return namespaces.domains_of(self.name)

    def agent_command(self, *arguments: str) -> list[str]:
        """The agent as a program, in the DPU's namespace; `arguments` begin with the verb."""
        ports = [word for function, device in self.ports.items() for word in ("--port", f"{function}={device}")]
        path = ":".join(each for each in sys.path if each)
        agent = (sys.executable, "-m", "provisioner.network.agent", *arguments, *ports)
        return self.command("env", f"PYTHONPATH={path}", *agent)


D = TypeVar("D", bound=DPU)
N = TypeVar("N", bound=Namespace)


class Rack(Generic[D]):
    """DPUs on one underlay of `mtu` bytes. `name_of`: what the namespace of a part is called, such as `sw`, the
    underlay's switch. `kind`: the class of its DPUs. `delete` takes away all that was made, also by agents."""

    def __init__(self, name_of: Callable[[str], str], kind: type[D], mtu: int = 1550) -> None:
        self.mtu = mtu
        self._name_of, self._kind = name_of, kind
        self.made: list[Namespace] = []
        self.switch = self.namespace("sw")
        with self.switch.kernel() as kernel:
            kernel.link("add", ifname=BRIDGE, kind="bridge", mtu=mtu, br_forward_delay=0, state="up")

    def namespace(self, part: str) -> Namespace:
        """Whoever is neither DPU nor host."""
        return self._make(Namespace(self._name_of(part)))

    def _make(self, namespace: N) -> N:
        self.made.append(namespace)
        namespace.create()
        return namespace

    def on_underlay(self, namespace: Namespace, device: str, address: str) -> None:
        """Cable a namespace to the underlay, with an address such as 192.0.2.1 there."""
        self.plug(namespace, device, address, self.switch, BRIDGE, f"to{address.rpartition('.')[2]}", self.mtu)

    def plug(
        self, one: Namespace, its: str, address: str, switch: Namespace, bridge: str, port: str, mtu: int = 1500
    ) -> None:
        """Cable a namespace to a bridge in another one, with an address in a /24 there."""
        self.cable(one, its, switch, port, mtu)
        with switch.kernel() as kernel:
            kernel.link("set", ifname=port, master=socket.if_nametoindex(bridge))
        with one.kernel() as kernel:
            kernel.addr("add", index=socket.if_nametoindex(its), address=address, prefixlen=24)

    def dpu(self, vtep: str, functions: Sequence[str] = ("pf0",), parts: Sequence[str] = ()) -> D:
        """A DPU with a host behind each function, whose hardware addresses are those of `mac_of`. parts: names of the
        DPU and of each host, if not made of address and function."""
        last = vtep.rpartition(".")[2]
        name, *hosts = parts or (f"d{last}", *(f"h{last}{function}" for function in functions))
        dpu = self._make(self._kind(self._name_of(name), vtep, {each: f"{each}hpf" for each in functions}))
        self.on_underlay(dpu, "uplink", vtep)
        for (function, device), part in zip(dpu.ports.items(), hosts, strict=True):
            host = self._make(Host(self._name_of(part), mac_of(vtep, function)))
            # Its own from the beginning: its link-local address is made of it.
            self.cable(host, "eth0", dpu, device, its_mac=host.mac)
            dpu.hosts[function] = host
        return dpu

    def cable(
        self, one: Namespace, its: str, other: Namespace, others: str, mtu: int = 1500, its_mac: str | None = None
    ) -> None:
        """A link between two namespaces, up on both sides."""
        with namespaces.opened(other.name) as there, one.kernel() as kernel:
            far_end = {"ifname": others, "mtu": mtu, "net_ns_fd": there}
            kernel.link("add", ifname=its, kind="veth", mtu=mtu, address=its_mac, peer=far_end)
            kernel.link("set", ifname=its, state="up")
        with other.kernel() as kernel:
            kernel.link("set", ifname=others, state="up")

    def delete(self) -> None:
        for namespace in self.made:
            namespace.delete()


def gateway(address: str) -> str:
    """The even address of the pair whose odd one is `address`."""
    head, separator, last = re.match(r"(.*)([.:])(\w+)$", address).groups()  # type: ignore[union-attr]
    return f"{head}{separator}{int(last, 16 if separator == ':' else 10) - 1:{'x' if separator == ':' else 'd'}}"


def mac_of(vtep: str, function: str) -> str:
    """Hardware address of the host behind a function of the DPU."""
    return f"52:54:00:00:{int(vtep.rpartition('.')[2]):02x}:{int(function[-1]):02x}"
