"""Where an attachment is: on which card, and whether its namespace may be there at all. Pure.

What a namespace is told of a server that is not its own is the same whether there is such a server or not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from provisioner.api import Server, VPCAttachment
from provisioner.api.servers.dpu import DPUFunction
from provisioner.network.control.compile.trouble import Trouble


@dataclass(frozen=True, kw_only=True)
class FunctionPlace:
    """A function of a card. is_quarantined: by the administrators. is_assigned: they have named it
    (spec.dpu.functions)."""

    dpu: str
    vtep: str
    function: str
    mac_address: str
    is_quarantined: bool = False
    is_assigned: bool = False

    @property
    def value(self) -> str:
        """As a NetworkClaim calls it."""
        return f"{self.dpu}/{self.function}"


def place(attachment: VPCAttachment, server: Server | None, dpus: Sequence[Server]) -> FunctionPlace | Trouble:
    """The place that `attachment` asks for. `dpus`: those that sit in its server."""
    spec, namespace = attachment.spec, attachment.metadata.namespace
    dpus = [each for each in dpus if each.spec.acceptance != "Pending"]
    assigned = server is not None and server.spec.tenant == namespace
    own = [each for each in dpus if tenant_of(each, server, spec.function) == namespace]
    if spec.dpu_ref is not None:
        own = [each for each in own if each.name == spec.dpu_ref]
    if server is None or not (own or assigned):
        return Trouble(
            reason="ServerNotAssigned",
            message=f"{spec.function} of Server '{spec.server_ref}' is not assigned to namespace '{namespace}', or "
            "there is no such Server: nothing of it is attached; have its administrators set spec.tenant of the "
            f"Server to {namespace}",
        )
    if server.spec.acceptance == "Rejected":
        return Trouble(
            reason="ServerRejected",
            message=f"Server '{server.name}' was rejected by the administrators, and nothing of it is attached: attach "
            "another server",
        )
    if not own:
        return _without_dpu(attachment, server, dpus)
    if len(own) > 1:
        names = ", ".join(sorted(each.name for each in own))
        return Trouble(
            reason="SeveralDPUs",
            message=f"Server '{server.name}' has the DPUs {names}: make another attachment that names one of them in "
            "spec.dpuRef, and delete this one",
        )
    (dpu,) = own
    if dpu.spec.acceptance == "Rejected":
        return Trouble(
            reason="DPURejected",
            message=f"DPU '{dpu.name}' was rejected by the administrators, and enforces nothing: attach another server",
        )
    vtep = dpu.spec.dpu.vtep_address if dpu.spec.dpu is not None else None
    if vtep is None:
        return Trouble(
            reason="NoVTEPAddress",
            message=f"DPU '{dpu.name}' has no address on the underlay: have its administrators set "
            "spec.dpu.vtepAddress of that Server",
        )
    mac_address = mac_address_of(dpu, server, spec.function)
    own_function = _own(dpu, spec.function)
    return FunctionPlace(
        dpu=dpu.name,
        vtep=vtep,
        function=spec.function,
        mac_address=mac_address,
        is_quarantined=_is_quarantined(server, own_function),
        is_assigned=own_function is not None,
    )


def _is_quarantined(server: Server, function: DPUFunction | None) -> bool:
    """By the administrators: of the server as a whole, or of this function of its card."""
    return bool(server.spec.network_quarantined or (function is not None and function.quarantined))


def _without_dpu(attachment: VPCAttachment, server: Server, dpus: Sequence[Server]) -> Trouble:
    """Of a server that is the namespace's own."""
    spec = attachment.spec
    if spec.dpu_ref is None and not dpus:
        return Trouble(
            reason="NoDPU",
            message=f"Server '{server.name}' has no DPU, and nothing else enforces a VPC: have its administrators "
            "register the card (a Server with spec.dpu.hostRef)",
        )
    if spec.dpu_ref is not None and all(each.name != spec.dpu_ref for each in dpus):
        return Trouble(
            reason="DPUNotFound",
            message=f"Server '{server.name}' has no DPU named '{spec.dpu_ref}': make another attachment that names one "
            "of its own in spec.dpuRef, or leaves it out, and delete this one",
        )
    return Trouble(
        reason="FunctionNotAssigned",
        message=f"{spec.function} of Server '{server.name}' is assigned to another namespace than the server: attach "
        "another function, or have the administrators change spec.dpu.functions of the DPU",
    )


def tenant_of(dpu: Server, server: Server | None, function: str) -> str | None:
    """The namespace whose attachments a function takes."""
    own = _own(dpu, function)
    if own is not None and own.tenant is not None:
        return own.tenant
    return server.spec.tenant if server is not None else None


def mac_address_of(dpu: Server, server: Server, function: str) -> str:
    """The MAC address that the host has on a function: as registered; pf0 boots; others have one of their own that is
    administered locally, and always the same."""
    own = _own(dpu, function)
    if own is not None and own.mac_address is not None:
        return own.mac_address
    if function == "pf0":
        return server.spec.boot_mac_address
    digest = hashlib.sha256(f"{dpu.name}/{function}".encode()).digest()
    return ":".join(f"{byte:02x}" for byte in (digest[0] & 0xFC | 0x02, *digest[1:6]))


def _own(dpu: Server, function: str) -> DPUFunction | None:
    functions = dpu.spec.dpu.functions if dpu.spec.dpu is not None else ()
    return next((each for each in functions if each.name == function), None)
