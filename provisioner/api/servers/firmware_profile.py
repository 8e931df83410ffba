"""FirmwareProfile: measurements that the firmware of a model of servers is expected to leave in the TPM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from provisioner.api.machinery.meta import NoStatus, Resource
from provisioner.api.machinery.rules import PRINTABLE_RULES
from provisioner.api.machinery.schema import CelRule, Column, FieldSchema, Kind, described, listed

LEARNED_PREFIX: Final = "learned-"
"""Of the names of profiles that boot hosts write; they are not approved."""
MAX_EVENTS: Final = 512
MAX_JUDGED: Final = 8
_JUDGED: Final = "[0, 1, 2, 3, 7]"
_CONTENT_STAYS: Final = " && ".join(
    f"has(self.spec.{name}) == has(oldSelf.spec.{name}) && (!has(self.spec.{name}) || "
    f"self.spec.{name} == oldSelf.spec.{name})"
    for name in ("judged", "startupLocality", "events")
)
"""All that the name is the digest of; whether it is approved is none of it."""


@dataclass(frozen=True, kw_only=True)
class FirmwareEvent:
    """One measurement of the firmware."""

    pcr: int = described(
        "Platform configuration register that it extends: 0 firmware, 1 its settings, 2 and 3 option ROMs, 4 programs "
        "that it starts, such as iPXE, 7 Secure Boot.",
        minimum=0,
        maximum=7,
    )
    digest: str = described("SHA-256 of what was measured, 64 hexadecimal digits.", pattern="^[0-9a-f]{64}$")
    what: str = described(
        "What it is, for a person; nothing is decided on it.", max_length=160, default="", rules=PRINTABLE_RULES
    )


@dataclass(frozen=True, kw_only=True)
class FirmwareProfileSpec:
    """What was learned of one machine, and whether a person has approved it."""

    RULES: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "!has(self.approved) || !self.approved || has(self.judged) && self.judged.exists(p, p == 0)",
            "a profile that does not judge register 0 would let any firmware in: name it in spec.judged before you "
            "approve the profile",
            field=".judged",
        ),
    )
    approved: bool = described(
        "Whether machines whose firmware measures this are let in. Boot hosts write what they learn with false; an "
        "administrator who has compared it with the vendor's values, or trusts the machine, sets it.",
        default=False,
    )
    judged: tuple[int, ...] = listed(
        "Registers whose events must all be these, in their order: of 0, 1, 2, 3 and 7. The programs of 4 are always "
        "judged. To leave out one that differs from server to server of the model, copy the profile under a name of "
        f"your own: one that is named {LEARNED_PREFIX}… cannot be changed, and counts only as it was learned.",
        max_items=MAX_JUDGED,
        list_set=True,
        item=FieldSchema(doc="Number of a register.", minimum=0, maximum=7),
        rules=(
            CelRule(
                f"self.all(p, p in {_JUDGED})",
                f"registers that a profile judges are of {_JUDGED}: what others hold differs from boot to boot, and "
                "the programs of 4 are always judged",
            ),
        ),
    )
    startup_locality: int = described("Locality by which register 0 begins.", default=0, minimum=0, maximum=4)
    events: tuple[FirmwareEvent, ...] = listed(
        "What is measured, in its order; of register 4 the boot programs alone, as the kernel is the Image's.",
        max_items=MAX_EVENTS,
    )


@dataclass(frozen=True, kw_only=True)
class FirmwareProfile(Resource):
    KIND: ClassVar[Kind] = Kind(
        kind="FirmwareProfile",
        short="fwp",
        description="Measurements that the firmware of a model of servers is expected to leave in the TPM.",
        columns=(
            Column("Approved", ".spec.approved", type="boolean"),
            Column("Judged", ".spec.judged"),
            Column("Age", ".metadata.creationTimestamp", type="date"),
        ),
        rules=(
            CelRule("self.metadata.name.size() <= 63", "the name of a profile has at most 63 characters"),
            CelRule(
                f"!self.metadata.name.startsWith('{LEARNED_PREFIX}') || {_CONTENT_STAYS}",
                "the name of a learned profile is the digest of its content, which cannot be changed: copy it under a "
                f"name of your own that does not begin with {LEARNED_PREFIX}, and approve the copy",
            ),
        ),
    )
    spec: FirmwareProfileSpec
    status: NoStatus = NoStatus()
