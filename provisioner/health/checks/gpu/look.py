"""All that is checked of NVIDIA's GPUs, beyond that they are on PCI. Pure.

How GPUs are is only asked where the driver runs: what is missing, lost or does not answer is `driver`'s to tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from provisioner.api.machinery.wording import quantity
from provisioner.api.nodes.facts import GpuFacts, NodeFacts
from provisioner.api.pools.gpu_settings import GpuSettings
from provisioner.api.pools.pool_settings import ExpectedGpus, VerificationSettings
from provisioner.health.checks.finding import Finding, fine
from provisioner.health.checks.gpu.affected import GpuFault, first_fault
from provisioner.health.checks.gpu.driver import check_driver
from provisioner.health.checks.gpu.errors import check_errors
from provisioner.health.checks.gpu.fabric import check_fabric
from provisioner.health.checks.gpu.links import check_links
from provisioner.health.checks.gpu.memory import check_memory
from provisioner.health.checks.hardware import expected_gpus

NVIDIA: Final = "10de"


def check_clocks(wanted: GpuSettings, gpus: Sequence[GpuFacts]) -> Finding:
    """What makes a GPU slow: heat, power brakes, power caps and limited clocks."""
    defaults = sorted({f"{each.power_limit_default_watts} W" for each in gpus if each.power_limit_default_watts})
    limit = f"at least {wanted.power_limit_watts} W" if wanted.power_limit_watts is not None else None
    faults = (
        GpuFault(
            reason="SlowedDown",
            has=lambda each: bool(each.slowdowns) and wanted.slowdowns == "Fail",
            say=lambda each: f"is slowed down: {', '.join(each.slowdowns)}",
            expected="clocks that neither heat nor a power brake lowers",
            remedy="HwThermal, SwThermal: look at fans, airflow, coolant and inlet temperature; HwPowerBrake, "
            "HwSlowdown: look at power supplies and cables (the BMC's log)",
        ),
        GpuFault(
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
        GpuFault(
            reason="ClockTooLow",
            has=lambda each: wanted.sm_clock_mhz is not None and (each.sm_clock_max_mhz or 0) < wanted.sm_clock_mhz,
            say=lambda each: f"can reach {each.sm_clock_max_mhz or 'unknown'} MHz",
            expected=f"at least {wanted.sm_clock_mhz} MHz",
            remedy="another model of GPU, or clocks that were limited (on the node: nvidia-smi -q -d CLOCK)",
        ),
    )
    found = first_fault("GPUClocks", gpus, faults)
    return found or fine("GPUClocks", f"clocks and power limits of {quantity(len(gpus), 'GPU')} as expected")


def check_gpus(settings: VerificationSettings, facts: NodeFacts) -> Iterator[Finding]:
    """Nothing where the pool expects no GPUs of NVIDIA's, or leaves them to somebody else's driver (vfio-pci)."""
    expected, wanted = settings.expected.gpus, settings.gpus
    if expected is None or expected.vendor_id != NVIDIA or expected.count == 0:
        return
    if wanted is None and not _is_nvidias(expected, facts):
        return
    wanted = wanted or GpuSettings()
    driver = check_driver(wanted, expected_gpus(expected, facts)[1], facts)
    yield driver
    if facts.gpu_driver is None or facts.gpu_driver.state != "Ready":
        return
    gpus = [each for each in facts.gpus if each.error is None]
    yield check_memory(wanted, gpus)
    yield check_links(wanted, gpus)
    yield check_fabric(wanted, facts.gpu_driver, gpus)
    yield check_clocks(wanted, gpus)
    yield check_errors(wanted, facts)


def _is_nvidias(expected: ExpectedGpus, facts: NodeFacts) -> bool:
    """Whether the agent looks for NVML at all, and no other driver holds the GPUs."""
    drivers = {each.driver for each in expected_gpus(expected, facts)[1]}
    return facts.gpu_driver is not None and drivers <= {"nvidia", None}
