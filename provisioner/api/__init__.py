"""The kinds of `provisioner.dev/v1alpha1` as typed dataclasses. Imports nothing else of the project."""

from provisioner.api.address_block import AddressBlock
from provisioner.api.dpu import DPU
from provisioner.api.image import Image
from provisioner.api.maintenance import Maintenance
from provisioner.api.meta import Condition, ObjectMeta, Resource
from provisioner.api.node_pool import NodePool
from provisioner.api.rack import Rack
from provisioner.api.server import Server

KINDS: tuple[type[Resource], ...] = (Rack, Server, DPU, Image, NodePool, Maintenance, AddressBlock)

__all__ = [
    "DPU",
    "KINDS",
    "AddressBlock",
    "Condition",
    "Image",
    "Maintenance",
    "NodePool",
    "ObjectMeta",
    "Rack",
    "Resource",
    "Server",
]
