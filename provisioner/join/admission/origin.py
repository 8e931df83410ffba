"""Whether a request comes from where its server is: from its own address, or by the DPU in it. Pure.

The two ways are two listeners of the boot host. A DPU passes its host's requests on, as bytes of TLS that it cannot
read, to the one listener that is for them, and asks for itself at the other. So a host that asks in the name of its own
DPU, from whose address its requests come, is refused: by this way nobody joins but the host of the DPU that has the
address.
"""

from __future__ import annotations

from collections.abc import Sequence

from provisioner.api.servers.server import Server
from provisioner.rules.dpus import carries_boot_of


def find_elsewhere(
    server: Server, own_address: str, dpus: Sequence[Server], source_address: str, *, by_dpu: bool
) -> str | None:
    """Why a request does not come from where `server` is; None if it does.

    own_address: the server's. dpus: those that may be in it. by_dpu: whether it came to the listener for what DPUs pass
    on.
    """
    carriers = sorted((each for each in dpus if carries_boot_of(each, server)), key=lambda each: each.name)
    if by_dpu:
        if any(each.status.address == source_address for each in carriers):
            return None
        names = ", ".join(each.name for each in carriers)
        return (
            f"{source_address} passed on a request for server {server.name}, whose boot goes through "
            f"{names or 'no DPU'}; see spec.dpu.hostRef, spec.dpu.hostBoot, acceptance and address of the DPU in it"
        )
    if source_address != own_address:
        return (
            f"{source_address} asked for server {server.name}, whose address is {own_address}; "
            "boot the server so that it gets its own address"
        )
    if carriers:
        return (
            f"{source_address} asked for server {server.name} past DPU {carriers[0].name}, by which it boots; find out "
            "who has its address on the boot network, or set spec.dpu.hostBoot of the DPU to Direct"
        )
    return None
