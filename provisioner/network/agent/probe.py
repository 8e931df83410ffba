"""What is asked before anything is decided: which interfaces there are, what carries the underlay, and what this kernel
can do."""

from __future__ import annotations

import socket
from collections.abc import Collection
from typing import Final

from provisioner.network.agent.model.namespaces import domains_of, inside
from provisioner.network.agent.model.naming import GATEWAY_MAC, own_mac
from provisioner.network.agent.model.state import HOME
from provisioner.network.agent.netlink.entries import DUMP_ADDRESSES, GET_ADDRESS, read_addresses
from provisioner.network.agent.netlink.links import DUMP_HEADER, GET, SeenLink, change_link, read_links
from provisioner.network.agent.netlink.socket import NetlinkSocket
from provisioner.network.agent.situation import Underlay

_PROBE: Final = "vpc-probe"
_PROBE_TABLE: Final = (1 << 24) + 1


def find_interfaces(owner: str, names: Collection[str]) -> dict[str, int]:
    """Those that exist, at HOME or in a domain, and the largest MTU of each in bytes. Raises: OSError."""
    return {link.name: link.largest_mtu_bytes for link in _links_of(owner) if link.name in names}


def former_macs(owner: str, names: Collection[str]) -> dict[str, str]:
    """Of those that have the gateway's hardware address, the one that is their own. Raises: OSError."""
    ours = [link for link in _links_of(owner) if link.name in names and link.mac == GATEWAY_MAC]
    return {link.name: link.permanent_mac or own_mac(link.name) for link in ours}


def find_underlay(vtep: str, device: str | None) -> Underlay:
    """The interface that was named, or the one at HOME that has the DPU's address. Raises: OSError."""
    seen = {link.index: link for link in _links()}
    with NetlinkSocket() as kernel:
        addresses = list(
            read_addresses(kernel.dump(GET_ADDRESS, DUMP_ADDRESSES), {index: link.name for index, link in seen.items()})
        )
    holders = {each.device for each in addresses if each.address == vtep}
    name = device if device is not None else next(iter(sorted(holders)), None)
    found = next((link for link in seen.values() if link.name == name), None)
    # An address on the loopback leaves by any interface: there is no one MTU.
    mtu = None if found is None or found.loopback else found.mtu_bytes
    return Underlay(name, mtu, exists=found is not None or device is None, has_address=bool(holders))


def has_vrf() -> bool:
    """Whether a VRF can be made, found by making one."""
    with NetlinkSocket() as kernel:
        if change_link(kernel, "add", ifname=_PROBE, kind="vrf", vrf_table=_PROBE_TABLE) is not None:
            return False
        change_link(kernel, "del", index=socket.if_nametoindex(_PROBE))
    return True


def _links_of(owner: str) -> list[SeenLink]:
    found: list[SeenLink] = []
    for place in (HOME, *domains_of(owner)):
        with inside(place):
            found += _links()
    return found


def _links() -> list[SeenLink]:
    with NetlinkSocket() as kernel:
        return read_links(kernel.dump(GET, DUMP_HEADER))
