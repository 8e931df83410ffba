"""What makes a GPU slow: heat, power brakes, power caps and limited clocks. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from provisioner.api.machinery.wording import quantity
from provisioner.api.nodes.facts import GpuFacts
from provisioner.api.pools.gpu_settings import GpuSettings
from provisioner.health.checks.finding import Finding, fine
from provisioner.health.checks.gpu.affected import some


def check_clocks(wanted: GpuSettings, gpus: Sequence[GpuFacts]) -> Finding:
    found = (
        some(
            "GPUClocks",
            "SlowedDown",
            [each for each in gpus if each.slowdowns and wanted.slowdowns == "Fail"],
            lambda each: f"is slowed down: {', '.join(each.slowdowns)}",
            expected="clocks that neither heat nor a power brake lowers",
            remedy="HwThermal, SwThermal: look at fans, airflow, coolant and inlet temperature; HwPowerBrake, "
            "HwSlowdown: look at power supplies and cables (the BMC's log)",
        )
        or some(
            "GPUClocks",
            "PowerCapped",
            [
                each
                for each in gpus
                if each.power_limit_watts is not None
                and each.power_limit_watts < (wanted.power_limit_watts or each.power_limit_default_watts or 0)
            ],
            lambda each: f"may draw {each.power_limit_watts} W",
            expected=f"at least {wanted.power_limit_watts} W"
            if wanted.power_limit_watts is not None
            else f"the default limit, {_defaults(gpus)}",
            remedy="see who lowered it (on the node: nvidia-smi -q -d POWER; the BMC's power capping), or set the "
            "pool's spec.verification.gpus.powerLimitWatts",
        )
        or some(
            "GPUClocks",
            "ClockTooLow",
            [
                each
                for each in gpus
                if wanted.sm_clock_mhz is not None and (each.sm_clock_max_mhz or 0) < wanted.sm_clock_mhz
            ],
            lambda each: f"can reach {each.sm_clock_max_mhz or 'unknown'} MHz",
            expected=f"at least {wanted.sm_clock_mhz} MHz",
            remedy="another model of GPU, or clocks that were limited (on the node: nvidia-smi -q -d CLOCK)",
        )
    )
    return found or fine("GPUClocks", f"clocks and power limits of {quantity(len(gpus), 'GPU')} as expected")


def _defaults(gpus: Sequence[GpuFacts]) -> str:
    return ", ".join(sorted({f"{each.power_limit_default_watts} W" for each in gpus if each.power_limit_default_watts}))
