"""The kernel's command line of a server: all that stage-1 must know, and what Image and NodePool add. Pure."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Final

from provisioner.api import Image, NodePool, Rack, Server
from provisioner.api.images.image import intent_arguments
from provisioner.api.machinery.errors import Refused
from provisioner.api.servers.rack import Subnet
from provisioner.boot.rack_cache import usable_cache

SERIAL_CONSOLE: Final = {"x86_64": "ttyS0,115200", "arm64": "ttyAMA0"}
INITRD_NAME: Final = "stage1.img"
KERNEL_NAME: Final = "vmlinuz"
"""By which iPXE's script calls the kernel: the first word of what a TPM shows of the command line."""

_UNSAFE = re.compile(r"[^\x21-\x7e]|\$\{|;|&&|\|\||\\")


@dataclass(frozen=True, kw_only=True)
class BootUrls:
    """Where booting servers find the boot host; without a slash at the end. ipxe_https: whether iPXE fetches kernel and
    stage-1 by TLS, from `join`."""

    boot: str
    join: str
    ipxe_https: bool = False

    @classmethod
    def at(cls, address: str, http_port: int, join_port: int, *, ipxe_https: bool) -> BootUrls:
        """Those of the boot host with that address."""
        port = "" if http_port == 80 else f":{http_port}"
        return cls(boot=f"http://{address}{port}", join=f"https://{address}:{join_port}", ipxe_https=ipxe_https)

    @property
    def files_of_ipxe(self) -> str:
        """Below which iPXE finds kernel and stage-1."""
        return f"{self.join if self.ipxe_https else self.boot}/images"


def kernel_arguments(server: Server, pool: NodePool, image: Image, rack: Rack, urls: BootUrls) -> tuple[str, ...]:
    """The kernel's command line, one word each. It holds no secret: anybody on the network can read it.

    Raises: Refused if a value cannot be one word of an iPXE script, or an Image or NodePool sets `provisioner.*`.
    """
    subnet = find_subnet(server, rack)
    first, *rest = image_sources(server, rack, urls)
    arguments = [
        f"initrd={INITRD_NAME}",  # EFI kernels before 5.8 find the initramfs of iPXE only by this name
        f"provisioner.server={server.name}",
        f"provisioner.mac={server.spec.boot_mac_address}",
        f"provisioner.url={urls.boot}",
        f"provisioner.join={urls.join}",
        f"provisioner.image={image.spec.digest.replace(':', '-')}",
        f"provisioner.images={first}",
        *(f"provisioner.nextimages={source}" for source in rest),
        f"provisioner.address={server.status.address}/{ipaddress.ip_network(subnet.cidr).prefixlen}",
    ]
    if rack.spec.least_rate_bytes_per_second:
        arguments.append(f"provisioner.leastrate={rack.spec.least_rate_bytes_per_second}")
    if subnet.gateway:
        arguments.append(f"provisioner.gateway={subnet.gateway}")
    if subnet.dns_servers:
        arguments.append(f"provisioner.dns={','.join(subnet.dns_servers)}")
    if subnet.ntp_servers:
        arguments.append(f"provisioner.ntp={','.join(subnet.ntp_servers)}")
    if subnet.mtu:
        arguments.append(f"provisioner.mtu={subnet.mtu}")
    arguments += [
        "systemd.machine_id=firmware",
        "net.ifnames=0",
        f"console={SERIAL_CONSOLE[server.spec.architecture]}",
    ]
    checked = [check_word(argument, f"Server '{server.name}' or its Rack '{rack.name}'") for argument in arguments]
    for argument in image.spec.kernel_arguments:
        _check_foreign(argument, f"Image '{image.name}'")
    for argument in pool.spec.kernel_arguments:
        _check_foreign(argument, f"NodePool '{pool.name}'")
    return (*checked, *intent_arguments(pool, image))


def image_sources(server: Server, rack: Rack, urls: BootUrls) -> list[str]:
    """Where the server's stage-1 fetches its image, first and next; behind them it always has the boot host.

    The rack's cache comes first, unless it is out (`boot/rack_cache.py`). Each further attempt at a boot begins with
    the other one: what a boot died of is not offered first again. The order's own count tells, and nothing that a
    machine said.
    """
    own = f"{urls.boot}/images"
    cache = usable_cache(rack)
    if cache is None:
        return [own]
    cached = f"{cache}/images"
    order = server.status.order
    # Behind the cache the boot host need not be named.
    return [cached] if order is None or order.attempt % 2 == 1 else [own, cached]


def find_subnet(server: Server, rack: Rack) -> Subnet:
    """The subnet in which the server has its address: where it was allocated, else as the spec says, else the first.

    Raises: Refused if the rack has no subnet of that name.
    """
    wanted = server.status.subnet_name or server.spec.subnet_name or rack.spec.subnets[0].name
    for subnet in rack.spec.subnets:
        if subnet.name == wanted:
            return subnet
    raise Refused(
        f"Rack '{rack.name}' has no subnet '{wanted}' for Server '{server.name}'",
        hint=f"name one of {', '.join(subnet.name for subnet in rack.spec.subnets)} in spec.subnetName",
    )


def check_word(word: str, owner: str) -> str:
    """`word`, if iPXE takes it as one literal word. Raises: Refused, naming `owner`, if it could be anything else."""
    if not word or _UNSAFE.search(word) or word.startswith("#"):
        raise Refused(
            f"kernel argument {word!r} of {owner} is not one plain word",
            hint="leave out spaces, control characters, ';', '&&', '||', '${', a backslash and a leading '#'",
        )
    return word


def _check_foreign(argument: str, owner: str) -> None:
    if argument.startswith(("provisioner.", "initrd=")):
        raise Refused(
            f"kernel argument {argument!r} of {owner} belongs to the provisioner", hint="remove it from kernelArguments"
        )
    check_word(argument, owner)
