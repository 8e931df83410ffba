"""What is known when one machine's boot is explained, and what the boot host is configured with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from provisioner.api import Image, Maintenance, NodePool, Rack, Server
from provisioner.boot.dhcp import DhcpConfig
from provisioner.boot.script.kernel_arguments import BootUrls
from provisioner.rules.identity import find_server


@dataclass(frozen=True, kw_only=True)
class MachineObjects:
    """Objects as they were read at one time.

    claimants: all Servers that name the MAC address, as the interface that they boot from or a further one. pool,
    image: the ones that the rules name; None if there are none. dpus: the cards in the server. maintenance: the
    one that holds it. sizes: of each file of the image in an image store, None for a missing one; None if no store was
    looked at.
    """

    mac: str
    claimants: tuple[Server, ...] = ()
    racks: tuple[Rack, ...] = ()
    pool: NodePool | None = None
    image: Image | None = None
    dpus: tuple[Server, ...] = ()
    maintenance: Maintenance | None = None
    sizes: Mapping[str, int | None] | None = None

    @property
    def server(self) -> Server | None:
        """The one that has the address."""
        return find_server(self.mac, self.claimants)

    @property
    def rack(self) -> Rack | None:
        """The one that the server names."""
        named = self.server.spec.rack_ref if self.server is not None else None
        return next((rack for rack in self.racks if rack.name == named), None)


@dataclass(frozen=True, kw_only=True)
class BootHost:
    """What the answers of a boot host depend on beside the inventory."""

    dhcp: DhcpConfig
    urls: BootUrls

    @classmethod
    def at(cls, address: str, http_port: int = 80, join_port: int = 8443, *, ipxe_https: bool = False) -> BootHost:
        """One that is configured as `provisioner boot --address` is. Raises: Refused if that is no address."""
        urls = BootUrls.at(address, http_port, join_port, ipxe_https=ipxe_https)
        return cls(dhcp=DhcpConfig(server_address=address, web_url=urls.boot), urls=urls)
