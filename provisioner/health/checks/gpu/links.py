"""What joins the GPUs: NVLinks and PCIe. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from provisioner.api.machinery.wording import quantity
from provisioner.api.nodes.facts import GpuFacts
from provisioner.api.pools.gpu_settings import GpuSettings
from provisioner.health.checks.finding import Finding, fine
from provisioner.health.checks.gpu.affected import some


def check_links(wanted: GpuSettings, gpus: Sequence[GpuFacts]) -> Finding:
    cable = "reboot the server; if it stays so: reseat the GPU or its baseboard, look at NVLink bridges and XID 74 "
    none_known = (
        "see whether the driver was loaded without NVLink (on the node: grep NvLinkDisable "
        "/proc/driver/nvidia/params), and what the hypervisor of a virtual machine leaves to it; or correct the pool's "
        "spec.verification.gpus.nvlinks"
    )
    has_nvlinks = any(each.nvlinks_active is not None for each in gpus)
    found = None
    if wanted.fabric != "Ignored":
        found = some(
            "GPULinks",
            "NVLinkDown",
            [each for each in gpus if each.nvlinks_inactive and wanted.nvlinks is None],
            lambda each: f"has NVLinks {_numbers(each.nvlinks_inactive)} down, {each.nvlinks_active} up",
            expected="every NVLink up, or the pool's spec.verification.gpus.nvlinks of them",
            remedy=cable,
        ) or some(
            "GPULinks",
            "WrongNVLinks",
            [each for each in gpus if wanted.nvlinks is not None and (each.nvlinks_active or 0) != wanted.nvlinks],
            _count,
            expected=f"{wanted.nvlinks} on each",
            remedy=cable if has_nvlinks else none_known,
        )
    found = (
        found
        or some(
            "GPULinks",
            "PCIeTooNarrow",
            [
                each
                for each in gpus
                if each.pcie_width is not None and each.pcie_width < (wanted.pcie_width or each.pcie_max_width or 0)
            ],
            lambda each: f"uses {each.pcie_width} PCIe lanes of {each.pcie_max_width or 'unknown'}",
            expected=f"{wanted.pcie_width or 'all'} lanes",
            remedy="reseat the GPU, its riser or its cable; clean the contacts; or correct the pool's "
            "spec.verification.gpus.pcieWidth",
        )
        or some(
            "GPULinks",
            "PCIeTooOld",
            [
                each
                for each in gpus
                if wanted.pcie_generation is not None and (each.pcie_max_generation or 0) < wanted.pcie_generation
            ],
            lambda each: f"and its slot can do PCIe generation {each.pcie_max_generation or 'unknown'}",
            expected=f"at least {wanted.pcie_generation}",
            remedy="look at the slot's settings in the firmware, and at retimers; or correct the pool's "
            "spec.verification.gpus.pcieGeneration",
        )
    )
    links = "NVLinks and PCIe" if has_nvlinks else "no NVLinks by NVML, PCIe"
    return found or fine("GPULinks", f"{links} of {len(gpus)} GPUs as expected")


def _count(gpu: GpuFacts) -> str:
    return (
        "has no NVLinks by NVML" if gpu.nvlinks_active is None else f"has {quantity(gpu.nvlinks_active, 'NVLink')} up"
    )


def _numbers(links: Sequence[int]) -> str:
    return ", ".join(str(link) for link in links[:8]) + (" and more" if len(links) > 8 else "")
