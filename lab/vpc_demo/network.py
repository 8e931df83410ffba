"""The demo's machines in network namespaces: an underlay, the DPUs on it, their hosts, and the API server's network,
in which only the DPUs are."""

from __future__ import annotations

import shutil
from collections.abc import Callable

from lab.demo.leftovers import end_processes_in
from lab.demo.state import DemoState
from lab.network import BRIDGE, LabNetwork
from lab.virtual_network.namespace import Namespace
from lab.virtual_network.rack import DPU, Host, Rack
from lab.vpc_demo import site
from provisioner.api.machinery.errors import NeedsHuman


def require_programs(find: Callable[[str], str | None] = shutil.which) -> None:
    """Raises: NeedsHuman if a program is missing without which no DPU enforces anything."""
    needed = {"ip": "iproute2", "nft": "nftables", "nsenter": "util-linux", "sysctl": "procps"}
    if missing := [name for name in needed if find(name) is None]:
        packages = " ".join(dict.fromkeys(needed[name] for name in missing))
        raise NeedsHuman(f"{', '.join(missing)} is not on this machine", hint=f"apt-get install {packages}")


def create_network(state: DemoState) -> Rack[DPU]:
    """All of it, and nothing enforced yet. Raises: NeedsHuman."""
    lab = LabNetwork(state.name)
    lab.create()
    management = Namespace(lab.namespace)
    rack = Rack(lambda part: _name(state, part), DPU, site.UNDERLAY_MTU_BYTES)
    for card in site.CARDS:
        hosts = site.hosts_of(card.server)
        names = (card.name, *(host.part for host in hosts))
        dpu = rack.dpu(card.vtep, tuple(host.function for host in hosts), names)
        rack.plug(dpu, "oob0", str(card.management), management, BRIDGE, f"to-{card.server}")
    return rack


def dpu_of(state: DemoState, card: site.Card) -> DPU:
    """The DPU of that card, in a network that was created."""
    ports = {host.function: f"{host.function}hpf" for host in site.hosts_of(card.server)}
    return DPU(_name(state, card.name), card.vtep, ports)


def host_of(state: DemoState, host: site.Host) -> Host:
    """The machine behind that function, in a network that was created."""
    return Host(_name(state, host.part), "")


def delete_network(state: DemoState) -> None:
    """End what runs in the demo's namespaces but that of the control plane, and delete them, also those that agents
    have made. Absent is fine."""
    parts = ["sw", *(host.part for host in site.HOSTS), *(card.name for card in site.CARDS)]
    for part in parts:
        namespace = Namespace(_name(state, part))
        end_processes_in(namespace.name)
        namespace.delete()


def _name(state: DemoState, part: str) -> str:
    return f"{state.namespace}.{part}"
