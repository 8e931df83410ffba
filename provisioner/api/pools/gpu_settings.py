"""What a pool asks of the GPUs of its servers, beyond how many there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from provisioner.api.machinery.schema import CelRule, FieldSchema, described, listed, optional

_XID = FieldSchema(doc="Number of an XID.", minimum=1, maximum=65535)


@dataclass(frozen=True, kw_only=True)
class GpuSettings:
    """What GPUs of NVIDIA's must be like, by NVML and the kernel log. docs/gpus.md tells of each check."""

    RULES: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "!has(self.ignoredXids) || !has(self.failingXids) || !self.ignoredXids.exists(x, x in self.failingXids)",
            "an XID is in both ignoredXids and failingXids: leave it in one of them",
            field=".failingXids",
        ),
        CelRule(
            "!has(self.fabric) || self.fabric != 'Ignored' || !has(self.nvlinks)",
            "nvlinks asks for NVLinks and fabric Ignored says that nothing of them counts: remove one of them",
            field=".nvlinks",
        ),
    )
    driver_version: str | None = optional(
        "Version of the driver, whole (550.163.01) or its beginning (550, 550.163). Any if absent.",
        max_length=20,
        pattern=r"^[0-9]{3,4}(\.[0-9]{1,4}){0,2}$",
    )
    nvlinks: int | None = optional(
        "NVLinks that each GPU must have active, exactly. If absent, none may be inactive.", minimum=0, maximum=36
    )
    fabric: Literal["IfPresent", "Required", "Ignored"] = described(
        "Whether GPUs must have registered with an NVLink fabric (fabricmanager, nvlsm): where switches or GPUs say "
        "that there is one; always; or not.",
        server_default="IfPresent",
    )
    pcie_generation: int | None = optional(
        "Generation of PCIe that GPU and slot must be able to do together, at least.", minimum=1, maximum=8
    )
    pcie_width: int | None = optional(
        "Lanes of PCIe that each GPU must use, at least; all that GPU and slot have if absent.",
        minimum=1,
        maximum=32,
        rules=(
            CelRule(
                "self in [1, 2, 4, 8, 12, 16, 32]", "a PCIe link has 1, 2, 4, 8, 12, 16 or 32 lanes: set one of these"
            ),
        ),
    )
    ecc: Literal["Enabled", "Disabled", "Any"] = described(
        "Whether memory must be protected by ECC, on GPUs that can.", server_default="Enabled"
    )
    max_uncorrected_errors: int = described(
        "Uncorrected ECC errors that a GPU may have had since its driver loaded.", server_default=0, minimum=0
    )
    max_remapped_rows: int | None = optional(
        "Rows of memory that a GPU may have remapped in its life for uncorrectable errors. Any number if absent.",
        minimum=0,
        maximum=512,
    )
    power_limit_watts: int | None = optional(
        "Power limit that each GPU must have at least; its default limit if absent.", minimum=1, maximum=10000
    )
    sm_clock_mhz: int | None = optional(
        "Clock of its multiprocessors that each GPU must be able to reach, at least.", minimum=1, maximum=10000
    )
    slowdowns: Literal["Fail", "Ignore"] = described(
        "Whether a GPU that is slowed down by heat, or by a power brake, fails.", server_default="Fail"
    )
    mig: Literal["Enabled", "Disabled", "Any"] = described("Whether GPUs must be in MIG mode.", server_default="Any")
    ignored_xids: tuple[int, ...] = listed(
        "XIDs, and SXids of NVSwitches, that never fail, whatever docs/gpus.md says of them.",
        max_items=64,
        list_set=True,
        item=_XID,
    )
    failing_xids: tuple[int, ...] = listed(
        "XIDs and SXids that fail though docs/gpus.md says that they do not, or does not know them.",
        max_items=64,
        list_set=True,
        item=_XID,
    )
