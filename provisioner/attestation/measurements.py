"""What firmware and kernel measure of what we give them, computed from the files; and what was learned of firmware.

PCR 4: firmware measures each program that it starts (iPXE, the kernel) by its Authenticode digest. PCR 9: the kernel's
EFI stub measures its command line (load options) and its initrd.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from provisioner.api.values import Sha256Digest
from provisioner.attestation.event_log.compare import ExpectedEvent
from provisioner.attestation.event_log.parse import EventLog


def authenticode_sha256(program: bytes) -> Sha256Digest:
    """The Authenticode digest of a PE/COFF program: all of it but checksum, certificate table and its entry.

    Raises: Refused if it is no PE program.
    """
    raise NotImplementedError


def initrd_sha256(initrd: bytes) -> Sha256Digest:
    """What the EFI stub measures of an initrd: its bytes, padded by iPXE to nothing."""
    raise NotImplementedError


def load_options_sha256(kernel_name: str, arguments: str) -> Sha256Digest:
    """What the EFI stub measures of a command line: `NAME ARGUMENTS` in UTF-16LE with its NUL, as iPXE hands it over.

    kernel_name: by which iPXE's script calls the kernel (`kernel --name`).
    """
    raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class ImageMeasurements:
    """What an image build computes, and the Image holds."""

    kernel: Sha256Digest
    initrd: Sha256Digest


@dataclass(frozen=True, kw_only=True)
class FirmwareMeasurements:
    """What machines of one model, firmware version and settings measure before the kernel: learned from one of them,
    and approved by an administrator.

    events: into PCRs 0 to 3 and 7, and of PCR 4 the boot programs (iPXE); a PCR that has none here is not judged.
    startup_locality: by which PCR 0 begins.
    """

    name: str
    events: tuple[ExpectedEvent, ...]
    judged: frozenset[int]
    startup_locality: int = 0

    def digest(self) -> Sha256Digest:
        """Over all that is judged: names what an administrator has approved."""
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        """For an object's field."""
        raise NotImplementedError

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> FirmwareMeasurements:
        """Raises: Refused for anything else than `to_json` writes."""
        raise NotImplementedError


def learn_firmware(name: str, log: EventLog, kernel: Sha256Digest) -> FirmwareMeasurements:
    """What `log`, which a quote has confirmed, says of the firmware of a machine that booted `kernel`.

    Raises: Refused if the log does not have the kernel as its last program.
    """
    raise NotImplementedError
