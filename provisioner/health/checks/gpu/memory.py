"""Memory of the GPUs: ECC errors, rows that are remapped, and modes that change what a job gets. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from provisioner.api.machinery.wording import quantity
from provisioner.api.nodes.facts import GpuFacts
from provisioner.api.pools.gpu_settings import GpuSettings
from provisioner.health.checks.finding import Finding, fine
from provisioner.health.checks.gpu.affected import some


def check_memory(wanted: GpuSettings, gpus: Sequence[GpuFacts]) -> Finding:
    reset = "reboot the server: a GPU remaps bad rows when it is reset"
    found = (
        some(
            "GPUMemory",
            "RemappingFailed",
            [each for each in gpus if each.row_remapping == "Failed"],
            lambda _: "could not remap a bad row of its memory",
            expected="rows that are remapped",
            remedy="replace the GPU",
        )
        or some(
            "GPUMemory",
            "UncorrectedErrors",
            [each for each in gpus if (each.ecc_uncorrected or 0) > wanted.max_uncorrected_errors],
            lambda each: f"had {each.ecc_uncorrected} uncorrected ECC errors since its driver loaded",
            expected=f"at most {wanted.max_uncorrected_errors}",
            remedy=f"{reset}; replace a GPU that has them again",
        )
        or some(
            "GPUMemory",
            "ResetPending",
            [each for each in gpus if each.row_remapping == "Pending" or each.pages_retired_pending],
            lambda _: "has a bad row or page that it avoids only after a reset",
            expected="none",
            remedy=reset,
        )
        or some(
            "GPUMemory",
            "TooManyRemapped",
            [
                each
                for each in gpus
                if wanted.max_remapped_rows is not None
                and (each.rows_remapped_uncorrectable or 0) > wanted.max_remapped_rows
            ],
            lambda each: (
                f"has remapped {quantity(each.rows_remapped_uncorrectable or 0, 'row')} for uncorrectable errors"
            ),
            expected=f"at most {wanted.max_remapped_rows}",
            remedy="replace the GPU, or correct the pool's spec.verification.gpus.maxRemappedRows",
        )
        or some(
            "GPUMemory",
            "WrongEccMode",
            [each for each in gpus if wanted.ecc != "Any" and each.ecc_enabled not in (None, wanted.ecc == "Enabled")],
            lambda each: f"has ECC {'enabled' if each.ecc_enabled else 'disabled'}",
            expected=wanted.ecc,
            remedy=f"on the node: nvidia-smi -e {int(wanted.ecc == 'Enabled')}; then reboot it",
        )
        or some(
            "GPUMemory",
            "WrongMigMode",
            [each for each in gpus if wanted.mig != "Any" and bool(each.mig_enabled) != (wanted.mig == "Enabled")],
            lambda each: f"has MIG {'enabled' if each.mig_enabled else 'disabled'}",
            expected=wanted.mig,
            remedy=f"on the node: nvidia-smi -mig {int(wanted.mig == 'Enabled')}; or correct the pool's "
            "spec.verification.gpus.mig",
        )
    )
    return found or fine("GPUMemory", f"no uncorrected error, nothing to remap on {quantity(len(gpus), 'GPU')}")
