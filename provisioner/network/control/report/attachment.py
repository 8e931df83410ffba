"""What is said of an attachment: pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from ipaddress import ip_address

from provisioner.api import DPUNetwork, VPCAttachment
from provisioner.api.machinery.conditions import condition_of
from provisioner.api.machinery.meta import ConditionStatus
from provisioner.api.network.dpu_network import DPUPort
from provisioner.api.network.vpc_attachment import ForwardingState, VPCAttachmentStatus
from provisioner.network.control.compile.allocate import gateway_of
from provisioner.network.control.compile.place import FunctionPlace
from provisioner.network.control.compile.room import MOST_VPCS, isolated
from provisioner.network.control.compile.trouble import Trouble


@dataclass(frozen=True, kw_only=True)
class AttachmentState:
    """An attachment as it is now. place: None if it has none. addresses: those that it has claimed. port: what its DPU
    is to be told; None if that knows nothing of it. trouble: why it is not as asked for. since: with which generation
    of `network` the port became so, if that is known. is_refused: the API server did not
    take the DPUNetwork. left_out: peers of its VPC for which the DPU has no room."""

    place: FunctionPlace | None
    addresses: tuple[str, ...]
    port: DPUPort | None
    trouble: Trouble | None
    network: DPUNetwork | None
    since: int | None = None
    is_refused: bool = False
    left_out: tuple[str, ...] = ()


def attachment_status(attachment: VPCAttachment, standing: AttachmentState, now: datetime) -> VPCAttachmentStatus:
    """The whole status."""
    before, network, port = attachment.status, standing.network, standing.port
    is_told = network is not None and _is_told(attachment, port, network)
    generation = _generation(before, standing) if is_told else None
    is_confirmed = generation is not None and (_observed(network) or 0) >= generation
    ready, reason, message = _words(attachment, standing, generation, is_confirmed)
    condition = condition_of(attachment, "Ready", ready, reason, message, now)
    if reason == "WaitsForDPU":
        words = f"{message}, not enforced since {condition.last_transition_time}"
        condition = replace(condition, message=words)
    state: ForwardingState | None = before.forwarding_state
    if is_confirmed:
        state = (_found_state(attachment, network) or port.state) if port is not None else "Isolated"
    addresses = standing.addresses
    if port is None and not is_confirmed:
        addresses = addresses or before.addresses  # by which it is told whether the DPU still has it
    return VPCAttachmentStatus(
        dpu_ref=standing.place.dpu if standing.place is not None else before.dpu_ref,
        mac_address=standing.place.mac_address if standing.place is not None else None,
        addresses=addresses,
        gateways=tuple(str(gateway_of(ip_address(each))) for each in addresses),
        forwarding_state=state,
        network_generation=generation if port is not None else None,
        conditions=(condition,),
    )


def _is_told(attachment: VPCAttachment, port: DPUPort | None, network: DPUNetwork) -> bool:
    """Whether the DPUNetwork says of the attachment what it is to say; of one that has no port, nothing."""
    told = next((each for each in network.spec.ports if each.function == attachment.spec.function), None)
    if port is not None:
        return told == port
    return told is None or not set(told.addresses) & set(attachment.status.addresses)


def _has_no_room(attachment: VPCAttachment, port: DPUPort, network: DPUNetwork | None) -> bool:
    """Whether it is told as `compile` tells what does not fit."""
    told = next((p for p in network.spec.ports if p.function == attachment.spec.function), None) if network else None
    return told is not None and told != port and told == isolated(port)


def _generation(before: VPCAttachmentStatus, standing: AttachmentState) -> int | None:
    """The generation that has to be confirmed. Where it is not known with which the port became so, and the DPU is at
    the last one, the one that was told before may stay."""
    network = standing.network
    if network is None or standing.since is not None:
        return standing.since
    current = network.metadata.generation or 0
    if _observed(network) == current and before.network_generation is not None and standing.port is not None:
        return min(before.network_generation, current)
    return current


def _observed(network: DPUNetwork | None) -> int | None:
    """As `informers.observed_by`."""
    observed = network.status.observed_generation if network is not None else None
    current = network.metadata.generation if network is not None else None
    return observed if observed is not None and observed <= (current or 0) else None


def _found_state(attachment: VPCAttachment, network: DPUNetwork | None) -> ForwardingState | None:
    """Of its port, as the DPU says it."""
    ports = network.status.ports if network is not None else ()
    return next((each.state for each in ports if each.function == attachment.spec.function), None)


def _words(
    attachment: VPCAttachment, standing: AttachmentState, generation: int | None, is_confirmed: bool
) -> tuple[ConditionStatus, str, str]:
    if standing.trouble is not None:
        return "False", standing.trouble.reason, standing.trouble.message
    if standing.place is None or standing.port is None:
        return "False", "WaitsForClaims", "addresses and port are being claimed"
    dpu = standing.place.dpu
    if generation is None and standing.is_refused:
        return "False", "NotCompiled", (
            f"the API server does not take what DPU '{dpu}' is to enforce: have the administrators look at the Events "
            "of the DPU"
        )  # fmt: skip
    if generation is None and _has_no_room(attachment, standing.port, standing.network):
        return "False", "WaitsForRoom", (
            f"what DPU '{dpu}' is to enforce is too much for one DPUNetwork, and this attachment is isolated: have "
            "fewer attachments in its VPC and that one's peers, fewer peers, or fewer and shorter rules"
        )  # fmt: skip
    if generation is None:
        return "False", "WaitsForCompilation", f"the DPUNetwork of DPU '{dpu}' does not hold it yet"
    seen = _observed(standing.network)
    if not is_confirmed:
        found = f"generation {seen}" if seen is not None else "none"
        return "False", "WaitsForDPU", (
            f"DPU '{dpu}' has not confirmed generation {generation} of its DPUNetwork, which holds this attachment; "
            f"it has confirmed {found}"
        )  # fmt: skip
    found_state = _found_state(attachment, standing.network) or standing.port.state
    if found_state != standing.port.state:
        return "False", "DPUDisagrees", (
            f"DPU '{dpu}' says that {attachment.spec.function} is {found_state}; it was told {standing.port.state}: "
            "have the administrators look at the DPU"
        )  # fmt: skip
    if standing.port.state == "Quarantined":
        if standing.place.is_quarantined:
            return "False", "Quarantined", (
                f"nothing passes, as the administrators have quarantined {attachment.spec.function} of Server "
                f"'{attachment.spec.server_ref}': ask them; spec.quarantined does not lift that"
            )  # fmt: skip
        return "False", "Quarantined", "nothing passes, as spec.quarantined asks: set it to false to let it in again"
    if standing.left_out:
        return "False", "PeersLeftOut", (
            f"this attachment exchanges no packets with the peers {', '.join(standing.left_out)} of its VPC: DPU "
            f"'{dpu}' takes part in {MOST_VPCS} VPCs at most, of which each tenant has a share, and in no more of "
            "them than its DPUNetwork has room for; have fewer peers, or fewer VPCs with peers on this DPU"
        )  # fmt: skip
    return "True", "Enforced", f"DPU '{dpu}' has confirmed it"
