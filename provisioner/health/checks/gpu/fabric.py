"""Whether GPUs that are joined by NVLink switches have registered with their fabric, and if not, why. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from provisioner.api.machinery.wording import quantity
from provisioner.api.nodes.facts import GpuDriverFacts, GpuFacts
from provisioner.api.pools.gpu_settings import GpuSettings
from provisioner.health.checks.finding import Finding, fine, wrong

NAME: Final = "GPUFabric"
PATIENCE_SECONDS: Final = 300.0
"""Fabricmanager trains all links after the driver has started; a rack's fabric takes minutes."""

_DONE: Final = "Completed"


def check_fabric(wanted: GpuSettings, driver: GpuDriverFacts, gpus: Sequence[GpuFacts]) -> Finding:
    """Every GPU has registered, all with one fabric, and nothing of it is degraded."""
    if wanted.fabric == "Ignored":
        return fine(NAME, "the pool does not look at it")
    members = [each for each in gpus if each.fabric_state is not None]
    if not members and not driver.switches:
        if wanted.fabric == "IfPresent":
            return fine(NAME, "no NVSwitch, and no GPU that belongs to a fabric")
        return _wrong("NoFabric", driver, observed=f"none of {quantity(len(gpus), 'GPU')} belongs to an NVLink fabric")
    waiting = [each for each in members if each.fabric_state != _DONE or each.fabric_status]
    if waiting or (driver.switches and driver.fabric_manager_state not in ("active", None)):
        return _unregistered(driver, waiting)
    if driver.switches and not members and driver.fabric_manager_version is None:
        return _wrong(
            "NoFabricManager", driver, observed=f"{driver.switches} NVSwitches and no fabricmanager in the image"
        )
    if wanted.fabric == "Required" and len(members) < len(gpus):
        return _wrong("NoFabric", driver, observed=f"{len(members)} of {len(gpus)} GPUs belong to an NVLink fabric")
    fabrics = {(each.fabric_cluster, each.fabric_clique) for each in members}
    if len(fabrics) > 1:
        cliques = ", ".join(sorted({str(each.fabric_clique) for each in members}))
        return _wrong("Split", driver, observed=f"GPUs are in {len(fabrics)} fabrics or cliques ({cliques})")
    if faulty := [each for each in members if each.fabric_faults]:
        told = "; ".join(f"GPU {each.pci_address}: {', '.join(each.fabric_faults)}" for each in faulty[:4])
        return _wrong("Degraded", driver, observed=f"the fabric is degraded: {told}")
    version = driver.fabric_manager_version
    manager = f", fabricmanager {version}" if version is not None else ""
    return fine(NAME, f"{quantity(len(members) or len(gpus), 'GPU')} in one fabric{manager}")


def _unregistered(driver: GpuDriverFacts, waiting: Sequence[GpuFacts]) -> Finding:
    states = ", ".join(sorted({_state(each) for each in waiting}))
    seen = (
        f"the NVLink fabric of {quantity(len(waiting), 'GPU')} is {states}" if waiting else "fabricmanager does not run"
    )
    version, manager = driver.driver_version, driver.fabric_manager_version
    if manager is None:
        if driver.switches:
            return _wrong("NoFabricManager", driver, observed=f"{seen}; the image has no fabricmanager")
        return _wrong("NotRegistered", driver, observed=seen)
    if version is not None and manager not in ("unknown", version):
        return _wrong(
            "WrongFabricManager", driver, observed=f"{seen}; fabricmanager has version {manager}, the driver {version}"
        )
    state = driver.fabric_manager_state or "in an unknown state"
    reason = "NotRegistered" if driver.fabric_manager_state in ("active", None) else "FabricManagerNotRunning"
    return _wrong(reason, driver, observed=f"{seen}; fabricmanager {manager} is {state}")


_REMEDIES: Final = {
    "NoFabric": "use an image with fabricmanager on a server with NVSwitches, or correct the pool's "
    "spec.verification.gpus.fabric",
    "NoFabricManager": "publish the HGX variant of the image, which has fabricmanager, and reimage the server",
    "WrongFabricManager": "fabricmanager must have exactly the driver's version: publish an image in which they agree, "
    "and reimage the server",
    "FabricManagerNotRunning": "on the node: systemctl status nvidia-fabricmanager; journalctl -u nvidia-fabricmanager",
    "NotRegistered": "on the node: journalctl -u nvidia-fabricmanager (with NVLink 5, nvlsm, too); "
    "nvidia-smi -q | grep -A4 Fabric; where the switches are a rack's, look at the fabricmanager of its switch trays; "
    "power-cycle the server",
    "Split": "look at the partitions of the fabric (fabricmanager, or NMX of the rack): a server's GPUs belong to one",
    "Degraded": "look at NVLinks, trunk cables and firmware (on the node: nvidia-smi nvlink -s; nvidia-smi -q); "
    "power-cycle the server",
}


def _wrong(reason: str, driver: GpuDriverFacts, *, observed: str) -> Finding:
    return wrong(
        NAME,
        reason,
        observed=observed,
        expected="every GPU registered with one NVLink fabric"
        + (f", by fabricmanager {driver.driver_version}" if driver.switches and driver.driver_version else ""),
        remedy=_REMEDIES[reason],
        patience_seconds=0.0 if reason in ("NoFabricManager", "WrongFabricManager") else PATIENCE_SECONDS,
    )


def _state(gpu: GpuFacts) -> str:
    if gpu.fabric_state == _DONE:
        return f"{_DONE} with error {gpu.fabric_status}"
    return str(gpu.fabric_state)
