"""The kinds of `provisioner.dev/v1alpha1` as typed dataclasses. Imports nothing else of the project."""

from provisioner.api.address_block import AddressBlock
from provisioner.api.dpu_network import DPUNetwork
from provisioner.api.firmware_profile import FirmwareProfile
from provisioner.api.image import Image
from provisioner.api.infiniband_fabric import InfiniBandFabric
from provisioner.api.infiniband_network import InfiniBandNetwork
from provisioner.api.maintenance import Maintenance
from provisioner.api.meta import Condition, ObjectMeta, Resource
from provisioner.api.network_claim import NetworkClaim
from provisioner.api.network_pool import NetworkPool
from provisioner.api.node_pool import NodePool
from provisioner.api.rack import Rack
from provisioner.api.security_group import SecurityGroup
from provisioner.api.server import Server
from provisioner.api.vpc import VPC
from provisioner.api.vpc_attachment import VPCAttachment

KINDS: tuple[type[Resource], ...] = (
    Rack,
    Server,
    Image,
    NodePool,
    Maintenance,
    AddressBlock,
    VPC,
    VPCAttachment,
    SecurityGroup,
    NetworkPool,
    NetworkClaim,
    DPUNetwork,
    InfiniBandFabric,
    InfiniBandNetwork,
    FirmwareProfile,
)

__all__ = [
    "KINDS",
    "VPC",
    "AddressBlock",
    "Condition",
    "DPUNetwork",
    "FirmwareProfile",
    "Image",
    "InfiniBandFabric",
    "InfiniBandNetwork",
    "Maintenance",
    "NetworkClaim",
    "NetworkPool",
    "NodePool",
    "ObjectMeta",
    "Rack",
    "Resource",
    "SecurityGroup",
    "Server",
    "VPCAttachment",
]
