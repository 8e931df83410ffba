"""Who asked? Pure. A header counts only when a configured proxy wrote it."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from dataclasses import dataclass

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class TrustedProxies:
    """Whose X-Forwarded-For is believed.

    `unix_socket`: the peer on our Unix socket (nginx on the same host; only it may open the socket).
    `networks`: further proxies in front of it.
    """

    unix_socket: bool = False
    networks: Collection[Network] = ()

    def trusts(self, address: Address) -> bool:
        return any(address.version == network.version and address in network for network in self.networks)


def source_address(peer: str | None, forwarded_for: str | None, proxies: TrustedProxies) -> str | None:
    """The address that the request came from, or None if nobody trustworthy says so.

    `peer`: the other end of our connection; None or a word that is no address means our Unix socket. The header is
    read from the right, the end that the last proxy wrote: the first address that is not a trusted proxy's is the
    source. What stands left of it was written by the source itself and is never looked at.
    """
    nearest = _address(peer)
    if nearest is None and not proxies.unix_socket:
        return None
    if nearest is not None and not proxies.trusts(nearest):
        return str(nearest)
    for hop in reversed((forwarded_for or "").split(",")):
        address = _address(hop.strip())
        if address is None:
            return None
        if not proxies.trusts(address):
            return str(address)
        nearest = address
    return str(nearest) if nearest is not None else None


def _address(text: str | None) -> Address | None:
    try:
        address = ipaddress.ip_address(text or "")
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address
