"""What joins the GPUs: NVLinks and PCIe. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from provisioner.api.machinery.wording import quantity
from provisioner.api.nodes.facts import GpuFacts
from provisioner.api.pools.gpu_settings import GpuSettings
from provisioner.health.checks.finding import Finding, fine
from provisioner.health.checks.gpu.affected import GpuFault, first_fault


def check_links(wanted: GpuSettings, gpus: Sequence[GpuFacts]) -> Finding:
    cable = "reboot the server; if it stays so: reseat the GPU or its baseboard, look at NVLink bridges and XID 74 "
    none_known = (
        "see whether the driver was loaded without NVLink (on the node: grep NvLinkDisable "
        "/proc/driver/nvidia/params), and what the hypervisor of a virtual machine leaves to it; or correct the pool's "
        "spec.verification.gpus.nvlinks"
    )
    has_nvlinks = any(each.nvlinks_active is not None for each in gpus)
    faults = (
        GpuFault(
            reason="NVLinkDown",
            has=lambda each: wanted.fabric != "Ignored" and wanted.nvlinks is None and bool(each.nvlinks_inactive),
            say=lambda each: f"has NVLinks {_numbers(each.nvlinks_inactive)} down, {each.nvlinks_active} up",
            expected="every NVLink up, or the pool's spec.verification.gpus.nvlinks of them",
            remedy=cable,
        ),
        GpuFault(
            reason="WrongNVLinks",
            has=lambda each: wanted.fabric != "Ignored" and wanted.nvlinks not in (None, each.nvlinks_active or 0),
            say=_count,
            expected=f"{wanted.nvlinks} on each",
            remedy=cable if has_nvlinks else none_known,
        ),
        GpuFault(
            reason="PCIeTooNarrow",
            has=lambda each: (
                each.pcie_width is not None and each.pcie_width < (wanted.pcie_width or each.pcie_max_width or 0)
            ),
            say=lambda each: f"uses {each.pcie_width} PCIe lanes of {each.pcie_max_width or 'unknown'}",
            expected=f"{wanted.pcie_width or 'all'} lanes",
            remedy="reseat the GPU, its riser or its cable; clean the contacts; or correct the pool's "
            "spec.verification.gpus.pcieWidth",
        ),
        GpuFault(
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
    return first_fault("GPULinks", gpus, faults) or fine("GPULinks", f"{links} of {len(gpus)} GPUs as expected")


def _count(gpu: GpuFacts) -> str:
    return (
        "has no NVLinks by NVML" if gpu.nvlinks_active is None else f"has {quantity(gpu.nvlinks_active, 'NVLink')} up"
    )


def _numbers(links: Sequence[int]) -> str:
    return ", ".join(str(link) for link in links[:8]) + (" and more" if len(links) > 8 else "")
