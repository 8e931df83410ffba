"""The kernel's settings for what is ours: it forwards, and takes nobody's word for routes, routers or neighbours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from provisioner.network.agent.model.state import Sysctl

_IPV4: Final = {
    "accept_redirects": "0",
    "accept_source_route": "0",
    "proxy_arp": "0",
    "route_localnet": "0",
    "rp_filter": "0",  # nft asks, for both families
    "secure_redirects": "0",
    "send_redirects": "0",
    "shared_media": "0",
}
_IPV6: Final = {
    "accept_dad": "0",
    "accept_ra": "0",
    "accept_redirects": "0",
    "accept_source_route": "0",
    "addr_gen_mode": "1",  # no link-local address: every address is one of the spec
    "autoconf": "0",
    "disable_ipv6": "0",
    "proxy_ndp": "0",
}


def namespace_sysctls() -> Iterator[Sysctl]:
    """Of a domain's own namespace, before it has any device: what a device begins with, too."""
    yield Sysctl("ipv4/ip_forward", "1")
    yield Sysctl("ipv6/conf/all/forwarding", "1")
    for group in ("all", "default"):
        yield from _settings(group)
    yield Sysctl("ipv4/conf/default/arp_ignore", "1")


def vrf_sysctls(device: str) -> Iterator[Sysctl]:
    """Of a VRF beside the DPU's own interfaces, whose settings are not touched; IPv6 forwards everywhere or nowhere."""
    yield Sysctl("ipv6/conf/all/forwarding", "1")
    yield from device_sysctls(device, is_port=False)


def device_sysctls(device: str, *, is_port: bool) -> Iterator[Sysctl]:
    """`is_port`: hosts ask for the gateways that it has; between domains and DPUs nobody need ask."""
    yield Sysctl(f"ipv4/conf/{device}/forwarding", "1")
    yield Sysctl(f"ipv4/conf/{device}/arp_ignore", "1" if is_port else "8")
    yield Sysctl(f"ipv6/conf/{device}/forwarding", "1")
    yield from _settings(device)


def boot_plane_sysctls(device: str) -> Iterator[Sysctl]:
    """Of the boot plane's namespace, and of its one device: nothing is forwarded, and IPv6 is not spoken."""
    yield Sysctl("ipv4/ip_forward", "0")
    for group in ("default", device):
        for name, value in _IPV4.items():
            yield Sysctl(f"ipv4/conf/{group}/{name}", value)
    yield Sysctl(f"ipv4/conf/{device}/arp_ignore", "0")
    yield Sysctl(f"ipv6/conf/{device}/disable_ipv6", "1")


def isolated_sysctls(device: str) -> Iterator[Sysctl]:
    """The DPU says nothing on the port by itself."""
    yield Sysctl(f"ipv4/conf/{device}/arp_ignore", "8")
    yield Sysctl(f"ipv6/conf/{device}/disable_ipv6", "1")


def released_sysctls(device: str) -> Iterator[Sysctl]:
    for sysctl in isolated_sysctls(device):
        yield Sysctl(sysctl.path, "0")


def _settings(group: str) -> Iterator[Sysctl]:
    for name, value in _IPV4.items():
        yield Sysctl(f"ipv4/conf/{group}/{name}", value)
    for name, value in _IPV6.items():
        if group == "all" and name in ("addr_gen_mode", "disable_ipv6"):
            continue  # of these "all" is no default: writing it sets every device
        yield Sysctl(f"ipv6/conf/{group}/{name}", value)
