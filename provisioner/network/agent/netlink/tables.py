"""What nft does not tell: which tables there are, without reading them; and, in its 1.0.6, a base chain's device."""

from __future__ import annotations

import struct
from typing import Final

from provisioner.network.agent.model.state import Family
from provisioner.network.agent.netlink.socket import NetlinkSocket
from provisioner.network.agent.netlink.wire import all_attributes, attributes, read_text

_NETFILTER: Final = 12
_GET_TABLE, _GET_CHAIN = 10 << 8 | 1, 10 << 8 | 4
_FAMILIES: Final[dict[int, Family]] = {1: "inet", 5: "netdev"}
_NETDEV: Final = 5
_HEADER: Final = struct.Struct("=BBH")
_TABLE_NAME: Final = 1
_TABLE, _NAME, _HOOK = 1, 3, 4
_DEVICE, _DEVICES = 3, 4


def families_with(table: str) -> list[Family]:
    """The families that have a table of this name. Raises: OSError, if the kernel refuses."""
    with NetlinkSocket(_NETFILTER) as kernel:
        bodies = kernel.dump(_GET_TABLE, _HEADER.pack(0, 0, 0))
    return [
        _FAMILIES[body[0]]
        for body in bodies
        if body[0] in _FAMILIES and read_text(attributes(body, _HEADER.size).get(_TABLE_NAME, b"")) == table
    ]


def chain_devices(table: str) -> dict[str, str]:
    """Of each base chain of the netdev table its device; several, such as somebody else may give it, with commas.

    Raises: OSError, if the kernel refuses.
    """
    with NetlinkSocket(_NETFILTER) as kernel:
        bodies = kernel.dump(_GET_CHAIN, _HEADER.pack(_NETDEV, 0, 0))
    found = {}
    for body in bodies:
        said = attributes(body, _HEADER.size)
        if read_text(said.get(_TABLE, b"")) == table and _HOOK in said:
            hook = attributes(said[_HOOK])
            devices = [read_text(each) for each in all_attributes(hook.get(_DEVICES, b""))]
            if not devices and _DEVICE in hook:
                devices = [read_text(hook[_DEVICE])]
            found[read_text(said.get(_NAME, b""))] = ",".join(devices)
    return found
