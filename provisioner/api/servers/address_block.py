"""AddressBlock: which server has claimed which of 256 addresses. An address is a server's own once this says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from provisioner.api.machinery.meta import NoStatus, Resource
from provisioner.api.machinery.schema import NAME_PATTERN, CelRule, Column, FieldSchema, Kind, described

BLOCK_SIZE: Final = 256


@dataclass(frozen=True, kw_only=True)
class AddressBlockSpec:
    """Claims, written by the inventory controller alone."""

    revision: int = described(
        "How often it was written: a claim that is made anew changes the resourceVersion, too.", minimum=1
    )
    claims: dict[str, str] = described(
        "Server by address. The server's status.address follows; a claim goes when its server is gone or has moved.",
        default_factory=dict,
        max_properties=BLOCK_SIZE,
        item=FieldSchema(doc="Name of the Server.", max_length=63, pattern=NAME_PATTERN),
    )


@dataclass(frozen=True, kw_only=True)
class AddressBlock(Resource):
    KIND: ClassVar[Kind] = Kind(
        kind="AddressBlock",
        short="addressblock",
        description="Which server has claimed which of the 256 addresses from the one that is its name.",
        columns=(
            Column("Writes", ".spec.revision", type="integer"),
            Column("Age", ".metadata.creationTimestamp", type="date"),
        ),
        rules=(
            CelRule(
                "isIP(self.metadata.name) && self.metadata.name.endsWith('.0')",
                "an AddressBlock is named after its first address, such as 10.80.0.0",
            ),
        ),
    )
    spec: AddressBlockSpec
    status: NoStatus = NoStatus()


def block_name(address: str) -> str:
    """Name of the block that holds the IPv4 `address`: `10.80.3.17` → `10.80.3.0`."""
    return address.rpartition(".")[0] + ".0"


def is_of_block(address: str, block: str) -> bool:
    """Whether the block of that name holds `address`. Anything may stand in a block: nobody else looks at its keys."""
    host = address.rpartition(".")[2]
    canonical = (
        host.isascii() and host.isdigit() and len(host) <= 3 and str(int(host)) == host and int(host) < BLOCK_SIZE
    )
    return canonical and block_name(address) == block
