"""What may be wrong with GPUs that answer: their memory, what joins them, what makes them slow. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from provisioner.api.machinery.wording import quantity
from provisioner.api.nodes.facts import GpuFacts
from provisioner.api.pools.gpu_settings import GpuSettings
from provisioner.health.checks.finding import Finding, fine, wrong


@dataclass(frozen=True, kw_only=True)
class _Fault:
    """Something that may be wrong with GPUs. has: whether it is with one. say: what is said of that one."""

    reason: str
    has: Callable[[GpuFacts], bool]
    say: Callable[[GpuFacts], str]
    expected: str
    remedy: str


def _first(name: str, gpus: Sequence[GpuFacts], faults: Iterable[_Fault]) -> Finding | None:
    """The first of `faults` that any of these GPUs has, with those that have it, each by its address."""
    for fault in faults:
        found = [each for each in gpus if fault.has(each)]
        if found:
            told = "; ".join(
                f"GPU {each.pci_address or each.uuid or 'unknown'} {fault.say(each)}" for each in found[:4]
            )
            more = f"; and {len(found) - 4} more" if len(found) > 4 else ""
            return wrong(name, fault.reason, observed=told + more, expected=fault.expected, remedy=fault.remedy)
    return None


def check_memory(wanted: GpuSettings, gpus: Sequence[GpuFacts]) -> Finding:
    """ECC errors, rows that are remapped, and modes that change what a job gets."""
    reset = "reboot the server: a GPU remaps bad rows when it is reset"
    most_rows = wanted.max_remapped_rows if wanted.max_remapped_rows is not None else math.inf
    faults = (
        _Fault(
            reason="RemappingFailed",
            has=lambda each: each.row_remapping == "Failed",
            say=lambda _: "could not remap a bad row of its memory",
            expected="rows that are remapped",
            remedy="replace the GPU",
        ),
        _Fault(
            reason="UncorrectedErrors",
            has=lambda each: (each.ecc_uncorrected or 0) > wanted.max_uncorrected_errors,
            say=lambda each: f"had {each.ecc_uncorrected} uncorrected ECC errors since its driver loaded",
            expected=f"at most {wanted.max_uncorrected_errors}",
            remedy=f"{reset}; replace a GPU that has them again",
        ),
        _Fault(
            reason="ResetPending",
            has=lambda each: each.row_remapping == "Pending" or bool(each.pages_retired_pending),
            say=lambda _: "has a bad row or page that it avoids only after a reset",
            expected="none",
            remedy=reset,
        ),
        _Fault(
            reason="TooManyRemapped",
            has=lambda each: (each.rows_remapped_uncorrectable or 0) > most_rows,
            say=lambda each: (
                f"has remapped {quantity(each.rows_remapped_uncorrectable or 0, 'row')} for uncorrectable errors"
            ),
            expected=f"at most {wanted.max_remapped_rows}",
            remedy="replace the GPU, or correct the pool's spec.verification.gpus.maxRemappedRows",
        ),
        _Fault(
            reason="WrongEccMode",
            has=lambda each: wanted.ecc != "Any" and each.ecc_enabled not in (None, wanted.ecc == "Enabled"),
            say=lambda each: f"has ECC {'enabled' if each.ecc_enabled else 'disabled'}",
            expected=wanted.ecc,
            remedy=f"on the node: nvidia-smi -e {int(wanted.ecc == 'Enabled')}; then reboot it",
        ),
        _Fault(
            reason="WrongMigMode",
            has=lambda each: wanted.mig != "Any" and bool(each.mig_enabled) != (wanted.mig == "Enabled"),
            say=lambda each: f"has MIG {'enabled' if each.mig_enabled else 'disabled'}",
            expected=wanted.mig,
            remedy=f"on the node: nvidia-smi -mig {int(wanted.mig == 'Enabled')}; or correct the pool's "
            "spec.verification.gpus.mig",
        ),
    )
    found = _first("GPUMemory", gpus, faults)
    return found or fine("GPUMemory", f"no uncorrected error, nothing to remap on {quantity(len(gpus), 'GPU')}")


def check_links(wanted: GpuSettings, gpus: Sequence[GpuFacts]) -> Finding:
    """What joins the GPUs: NVLinks and PCIe."""
    cable = "reboot the server; if it stays so: reseat the GPU or its baseboard, look at NVLink bridges and XID 74 "
    none_known = (
        "see whether the driver was loaded without NVLink (on the node: grep NvLinkDisable "
        "/proc/driver/nvidia/params), and what the hypervisor of a virtual machine leaves to it; or correct the pool's "
        "spec.verification.gpus.nvlinks"
    )
    has_nvlinks = any(each.nvlinks_active is not None for each in gpus)
    faults = (
        _Fault(
            reason="NVLinkDown",
            has=lambda each: wanted.fabric != "Ignored" and wanted.nvlinks is None and bool(each.nvlinks_inactive),
            say=lambda each: f"has NVLinks {_numbers(each.nvlinks_inactive)} down, {each.nvlinks_active} up",
            expected="every NVLink up, or the pool's spec.verification.gpus.nvlinks of them",
            remedy=cable,
        ),
        _Fault(
            reason="WrongNVLinks",
            has=lambda each: wanted.fabric != "Ignored" and wanted.nvlinks not in (None, each.nvlinks_active or 0),
            say=_count,
            expected=f"{wanted.nvlinks} on each",
            remedy=cable if has_nvlinks else none_known,
        ),
        _Fault(
            reason="PCIeTooNarrow",
            has=lambda each: (
                each.pcie_width is not None and each.pcie_width < (wanted.pcie_width or each.pcie_max_width or 0)
            ),
            say=lambda each: f"uses {each.pcie_width} PCIe lanes of {each.pcie_max_width or 'unknown'}",
            expected=f"{wanted.pcie_width or 'all'} lanes",
            remedy="reseat the GPU, its riser or its cable; clean the contacts; or correct the pool's "
            "spec.verification.gpus.pcieWidth",
        ),
        _Fault(
            reason="PCIeTooOld",
            has=lambda each: (
                wanted.pcie_generation is not None and (each.pcie_max_generation or 0) < wanted.pcie_generation
            ),
            say=lambda each: f"and its slot can do PCIe generation {each.pcie_max_generation or 'unknown'}",
            expected=f"at least {wanted.pcie_generation}",
            remedy="look at the slot's settings in the firmware, and at retimers; or correct the pool's "
            "spec.verification.gpus.pcieGeneration",
        ),
    )
    links = "NVLinks and PCIe" if has_nvlinks else "no NVLinks by NVML, PCIe"
    return _first("GPULinks", gpus, faults) or fine("GPULinks", f"{links} of {len(gpus)} GPUs as expected")


def _count(gpu: GpuFacts) -> str:
    return (
        "has no NVLinks by NVML" if gpu.nvlinks_active is None else f"has {quantity(gpu.nvlinks_active, 'NVLink')} up"
    )


def _numbers(links: Sequence[int]) -> str:
    return ", ".join(str(link) for link in links[:8]) + (" and more" if len(links) > 8 else "")


def check_clocks(wanted: GpuSettings, gpus: Sequence[GpuFacts]) -> Finding:
    """What makes a GPU slow: heat, power brakes, power caps and limited clocks."""
    defaults = sorted({f"{each.power_limit_default_watts} W" for each in gpus if each.power_limit_default_watts})
    limit = f"at least {wanted.power_limit_watts} W" if wanted.power_limit_watts is not None else None
    faults = (
        _Fault(
            reason="SlowedDown",
            has=lambda each: bool(each.slowdowns) and wanted.slowdowns == "Fail",
            say=lambda each: f"is slowed down: {', '.join(each.slowdowns)}",
            expected="clocks that neither heat nor a power brake lowers",
            remedy="HwThermal, SwThermal: look at fans, airflow, coolant and inlet temperature; HwPowerBrake, "
            "HwSlowdown: look at power supplies and cables (the BMC's log)",
        ),
        _Fault(
            reason="PowerCapped",
            has=lambda each: (
                each.power_limit_watts is not None
                and each.power_limit_watts < (wanted.power_limit_watts or each.power_limit_default_watts or 0)
            ),
            say=lambda each: f"may draw {each.power_limit_watts} W",
            expected=limit or f"the default limit, {', '.join(defaults)}",
            remedy="see who lowered it (on the node: nvidia-smi -q -d POWER; the BMC's power capping), or set the "
            "pool's spec.verification.gpus.powerLimitWatts",
        ),
        _Fault(
            reason="ClockTooLow",
            has=lambda each: wanted.sm_clock_mhz is not None and (each.sm_clock_max_mhz or 0) < wanted.sm_clock_mhz,
            say=lambda each: f"can reach {each.sm_clock_max_mhz or 'unknown'} MHz",
            expected=f"at least {wanted.sm_clock_mhz} MHz",
            remedy="another model of GPU, or clocks that were limited (on the node: nvidia-smi -q -d CLOCK)",
        ),
    )
    found = _first("GPUClocks", gpus, faults)
    return found or fine("GPUClocks", f"clocks and power limits of {quantity(len(gpus), 'GPU')} as expected")
