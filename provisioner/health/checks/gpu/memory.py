"""Memory of the GPUs: ECC errors, rows that are remapped, and modes that change what a job gets. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from provisioner.api.machinery.wording import quantity
from provisioner.api.nodes.facts import GpuFacts
from provisioner.api.pools.gpu_settings import GpuSettings
from provisioner.health.checks.finding import Finding, fine
from provisioner.health.checks.gpu.affected import GpuFault, first_fault


def check_memory(wanted: GpuSettings, gpus: Sequence[GpuFacts]) -> Finding:
    reset = "reboot the server: a GPU remaps bad rows when it is reset"
    most_rows = wanted.max_remapped_rows if wanted.max_remapped_rows is not None else math.inf
    faults = (
        GpuFault(
            reason="RemappingFailed",
            has=lambda each: each.row_remapping == "Failed",
            say=lambda _: "could not remap a bad row of its memory",
            expected="rows that are remapped",
            remedy="replace the GPU",
        ),
        GpuFault(
            reason="UncorrectedErrors",
            has=lambda each: (each.ecc_uncorrected or 0) > wanted.max_uncorrected_errors,
            say=lambda each: f"had {each.ecc_uncorrected} uncorrected ECC errors since its driver loaded",
            expected=f"at most {wanted.max_uncorrected_errors}",
            remedy=f"{reset}; replace a GPU that has them again",
        ),
        GpuFault(
            reason="ResetPending",
            has=lambda each: each.row_remapping == "Pending" or bool(each.pages_retired_pending),
            say=lambda _: "has a bad row or page that it avoids only after a reset",
            expected="none",
            remedy=reset,
        ),
        GpuFault(
            reason="TooManyRemapped",
            has=lambda each: (each.rows_remapped_uncorrectable or 0) > most_rows,
            say=lambda each: (
                f"has remapped {quantity(each.rows_remapped_uncorrectable or 0, 'row')} for uncorrectable errors"
            ),
            expected=f"at most {wanted.max_remapped_rows}",
            remedy="replace the GPU, or correct the pool's spec.verification.gpus.maxRemappedRows",
        ),
        GpuFault(
            reason="WrongEccMode",
            has=lambda each: wanted.ecc != "Any" and each.ecc_enabled not in (None, wanted.ecc == "Enabled"),
            say=lambda each: f"has ECC {'enabled' if each.ecc_enabled else 'disabled'}",
            expected=wanted.ecc,
            remedy=f"on the node: nvidia-smi -e {int(wanted.ecc == 'Enabled')}; then reboot it",
        ),
        GpuFault(
            reason="WrongMigMode",
            has=lambda each: wanted.mig != "Any" and bool(each.mig_enabled) != (wanted.mig == "Enabled"),
            say=lambda each: f"has MIG {'enabled' if each.mig_enabled else 'disabled'}",
            expected=wanted.mig,
            remedy=f"on the node: nvidia-smi -mig {int(wanted.mig == 'Enabled')}; or correct the pool's "
            "spec.verification.gpus.mig",
        ),
    )
    found = first_fault("GPUMemory", gpus, faults)
    return found or fine("GPUMemory", f"no uncorrected error, nothing to remap on {quantity(len(gpus), 'GPU')}")
