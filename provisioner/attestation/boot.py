"""Whether a machine booted what it should, by the measurements in a log that its TPM has confirmed.

Judged from the end to the beginning: kernel, command line and initrd are ours and known exactly; then nothing else may
be in the PCRs of boot loaders that we have not; last the firmware and the boot programs, so that whoever is asked to
approve a firmware knows that all the rest is right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.values import Sha256Digest
from provisioner.attestation.event_log.compare import ExpectedEvent, first_difference, short
from provisioner.attestation.event_log.parse import Event, EventLog
from provisioner.attestation.event_log.replay import measured
from provisioner.attestation.event_log.words import describe
from provisioner.attestation.measurements import (
    LINUX_PCR,
    PROGRAMS_PCR,
    FirmwareMeasurements,
    ImageMeasurements,
    learn_firmware,
    programs_started,
)
from provisioner.attestation.outcome import EvidenceRefused, Reason

UNUSED_PCRS: Final = (8, 12, 14)
"""Of GRUB, systemd-boot and shim."""


@dataclass(frozen=True, kw_only=True)
class ExpectedBoot:
    """What the server was told to boot.

    load_options: digest of its command line. firmware: the approved profiles, of which one must fit. boot_programs:
    with their names, those that the boot host serves (iPXE), beside those of a profile. later: digests that the system
    extends after the log, by PCR. reset_count_above: where the boot must have begun by a reset, the TPM's reset count
    on record of the boot before; None where nothing is on record, or the boot begins by kexec.
    """

    image: ImageMeasurements
    load_options: Sha256Digest
    firmware: Sequence[FirmwareMeasurements]
    boot_programs: Mapping[Sha256Digest, str] = field(default_factory=dict)
    later: Mapping[int, Sequence[bytes]] = field(default_factory=dict)
    reset_count_above: int | None = None


def judge_boot(log: EventLog, expected: ExpectedBoot) -> FirmwareMeasurements | EvidenceRefused:
    """The firmware profile that fits, if all else does, too. log: one that a quote has confirmed."""
    programs = programs_started(log)
    kernel = ExpectedEvent(PROGRAMS_PCR, _raw(expected.image.kernel), "the kernel")
    if why := first_difference(PROGRAMS_PCR, programs[-1:], (kernel,)):
        return EvidenceRefused(Reason.KERNEL_MISMATCH, why)
    return (
        _wrong_linux(measured(log, LINUX_PCR), expected)
        or _unexpected(log)
        or _judge_firmware(log, programs[:-1], expected)
    )


def _wrong_linux(events: Sequence[Event], expected: ExpectedBoot) -> EvidenceRefused | None:
    """The EFI stub measures its command line first, then the initrd."""
    command_line = ExpectedEvent(LINUX_PCR, _raw(expected.load_options), "the command line")
    initrd = ExpectedEvent(LINUX_PCR, _raw(expected.image.initrd), "the initrd (stage-1)")
    for reason, seen, wanted in (
        (Reason.COMMAND_LINE_MISMATCH, events[:1], (command_line,)),
        (Reason.INITRD_MISMATCH, events[1:2], (initrd,)),
        (Reason.MEASUREMENT_UNEXPECTED, events[2:], ()),
    ):
        if why := first_difference(LINUX_PCR, seen, wanted):
            return EvidenceRefused(reason, why)
    return None


def _unexpected(log: EventLog) -> EvidenceRefused | None:
    for pcr in UNUSED_PCRS:
        if why := first_difference(pcr, measured(log, pcr), ()):
            return EvidenceRefused(Reason.MEASUREMENT_UNEXPECTED, why)
    return None


def _judge_firmware(
    log: EventLog, programs: Sequence[Event], expected: ExpectedBoot
) -> FirmwareMeasurements | EvidenceRefused:
    """The first profile that fits; else what is wrong with the one that fits in most PCRs."""
    best: tuple[int, EvidenceRefused] | None = None
    for profile in expected.firmware:
        fitting, fault = _compare(log, programs, profile, expected)
        if fault is None:
            return profile
        if best is None or fitting > best[0]:
            best = fitting, fault
    if best is None:
        first = "no firmware profile is approved for this machine; approve what it measured if it is as it should be"
        fault = EvidenceRefused(Reason.FIRMWARE_NOT_APPROVED, first)
    else:
        fault = best[1]
    try:
        return EvidenceRefused(fault.reason, fault.message, learn_firmware("learned", log, expected.image.kernel))
    except Refused:
        return fault


def _compare(
    log: EventLog, programs: Sequence[Event], profile: FirmwareMeasurements, expected: ExpectedBoot
) -> tuple[int, EvidenceRefused | None]:
    """How many of the profile's PCRs fit, and the first difference."""
    faults = [
        f"{why} (firmware profile {profile.name})"
        for pcr in sorted(profile.judged)
        if (why := first_difference(pcr, measured(log, pcr), profile.of(pcr)))
    ]
    fitting = len(profile.judged) - len(faults)
    if not faults and 0 in profile.judged and log.startup_locality != profile.startup_locality:
        faults.append(
            f"PCR 0: started by locality {log.startup_locality}, expected {profile.startup_locality} "
            f"(firmware profile {profile.name})"
        )
    if faults:
        return fitting, EvidenceRefused(Reason.FIRMWARE_MISMATCH, faults[0])
    known = {_raw(digest): name for digest, name in expected.boot_programs.items()}
    known |= {event.digest: event.what for event in profile.of(PROGRAMS_PCR)}
    # iPXE has firmware load a kernel to see whether it is one (an image without a path), and again to start it.
    known[_raw(expected.image.kernel)] = "the kernel"
    return fitting, _unknown_program(programs, known)


def _unknown_program(programs: Sequence[Event], known: Mapping[bytes, str]) -> EvidenceRefused | None:
    """Each program before the kernel must be a known one; which of them ran, and how often, is firmware's affair."""
    wanted = " or ".join(f"{name} {short(digest)}" for digest, name in list(known.items())[:4]) or "none"
    for event in programs:
        if event.digest not in known:
            return EvidenceRefused(
                Reason.BOOT_PROGRAM_MISMATCH,
                f"PCR {PROGRAMS_PCR}: {describe(event)} is {short(event.digest)}, expected {wanted}",
            )
    return None


def _raw(digest: Sha256Digest) -> bytes:
    return bytes.fromhex(digest.removeprefix("sha256:"))
