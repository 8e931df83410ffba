"""Who owns what of a status: declared once, by field manager.

Controllers take their part from here. The admission policy that holds each account of the services to its own part of a
Server's status is made of it (`provisioner manifests`), and the table "Who writes what" of ARCHITECTURE.md is compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from provisioner.api import (
    VPC,
    Image,
    InfiniBandFabric,
    NetworkClaim,
    NetworkPool,
    Rack,
    SecurityGroup,
    Server,
    VPCAttachment,
)
from provisioner.api.machinery.meta import Resource
from provisioner.cluster.reconciler import Owned


@dataclass(frozen=True, kw_only=True)
class Owner(Owned):
    """A part of a status. account: the one that writes it, where it is not named as the manager."""

    account: str = ""

    @property
    def parts(self) -> tuple[str, ...]:
        """What the admission policy calls the parts: `address`, `join.tokenID`, `condition Ready`."""
        return (*self.fields, *self.also, *(f"condition {type_}" for type_ in self.conditions))


OWNERS: Final = (
    Owner(
        kind=Server,
        manager="provisioner-inventory",
        fields=("address", "subnetName"),
        conditions=("Discovered", "Accepted"),
    ),
    Owner(
        kind=Server,
        manager="provisioner-boot-controller",
        account="provisioner-orders",
        fields=("order", "bootStage", "bootID", "imageRef", "imageDigest", "nodePoolRef", "nodeRef", "readyTime"),
        also=("lifecycle",),
        conditions=("Booted", "Ready"),
    ),
    Owner(kind=Server, manager="provisioner-power", fields=("power",), conditions=("PoweredOn",)),
    Owner(kind=Server, manager="provisioner-boot", fields=("progress",)),
    Owner(kind=Server, manager="provisioner-boot-discovery", account="provisioner-boot", fields=("discovery",)),
    Owner(
        kind=Server,
        manager="provisioner-join",
        account="provisioner-boot",
        fields=(
            *("join.orderID", "join.bootID", "join.requestKeySHA256", "join.tokenID", "join.fetchedTime"),
            *("join.refusedTime", "join.refusedReason", "attestation", "credentials"),
        ),
        conditions=("Joined", "Attested", "CredentialContested"),
    ),
    Owner(
        kind=Server,
        manager="provisioner-approver",
        fields=(
            *("join.certificateTime", "join.certificateTokenID", "join.certificateRequestName"),
            "join.credentials",
        ),
        conditions=("Joined",),
    ),
    Owner(
        kind=Server,
        manager="provisioner-join-controller",
        account="provisioner-join",
        fields=("nodeUID", "nodeTaints"),
        conditions=("NodePrepared",),
    ),
    Owner(
        kind=Server,
        manager="provisioner-rollout",
        fields=("assignedImageRef", "assignedNodePoolRef", "upgradeFailure"),
    ),
    Owner(kind=Server, manager="provisioner-health", fields=("verification", "lifecycle"), conditions=("Verified",)),
    Owner(kind=Server, manager="provisioner-faults", account="provisioner-health", fields=("faults",)),
    Owner(
        kind=Rack,
        manager="provisioner-inventory",
        fields=("servers", "readyServers", "pendingServers"),
        conditions=("Ready",),
    ),
    Owner(kind=Image, manager="provisioner-image-trust", account="provisioner-orders", conditions=("Verified",)),
    Owner(
        kind=VPC,
        manager="provisioner-network",
        fields=("vni", "attachments", "enforcedAttachments", "peers"),
        conditions=("Ready",),
    ),
    Owner(kind=VPC, manager="provisioner-infiniband", fields=("pkey",), conditions=("PKeyAssigned",)),
    Owner(
        kind=VPCAttachment,
        manager="provisioner-network",
        fields=("dpuRef", "macAddress", "addresses", "gateways", "forwardingState", "networkGeneration"),
        conditions=("Ready",),
    ),
    Owner(kind=SecurityGroup, manager="provisioner-network", fields=("attachments",), conditions=("Ready",)),
    Owner(
        kind=NetworkPool,
        manager="provisioner-network",
        fields=("takenVnis", "quarantinedVnis", "freeVnis"),
        conditions=("Ready",),
    ),
    Owner(kind=NetworkPool, manager="provisioner-infiniband", fields=("takenPkeys", "quarantinedPkeys", "freePkeys")),
    Owner(kind=NetworkClaim, manager="provisioner-network", fields=("releasedTime", "waitsFor")),
    Owner(kind=NetworkClaim, manager="provisioner-infiniband", fields=("releasedTime", "waitsFor")),
    Owner(
        kind=InfiniBandFabric,
        manager="provisioner-infiniband",
        fields=("partitions", "ports", "networkGeneration"),
        conditions=("Ready", "DefaultPartitionLimited", "PortsUnambiguous", "PartitionsFit"),
    ),
)

_BY_NAME: Final[Mapping[tuple[type[Resource], str], Owner]] = {(each.kind, each.manager): each for each in OWNERS}


def owned_by(manager: str, kind: type[Resource]) -> Owner:
    """The part of the status of `kind` that `manager` owns. Raises: KeyError, if none is declared."""
    return _BY_NAME[kind, manager]


def parts_by_account(kind: type[Resource]) -> dict[str, tuple[str, ...]]:
    """What each account may write of the status of `kind`, in the words of the admission policy."""
    found: dict[str, tuple[str, ...]] = {}
    for owner in OWNERS:
        if owner.kind is kind:
            account = owner.account or owner.manager
            found[account] = (*found.get(account, ()), *owner.parts)
    return found
