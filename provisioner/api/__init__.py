"""The kinds of `provisioner.dev/v1alpha1` as typed dataclasses. Imports nothing else of the project."""

from provisioner.api.images.image import Image
from provisioner.api.machinery.meta import Condition, ObjectMeta, Resource
from provisioner.api.network.dpu_network import DPUNetwork
from provisioner.api.network.infiniband_fabric import InfiniBandFabric
from provisioner.api.network.infiniband_network import InfiniBandNetwork
from provisioner.api.network.network_claim import NetworkClaim
from provisioner.api.network.network_pool import NetworkPool
from provisioner.api.network.security_group import SecurityGroup
from provisioner.api.network.vpc import VPC
from provisioner.api.network.vpc_attachment import VPCAttachment
from provisioner.api.nodes.maintenance import Maintenance
from provisioner.api.pools.node_pool import NodePool
from provisioner.api.servers.address_block import AddressBlock
from provisioner.api.servers.firmware_profile import FirmwareProfile
from provisioner.api.servers.rack import Rack
from provisioner.api.servers.server import Server

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
