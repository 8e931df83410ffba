"""Whether NVIDIA's driver runs, agrees with itself, and knows every GPU that is on PCI. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from provisioner.api.machinery.wording import quantity
from provisioner.api.nodes.facts import GpuDriverFacts, NodeFacts, PciFacts
from provisioner.api.pools.gpu_settings import GpuSettings
from provisioner.health.checks.finding import Finding, fine, not_yet, wrong

NAME: Final = "GPUDriver"
FIRST_SURVEY_SECONDS: Final = 180.0
"""NVML may take a minute before the agent gives it up."""

_LOG: Final = "on the node: dmesg | grep -iE 'nvrm|nvidia'"
_wrong: Final = partial(wrong, NAME)
_LOST: Final = frozenset(("GPU_IS_LOST", "RESET_REQUIRED"))


def check_driver(settings: GpuSettings, gpus: Sequence[PciFacts], facts: NodeFacts) -> Finding:
    """gpus: those that the pool expects, as PCI has them."""
    driver = facts.gpu_driver
    if driver is None:
        return _wrong(
            "NotSurveyed",
            observed="the image's agent says nothing of NVML",
            expected="what spec.verification.gpus of the pool asks for",
            remedy="publish an image of this version, or remove spec.verification.gpus from the pool",
        )
    if driver.state == "Looking":
        message = "waits for the agent's first survey of the GPUs by NVML; remedy, should it not come: " + _LOG
        return not_yet(NAME, "Surveying", message, patience_seconds=FIRST_SURVEY_SECONDS)
    if driver.state != "Ready":
        return _not_ready(driver)
    answers = quantity(len(gpus), "GPU answers", "GPUs answer")
    agrees = fine(NAME, f"driver {driver.driver_version or 'of unknown version'}, {answers} NVML")
    return _lost(gpus, facts) or _version(settings, driver) or agrees


def _not_ready(driver: GpuDriverFacts) -> Finding:
    explain = {"NotLoaded": _not_loaded, "VersionMismatch": _mismatch, "NoLibrary": _no_library, "Hung": _hung}
    if driver.state in explain:
        return explain[driver.state](driver)
    return _wrong(
        driver.state if driver.state in ("Crashed", "Failed") else "Unknown",
        observed=f"NVML cannot be used: {driver.message or driver.state}{_said(driver)}",
        expected="an answer from every GPU",
        remedy=f"see what the driver says ({_LOG}); reboot the server, and power-cycle it if it comes back so",
    )


def _not_loaded(driver: GpuDriverFacts) -> Finding:
    if driver.module_loaded:
        return _wrong(
            "NotStarted",
            observed=f"module nvidia {driver.module_version or ''} is loaded, and NVML finds no driver that runs"
            f"{_said(driver)}",
            expected="a driver that has started the GPUs",
            remedy=f"look for GSP firmware that is missing or failed, and for device files (on the node: ls "
            f"/dev/nvidia*; systemctl status nvidia-persistenced; {_LOG})",
        )
    if driver.module_installed is False:
        return _wrong(
            "NoModule",
            observed="the image has no module nvidia for the kernel that runs",
            expected="the driver in the image",
            remedy="publish an image with a driver layer that was built for its kernel, and reimage the server",
            patience_seconds=0.0,
        )
    return _wrong(
        "NotLoaded",
        observed=f"module nvidia is in the image and is not loaded{_said(driver)}",
        expected="module nvidia, loaded",
        remedy=f"load it by hand to see why not (on the node: modprobe nvidia; {_LOG}): with Secure Boot it must be "
        "signed with a key that the firmware or the shim knows; GPUs older than Turing have no open module",
    )


def _mismatch(driver: GpuDriverFacts) -> Finding:
    return _wrong(
        "VersionMismatch",
        observed=f"the kernel's module has version {driver.module_version or 'unknown'}, NVML "
        f"{driver.library_version or 'unknown'}",
        expected="one version",
        remedy="publish an image whose driver layer is of one version, and reimage the server; one that was changed "
        "while it ran is well after a reboot",
        patience_seconds=0.0,
    )


def _no_library(driver: GpuDriverFacts) -> Finding:
    return _wrong(
        "NoLibrary",
        observed=f"NVML cannot be loaded: {driver.message or 'libnvidia-ml.so.1 is not there'}",
        expected="libnvidia-ml.so.1 in the image, of the driver's version",
        remedy="publish an image with the driver's user space (its driver layer), and reimage the server",
        patience_seconds=0.0,
    )


def _hung(driver: GpuDriverFacts) -> Finding:
    return _wrong(
        "Hung",
        observed=f"{driver.message or 'NVML did not answer'}{_said(driver)}",
        expected="an answer",
        remedy=f"a GPU, or its GSP, hangs ({_LOG}): power-cycle the server, and replace the GPU if it comes back so",
    )


def _lost(gpus: Sequence[PciFacts], facts: NodeFacts) -> Finding | None:
    """GPUs that are on PCI and do not answer, or that NVML does not know at all."""
    driver = facts.gpu_driver
    broken = [each for each in facts.gpus if each.error is not None]
    known = {each.pci_address.lower(): each for each in facts.gpus if each.pci_address is not None}
    counted = max(len(facts.gpus), (driver.count if driver is not None else None) or 0)
    silent = [each.address for each in gpus if each.address not in known or known[each.address].error is not None]
    if counted > len(facts.gpus):
        silent = []  # more than the facts have room for: only how many there are is known
    answering = min(len(gpus) - len(silent), counted - len(broken))
    if not broken and answering >= len(gpus):
        return None
    errors = sorted({each.error or "" for each in broken})
    where = f" ({', '.join(silent)})" if silent else ""
    said = f", NVML says {', '.join(errors)}" if errors else ""
    if broken and not _LOST.intersection(errors):
        return _wrong(
            "GPUBroken",
            observed=f"no answer from {len(broken)} of {quantity(len(gpus), 'GPU')} on PCI{where}{said}{_said(driver)}",
            expected=f"an answer from {quantity(len(gpus), 'GPU')}",
            remedy=f"see what the driver says ({_LOG}); power-cycle the server; replace the GPU if it comes back so",
        )
    return _wrong(
        "GPULost",
        observed=f"{quantity(len(gpus), 'GPU')} on PCI, {answering} answering NVML{where}{said}{_said(driver)}",
        expected=quantity(len(gpus), "GPU"),
        remedy="a GPU fell off the bus, or did not start: power-cycle the server (a reboot does not bring it back); "
        "reseat or replace the GPU if it comes back so",
    )


def _version(settings: GpuSettings, driver: GpuDriverFacts) -> Finding | None:
    wanted, found = settings.driver_version, driver.driver_version or "unknown"
    if wanted is None or found == wanted or found.startswith(wanted + "."):
        return None
    return _wrong(
        "WrongVersion",
        observed=f"driver {found}",
        expected=f"{wanted}",
        remedy="reimage the server with an image that has it, or correct the pool's "
        "spec.verification.gpus.driverVersion",
        patience_seconds=0.0,
    )


def _said(driver: GpuDriverFacts | None) -> str:
    """The kernel's own words, where it had any."""
    return f"; the kernel says: {driver.kernel_messages[0]}" if driver is not None and driver.kernel_messages else ""
