"""Names, hardware addresses and tables of what the agent makes. All fit into the kernel's 15 characters."""

from __future__ import annotations

import hashlib
import re
from ipaddress import IPv4Address, IPv6Address
from typing import Final

TABLE: Final = "provisioner"
"""Name of our nftables tables."""

GATEWAY_MAC: Final = "02:00:5e:00:01:01"
"""Of every port: a host notices neither another DPU nor another VPC."""

_NAMESPACE: Final = "vpc-"
_BOOT: Final = "boot"
_RESERVED_TABLES: Final = range(256)  # the kernel's local, main and default, and /etc/iproute2/rt_tables
_ABOVE_ALL_VNIS: Final = 1 << 24
_OURS: Final = re.compile(r"(vx[1-9][0-9]{0,7}|vpc[1-9][0-9]{0,7}|p[0-9a-f]{6}-[0-9a-f]{6}|boot-pf[0-9a-z]{1,6})\Z")


def vxlan_name(vni: int) -> str:
    return f"vx{vni}"


def vrf_name(vni: int) -> str:
    return f"vpc{vni}"


def peer_link_name(vni: int, peer_vni: int) -> str:
    """The end in `vni`'s domain of the link to `peer_vni`'s; hexadecimal, so that two VNIs fit."""
    return f"p{vni:06x}-{peer_vni:06x}"


def boot_link_name(function: str) -> str:
    """The end beside a port of the link to the boot plane."""
    return f"boot-{function}"


def boot_link_function(device: str) -> str | None:
    """The function of which a device is the `boot_link_name`; None of others."""
    return device.removeprefix("boot-") if device.startswith("boot-pf") else None


def is_ours(device: str) -> bool:
    """Whether a device at HOME was made by an agent."""
    return _OURS.match(device) is not None


def namespace_name(vni: int, owner: str) -> str:
    """Of a domain, where there is no VRF. `owner`: "", or what the namespace is called in which the agent runs."""
    return f"{_NAMESPACE}{vni}{_suffix(owner)}"


def boot_namespace(owner: str) -> str:
    """Of the boot plane."""
    return f"{_NAMESPACE}{_BOOT}{_suffix(owner)}"


def is_boot_namespace(place: str) -> bool:
    return place.partition(".")[0] == f"{_NAMESPACE}{_BOOT}"


def is_namespace_of(name: str, owner: str) -> bool:
    """Whether a namespace was made by agents of `owner`."""
    middle = name.removeprefix(_NAMESPACE).removesuffix(_suffix(owner))
    is_known = middle.isdecimal() or middle == _BOOT
    return is_known and name == f"{_NAMESPACE}{middle}{_suffix(owner)}"


def _suffix(owner: str) -> str:
    return f".{owner}" if owner else ""


def routing_table(vni: int) -> int:
    """The VNI itself, unless that is a table of the kernel's own."""
    return vni + _ABOVE_ALL_VNIS if vni in _RESERVED_TABLES else vni


def router_mac(vtep: str) -> str:
    return "02:00:" + ":".join(f"{byte:02x}" for byte in IPv4Address(vtep).packed)


def router_address(vtep: str, version: int) -> str:
    """By which a domain's routes name another DPU: its address on the underlay, or, for IPv6, that in fe80::/64."""
    return vtep if version == 4 else str(IPv6Address(int(IPv6Address("fe80::")) + int(IPv4Address(vtep))))


def peer_link_mac(vni: int) -> str:
    """Of the ends of peer links that lie in `vni`'s domain."""
    return "02:01:00:" + ":".join(f"{byte:02x}" for byte in vni.to_bytes(3, "big"))


def link_local(mac: str) -> str:
    """The link-local address that a host with this hardware address has. Source: RFC 4291, appendix A."""
    octets = bytes(int(octet, 16) for octet in mac.split(":"))
    identifier = bytes([octets[0] ^ 2]) + octets[1:3] + b"\xff\xfe" + octets[3:]
    return str(IPv6Address(b"\xfe\x80" + bytes(6) + identifier))


def solicited_node(address: str) -> tuple[str, str]:
    """The multicast group, and its hardware address, at which an IPv6 address is asked for. Source: RFC 4291, 2.7.1."""
    low = IPv6Address(address).packed[-3:]
    group = IPv6Address(bytes.fromhex("ff0200000000000000000001ff") + low)
    return str(group), "33:33:ff:" + ":".join(f"{byte:02x}" for byte in low)


def own_mac(device: str) -> str:
    """Of a released port's device to which its maker gave none."""
    digest = hashlib.sha256(device.encode()).digest()
    return "02:02:" + ":".join(f"{byte:02x}" for byte in digest[:4])
