"""What firmware and kernel measure of what we give them, computed from the files; and what was learned of firmware.

PCR 4: firmware measures each program that it starts (iPXE, the kernel) by its Authenticode digest. PCR 9: the kernel's
EFI stub measures its command line (load options) and its initrd.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.values import Sha256Digest
from provisioner.attestation.event_log.compare import ExpectedEvent
from provisioner.attestation.event_log.parse import LARGEST_LOG_BYTES, Event, EventLog, parse_event_log
from provisioner.attestation.event_log.replay import measured
from provisioner.attestation.event_log.words import EFI_PROGRAMS, LONGEST_WORDS, describe
from provisioner.attestation.tpm.wire import MalformedTpmData

PROGRAMS_PCR: Final = 4
LINUX_PCR: Final = 9
FIRMWARE_PCRS: Final = frozenset((0, 2, 3, 7))
"""Judged if nothing else is asked for. PCR 1 holds what differs between machines of one kind (boot entries with MAC
addresses, serial numbers of the SMBIOS), PCR 5 the partitions of local disks, PCR 6 what a vendor likes."""
MOST_EVENTS: Final = 512
FIRMWARES_OWN: Final = frozenset(
    hashlib.sha256(text).digest()
    for text in (
        bytes(4),
        b"Calling EFI Application from Boot Option",
        b"Returning from EFI Application from Boot Option",
        b"Booting to Shell",
        b"BOOT ATTEMPTS OMITTED",
    )
)
"""Digests in PCR 4 that are of no program: separator and actions. How often firmware tries an entry says
nothing."""


@dataclass(frozen=True, kw_only=True)
class ImageMeasurements:
    """What an image build computes, and the Image holds. kernel: Authenticode digest. initrd: of stage-1."""

    kernel: Sha256Digest
    initrd: Sha256Digest


def load_options_sha256(kernel_name: str, arguments: str) -> Sha256Digest:
    """What the EFI stub measures of a command line: `NAME ARGUMENTS` in UTF-16LE with its NUL, as iPXE hands it over.

    kernel_name: by which iPXE's script calls the kernel (`kernel --name`). arguments: as the script has them, one blank
    between each.
    """
    return _sha256(f"{kernel_name} {arguments}\0".encode("utf-16-le"))


@dataclass(frozen=True, kw_only=True)
class FirmwareMeasurements:
    """What machines of one model, firmware version and settings measure before the kernel: learned from one of them,
    and approved by an administrator.

    judged: the PCRs, of 0, 1, 2, 3 and 7, whose measurements must be those of `events`, in order. The events of PCR 4
    are the boot programs (iPXE), any of which may have run. startup_locality: by which PCR 0 begins.
    """

    name: str
    events: tuple[ExpectedEvent, ...]
    judged: frozenset[int] = FIRMWARE_PCRS
    startup_locality: int = 0

    def of(self, pcr: int) -> tuple[ExpectedEvent, ...]:
        """What is expected in a PCR, in order."""
        return tuple(event for event in self.events if event.pcr == pcr)

    @cached_property
    def digest(self) -> Sha256Digest:
        """Over all that is judged, names and words left out: what an administrator has approved."""
        events = [[event.pcr, event.digest.hex()] for event in self.events]
        return _sha256(json.dumps([self.startup_locality, sorted(self.judged), events]).encode())


def learn_firmware(
    name: str, log: EventLog, kernel: Sha256Digest, *, judged: frozenset[int] = FIRMWARE_PCRS
) -> FirmwareMeasurements:
    """What `log`, which a quote has confirmed, says of the firmware of a machine that booted `kernel`.

    Raises: Refused if the kernel is not its last program, or it has more than MOST_EVENTS of what is judged.
    """
    programs = programs_started(log)
    if not programs or programs[-1].digest.hex() != kernel[7:]:
        raise Refused(f"the log's last program is not the kernel {kernel}", hint="learn from a boot of that image")
    kept = {event.digest: event for event in programs if event.digest != programs[-1].digest}
    events = [event for pcr in sorted(judged) for event in measured(log, pcr)] + list(kept.values())
    if len(events) > MOST_EVENTS:
        raise Refused(
            f"the log has {len(events)} events of firmware, at most {MOST_EVENTS} are kept", hint="judge fewer PCRs"
        )
    return FirmwareMeasurements(
        name=name,
        events=tuple(ExpectedEvent(event.pcr, event.digest, describe(event)[:LONGEST_WORDS]) for event in events),
        judged=judged,
        startup_locality=log.startup_locality,
    )


def programs_started(log: EventLog) -> tuple[Event, ...]:
    """The measurements into PCR 4 that are of a program: all but firmware's own.

    They are told apart by digest and not by type: the type is in the log alone, which nothing signs.
    """
    return tuple(event for event in measured(log, PROGRAMS_PCR) if event.digest not in FIRMWARES_OWN)


def why_log_shows_no_boot(data: bytes) -> str | None:
    """Why a firmware's event log cannot show which kernel ran, whichever did; None if it can.

    A log without a program is that of a BIOS, which measures option ROMs and boot sectors. The types of its events are
    hearsay: a machine that changes them hides no more than one that sends no log.
    """
    if not data:
        return f"gives no event log, or one of more than {LARGEST_LOG_BYTES >> 10} KiB"
    try:
        log = parse_event_log(data)
    except MalformedTpmData as error:
        return f"gives an event log that cannot be used ({error})"
    if any(event.type in EFI_PROGRAMS for event in measured(log, PROGRAMS_PCR)):
        return None
    return "gives an event log without any program that it started, as a BIOS does"


def _sha256(data: bytes) -> Sha256Digest:
    return Sha256Digest(f"sha256:{hashlib.sha256(data).hexdigest()}")
