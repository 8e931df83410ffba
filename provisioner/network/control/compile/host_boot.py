"""Which host boots through a DPU, as that is told of it. Pure."""

from __future__ import annotations

from provisioner.api import Server
from provisioner.api.network.dpu_network import HostBoot
from provisioner.network.control.compile.place import mac_address_of
from provisioner.rules.dpus import carries_boot_of


def host_boot(dpu: Server, host: Server | None) -> HostBoot | None:
    """None where the host boots by itself, was not accepted, has no address, or boots by none of the card's functions.

    `host`: the server in which the card says it is.
    """
    if host is None or host.status.address is None or host.spec.acceptance != "Accepted":
        return None
    if not carries_boot_of(dpu, host):
        return None
    functions = {"pf0", *(each.name for each in (dpu.spec.dpu.functions if dpu.spec.dpu is not None else ()))}
    boots_by = [each for each in sorted(functions) if mac_address_of(dpu, host, each) == host.spec.boot_mac_address]
    if not boots_by:
        return None
    return HostBoot(
        server=host.name,
        function=boots_by[0],
        mac_address=host.spec.boot_mac_address,
        address=host.status.address,
    )
