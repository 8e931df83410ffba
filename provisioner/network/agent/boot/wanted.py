"""What the kernel shall have for the boot plane, beside its port and in its own namespace. Pure."""

from __future__ import annotations

from provisioner.network.agent.boot.plane import HOST_LINK, BootingHost, BootServices
from provisioner.network.agent.naming import GATEWAY_MAC, boot_link_name
from provisioner.network.agent.rules.boot import boot_link, plane_chains
from provisioner.network.agent.state import LOOPBACK, Link, Neighbour, Place, PlaceState, Route
from provisioner.network.agent.sysctls import boot_plane_sysctls, isolated_sysctls

MTU_BYTES = 1500


def beside_the_port(host: BootingHost, device: str, plane: Place) -> PlaceState:
    """Where its port is, whose interface is `device`."""
    name = boot_link_name(host.function)
    return PlaceState(
        links=frozenset({Link(name, "veth", mtu_bytes=MTU_BYTES, peer=HOST_LINK, peer_place=plane)}),
        sysctls=frozenset(isolated_sysctls(name)),
        chains=frozenset({boot_link(host, device)}),
    )


def in_the_plane(host: BootingHost, services: BootServices, port_place: Place) -> PlaceState:
    """Every address is the plane's own, but the host's."""
    name, own = boot_link_name(host.function), str(host.address)
    link = Link(HOST_LINK, "veth", mtu_bytes=MTU_BYTES, mac=GATEWAY_MAC, peer=name, peer_place=port_place)
    return PlaceState(
        links=frozenset({link, Link(LOOPBACK, "other")}),
        routes=frozenset({Route("0.0.0.0/0", HOST_LINK, kind="local"), Route(f"{own}/32", HOST_LINK)}),
        neighbours=frozenset({Neighbour(HOST_LINK, own, host.mac)}),
        sysctls=frozenset(boot_plane_sysctls(HOST_LINK)),
        chains=frozenset(plane_chains(host, services)),
    )
