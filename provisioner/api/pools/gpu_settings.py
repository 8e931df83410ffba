"""What a pool asks of the GPUs of its servers, beyond how many there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from provisioner.api.machinery.schema import CelRule, FieldSchema, described

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
    driver_version: str | None = described(
        "Version of the driver, whole (550.163.01) or its beginning (550, 550.163). Any if absent.",
        default=None,
        max_length=20,
        pattern=r"^[0-9]{3,4}(\.[0-9]{1,4}){0,2}$",
    )
    nvlinks: int | None = described(
        "NVLinks that each GPU must have active, exactly. If absent, none may be inactive.",
        default=None,
        minimum=0,
        maximum=36,
    )
    fabric: Literal["IfPresent", "Required", "Ignored"] = described(
        "Whether GPUs must have registered with an NVLink fabric (fabricmanager, nvlsm): where switches or GPUs say "
        "that there is one; always; or not.",
        default="IfPresent",
        server_default="IfPresent",
    )
    pcie_generation: int | None = described(
        "Generation of PCIe that GPU and slot must be able to do together, at least.",
        default=None,
        minimum=1,
        maximum=8,
    )
    pcie_width: int | None = described(
        "Lanes of PCIe that each GPU must use, at least; all that GPU and slot have if absent.",
        default=None,
        minimum=1,
        maximum=32,
        rules=(
            CelRule(
                "self in [1, 2, 4, 8, 12, 16, 32]", "a PCIe link has 1, 2, 4, 8, 12, 16 or 32 lanes: set one of these"
            ),
        ),
    )
    ecc: Literal["Enabled", "Disabled", "Any"] = described(
        "Whether memory must be protected by ECC, on GPUs that can.", default="Enabled", server_default="Enabled"
    )
    max_uncorrected_errors: int = described(
        "Uncorrected ECC errors that a GPU may have had since its driver loaded.",
        default=0,
        server_default=0,
        minimum=0,
    )
    max_remapped_rows: int | None = described(
        "Rows of memory that a GPU may have remapped in its life for uncorrectable errors. Any number if absent.",
        default=None,
        minimum=0,
        maximum=512,
    )
    power_limit_watts: int | None = described(
        "Power limit that each GPU must have at least; its default limit if absent.",
        default=None,
        minimum=1,
        maximum=10000,
    )
    sm_clock_mhz: int | None = described(
        "Clock of its multiprocessors that each GPU must be able to reach, at least.",
        default=None,
        minimum=1,
        maximum=10000,
    )
    slowdowns: Literal["Fail", "Ignore"] = described(
        "Whether a GPU that is slowed down by heat, or by a power brake, fails.", default="Fail", server_default="Fail"
    )
    mig: Literal["Enabled", "Disabled", "Any"] = described(
        "Whether GPUs must be in MIG mode.", default="Any", server_default="Any"
    )
    ignored_xids: tuple[int, ...] = described(
        "XIDs, and SXids of NVSwitches, that never fail, whatever docs/gpus.md says of them.",
        default=(),
        max_items=64,
        list_set=True,
        item=_XID,
    )
    failing_xids: tuple[int, ...] = described(
        "XIDs and SXids that fail though docs/gpus.md says that they do not, or does not know them.",
        default=(),
        max_items=64,
        list_set=True,
        item=_XID,
    )
