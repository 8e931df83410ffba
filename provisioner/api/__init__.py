"""The kinds of `provisioner.dev/v1alpha1` as typed dataclasses. Imports nothing else of the project."""

from provisioner.api.images.image import Image as Image
from provisioner.api.machinery.meta import Condition as Condition
from provisioner.api.machinery.meta import ObjectMeta as ObjectMeta
from provisioner.api.machinery.meta import Resource as Resource
from provisioner.api.network.dpu_network import DPUNetwork as DPUNetwork
from provisioner.api.network.infiniband_fabric import InfiniBandFabric as InfiniBandFabric
from provisioner.api.network.infiniband_network import InfiniBandNetwork as InfiniBandNetwork
from provisioner.api.network.network_claim import NetworkClaim as NetworkClaim
from provisioner.api.network.network_pool import NetworkPool as NetworkPool
from provisioner.api.network.security_group import SecurityGroup as SecurityGroup
from provisioner.api.network.vpc import VPC as VPC
from provisioner.api.network.vpc_attachment import VPCAttachment as VPCAttachment
from provisioner.api.nodes.maintenance import Maintenance as Maintenance
from provisioner.api.pools.node_pool import NodePool as NodePool
from provisioner.api.servers.address_block import AddressBlock as AddressBlock
from provisioner.api.servers.firmware_profile import FirmwareProfile as FirmwareProfile
from provisioner.api.servers.rack import Rack as Rack
from provisioner.api.servers.server import Server as Server

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
