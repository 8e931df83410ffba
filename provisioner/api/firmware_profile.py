"""FirmwareProfile: what the firmware of a model of servers measures when it boots as it shall."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from provisioner.api.attestation import BOOT_PROGRAM, MAX_BOOT_PROGRAMS, PCR_VALUE
from provisioner.api.meta import ObjectMeta, Resource
from provisioner.api.schema import Column, Kind, Rule, described

FIRMWARE_PCRS = ("0", "1", "2", "3", "5", "6", "7")
"""Registers that a profile may speak of. What the firmware starts is in 4, and differs with the Image: see
`boot_programs`; what the kernel extends is in 8 and above."""


@dataclass(frozen=True, kw_only=True)
class FirmwareProfileSpec:
    """Values that a person has looked at, or has to look at yet."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.pcrs) && self.pcrs.size() > 0 || !has(self.approved) || !self.approved",
            "a profile without registers would approve any firmware: write the registers that must agree in spec.pcrs",
            field=".pcrs",
        ),
    )
    approved: bool = described(
        "Whether machines whose firmware measures this are let in. An administrator sets it.", default=False
    )
    pcrs: dict[str, str] = described(
        "Value of each register that must agree, by its number: of 0 (firmware), 1 (its settings), 2 and 3 (option "
        "ROMs), 5, 6 and 7 (Secure Boot's keys and whether it is on). Leave out those that differ from server to "
        "server of the model.",
        default_factory=dict,
        max_properties=len(FIRMWARE_PCRS),
        item=PCR_VALUE,
        rules=(
            Rule(
                f"self.all(k, k in {list(FIRMWARE_PCRS)})",
                f"registers are named by their numbers, of {', '.join(FIRMWARE_PCRS)}: what is started is in 4, see "
                "spec.bootPrograms",
            ),
        ),
    )
    boot_programs: tuple[str, ...] = described(
        "Programs beside the Image's kernel that the firmware may start, such as iPXE: their Authenticode SHA-256.",
        default=(),
        max_items=MAX_BOOT_PROGRAMS,
        list_set=True,
        item=BOOT_PROGRAM,
    )


@dataclass(frozen=True, kw_only=True)
class FirmwareProfileStatus:
    """Nothing is observed of it."""


@dataclass(frozen=True, kw_only=True)
class FirmwareProfile(Resource):
    KIND: ClassVar[Kind] = Kind(
        kind="FirmwareProfile",
        plural="firmwareprofiles",
        short="fwp",
        description="What the firmware of servers measures into their TPMs when it is as it shall be.",
        columns=(
            Column("Approved", ".spec.approved", type="boolean"),
            Column("PCR0", ".spec.pcrs.0", priority=1),
            Column("PCR7", ".spec.pcrs.7", priority=1),
            Column("Age", ".metadata.creationTimestamp", type="date"),
        ),
        rules=(Rule("self.metadata.name.size() <= 63", "the name of a profile has at most 63 characters"),),
    )
    metadata: ObjectMeta
    spec: FirmwareProfileSpec
    status: FirmwareProfileStatus = FirmwareProfileStatus()
