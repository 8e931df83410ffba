"""What people read of a fabric: whether tenants are apart on it, and what is in the way. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from provisioner.api import Condition, InfiniBandFabric, InfiniBandNetwork
from provisioner.api.machinery.conditions import condition_of, find_condition
from provisioner.api.machinery.wording import some
from provisioner.api.network.infiniband_fabric import InfiniBandFabricStatus
from provisioner.network.infiniband.compile import LEFT_OUT, Compiled
from provisioner.network.infiniband.model.report import APPLIED, DEFAULT_LIMITED

NAMED: Final = 3
WHO: Final = {
    "OpenSM": "run `provisioner infiniband --fabric {name}` on the host of its OpenSM",
    "UFM": "the controller tells UFM as soon as it answers",
}


def fabric_status(
    fabric: InfiniBandFabric, compiled: Compiled, network: InfiniBandNetwork | None, now: datetime
) -> InfiniBandFabricStatus:
    """The whole status. `network`: as it was written with `compiled`; None if it is not there yet."""
    return InfiniBandFabricStatus(
        partitions=len(compiled.spec.partitions),
        ports=compiled.ports,
        network_generation=network.metadata.generation if network is not None else None,
        conditions=(
            _ready(fabric, network, now),
            _limited(fabric, network, now),
            _unambiguous(fabric, compiled, now),
            _has_room(fabric, compiled, now),
        ),
    )


def _ready(fabric: InfiniBandFabric, network: InfiniBandNetwork | None, now: datetime) -> Condition:
    applied = find_condition(network.status.conditions, APPLIED) if network is not None else None
    limited = find_condition(network.status.conditions, DEFAULT_LIMITED) if network is not None else None
    if network is None or applied is None or applied.observed_generation != network.metadata.generation:
        message = f"Nobody has read the fabric back: {WHO[fabric.spec.manager].format(name=fabric.name)}."
        return condition_of(fabric, "Ready", False, "NotAcknowledged", message, now)
    if applied.status != "True":
        return condition_of(fabric, "Ready", False, applied.reason, applied.message, now)
    if limited is None or limited.status != "True":
        reason, message = (limited.reason, limited.message) if limited else ("NotSaid", "Nothing was said.")
        return condition_of(fabric, "Ready", False, reason, message, now)
    return condition_of(fabric, "Ready", True, "Enforced", applied.message, now)


def _limited(fabric: InfiniBandFabric, network: InfiniBandNetwork | None, now: datetime) -> Condition:
    limited = find_condition(network.status.conditions, DEFAULT_LIMITED) if network is not None else None
    if limited is None:
        message = f"Nobody has looked yet: {WHO[fabric.spec.manager].format(name=fabric.name)}."
        return condition_of(fabric, DEFAULT_LIMITED, "Unknown", "NotRead", message, now)
    return condition_of(fabric, DEFAULT_LIMITED, limited.status, limited.reason, limited.message, now)


def _unambiguous(fabric: InfiniBandFabric, compiled: Compiled, now: datetime) -> Condition:
    type_ = "PortsUnambiguous"
    if compiled.doubled:
        message = (
            f"Several Servers have registered {some(compiled.doubled, NAMED)}, and none of them gets a partition for "
            "it: correct spec.infinibandPorts of those whose card it is not."
        )
        return condition_of(fabric, type_, False, "RegisteredTwice", message, now)
    if compiled.shared_of_servers:
        message = (
            f"spec.sharedGuids names {some(compiled.shared_of_servers, NAMED)}, which a Server has registered: it is "
            "not shared, for it would reach every tenant. Take it out of the one or the other."
        )
        return condition_of(fabric, type_, False, "SharedPortOfServer", message, now)
    return condition_of(fabric, type_, True, "Unambiguous", "No two Servers have registered the same port.", now)


def _has_room(fabric: InfiniBandFabric, compiled: Compiled, now: datetime) -> Condition:
    if not compiled.left_out:
        return condition_of(fabric, "PartitionsFit", True, "Fit", "Every port is in the partitions of its VPCs.", now)
    message = (
        f"Ports are left out of the partitions of VPCs {some(compiled.left_out, NAMED)}: {LEFT_OUT}. Have fewer VPCs "
        "with partitions, or fewer servers attached to them."
    )
    return condition_of(fabric, "PartitionsFit", False, "TooManyMembers", message, now)
