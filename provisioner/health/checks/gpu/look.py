"""All that is checked of NVIDIA's GPUs, beyond that they are on PCI. Pure.

How GPUs are is only asked where the driver runs: what is missing, lost or does not answer is `driver`'s to tell.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from provisioner.api.nodes.facts import NodeFacts
from provisioner.api.pools.gpu_settings import GpuSettings
from provisioner.api.pools.pool_settings import ExpectedGpus, VerificationSettings
from provisioner.health.checks.finding import Finding
from provisioner.health.checks.gpu.driver import check_driver
from provisioner.health.checks.gpu.errors import check_errors
from provisioner.health.checks.gpu.fabric import check_fabric
from provisioner.health.checks.gpu.faults import check_clocks, check_links, check_memory
from provisioner.health.checks.hardware import expected_gpus

NVIDIA: Final = "10de"


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
