"""Whose boot plane there is on a DPU, and which services lie behind it."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address
from typing import Final

from provisioner.api.network.dpu_network import HostBoot
from provisioner.network.agent.dhcp.served import ServedPort
from provisioner.network.agent.model.naming import boot_link_function, is_boot_namespace
from provisioner.network.agent.model.ports import UNICAST_MAC
from provisioner.network.agent.model.state import KernelState, Place

HTTP_PORT: Final = 80
TFTP_PORT: Final = 69
TRANSFER_PORTS: Final = range(6900, 6908)
"""From which files go by TFTP, one for each transfer."""
HOST_LINK: Final = "tohost"
"""The boot plane's device, which leads to the host."""

_FIRST_MULTICAST: Final = 224


class NoPlane(ValueError):
    """What a DPU is told of its host cannot be; the message says of what."""


@dataclass(frozen=True)
class BootServices:
    """Where the DPU itself finds what its host asks for.

    boot_host: as the host knows it. join_port: to which the host sends its join; dpu_join_port: to which it is passed
    on. api_server, api_port: as the host's kubelet knows them.
    """

    boot_host: IPv4Address
    api_server: IPv4Address
    api_port: int = 6443
    join_port: int = 8443
    dpu_join_port: int = 8444

    @property
    def passages(self) -> dict[tuple[IPv4Address, int], tuple[IPv4Address, int]]:
        """By where the host connects to: where its bytes go, unread."""
        return {
            (self.boot_host, self.join_port): (self.boot_host, self.dpu_join_port),
            (self.api_server, self.api_port): (self.api_server, self.api_port),
        }


@dataclass(frozen=True, order=True)
class BootingHost:
    """A host that boots through the DPU: by which function, with which hardware address and address."""

    function: str
    mac: str
    address: IPv4Address


@dataclass(frozen=True)
class ServedBoot:
    """The host that may ask in a boot plane. `plane`: its namespace; `port`: the host's, where it is in a VPC."""

    host: BootingHost
    plane: Place
    port: ServedPort | None = None


def is_unicast(address: IPv4Address) -> bool:
    """Whether a machine can have it on a boot network."""
    first = address.packed[0]
    return 0 < first < _FIRST_MULTICAST and not address.is_loopback and not address.is_link_local


def read_host(said: HostBoot) -> BootingHost:
    """Raises: NoPlane."""
    mac = said.mac_address.lower()
    if not UNICAST_MAC.match(mac):
        raise NoPlane(f"hostBoot.macAddress is {said.mac_address}, not a unicast MAC address")
    try:
        address = IPv4Address(said.address)
    except AddressValueError:
        raise NoPlane(f"hostBoot.address is {said.address}, not an IPv4 address") from None
    if not is_unicast(address):
        raise NoPlane(f"hostBoot.address is {said.address}, which no host can have")
    return BootingHost(said.function, mac, address)


def booting_host(places: KernelState) -> BootingHost | None:
    """As the kernel has it: so an agent that was just started knows it, too, while the API server cannot be asked."""
    functions = [
        function
        for state in places.values()
        for link in state.links
        if (function := boot_link_function(link.name)) is not None
    ]
    found = [
        (each.mac, IPv4Address(each.address))
        for place, state in places.items()
        if is_boot_namespace(place)
        for each in state.neighbours
        if each.device == HOST_LINK and ":" not in each.address
    ]
    if len(functions) != 1 or len(found) != 1:
        return None
    ((mac, address),) = found
    return BootingHost(functions[0], mac, address)
