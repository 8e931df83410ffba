"""Judgement over boots that were recorded: real OVMF, SeaBIOS, iPXE and Linux (recorded/README.md)."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.values import parse_digest
from provisioner.attestation.boot import ExpectedBoot, judge_boot
from provisioner.attestation.event_log.parse import EventLog, parse_event_log
from provisioner.attestation.event_log.replay import replay
from provisioner.attestation.measurements import (
    FirmwareMeasurements,
    ImageMeasurements,
    learn_firmware,
    load_options_sha256,
    programs_started,
)
from provisioner.attestation.outcome import EvidenceRefused, Reason

RECORDED: Final = Path(__file__).parent / "recorded"
NOTE: Final[dict[str, Any]] = json.loads((RECORDED / "boots.json").read_text())
KERNEL, INITRD, IPXE = (parse_digest(NOTE[name]) for name in ("kernel", "initrd", "ipxe"))
OTHER: Final = parse_digest("sha256:" + "77" * 32)


def log_of(boot: str) -> EventLog:
    return parse_event_log((RECORDED / f"{boot}.eventlog").read_bytes())


def expected(arguments: str = NOTE["arguments"], **of_the_image: Any) -> ExpectedBoot:
    return ExpectedBoot(
        image=ImageMeasurements(**({"kernel": KERNEL, "initrd": INITRD} | of_the_image)),
        load_options=load_options_sha256(NOTE["kernelName"], arguments),
        firmware=[learn_firmware("ovmf", log_of("ovmf-pxe"), KERNEL)],
        boot_programs={IPXE: "iPXE"},
    )


@pytest.mark.parametrize("boot", NOTE["boots"])
def test_the_log_explains_every_register_that_firmware_and_stub_extend(boot: str) -> None:
    told = NOTE["boots"][boot]["pcrs"]
    pcrs = [*range(10), *range(11, 24)]  # 10 is IMA's, which keeps a list of its own
    assert {str(pcr): value.hex() for pcr, value in replay(log_of(boot), pcrs).items()} == {
        str(pcr): told[str(pcr)] for pcr in pcrs
    }


@pytest.mark.parametrize("boot", ["ovmf-pxe", "ovmf-http"])
def test_a_profile_of_one_boot_fits_the_same_firmware_by_another_way_of_booting(boot: str) -> None:
    assert isinstance(judge_boot(log_of(boot), expected()), FirmwareMeasurements)


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        (expected(NOTE["arguments"] + " init=/bin/sh"), Reason.COMMAND_LINE_MISMATCH),
        (expected(initrd=OTHER), Reason.INITRD_MISMATCH),
        (expected(kernel=OTHER), Reason.KERNEL_MISMATCH),
    ],
)
def test_another_kernel_command_line_or_initrd_than_was_ordered_is_named(told: ExpectedBoot, reason: Reason) -> None:
    refused = judge_boot(log_of("ovmf-pxe"), told)
    assert isinstance(refused, EvidenceRefused)
    assert refused.reason == reason


def test_ipxe_has_the_kernel_measured_twice_and_a_profile_does_not_name_it() -> None:
    programs = Counter(event.digest.hex() for event in programs_started(log_of("ovmf-pxe")))
    assert programs == {IPXE[7:]: 1, KERNEL[7:]: 2}
    profile = learn_firmware("ovmf", log_of("ovmf-pxe"), KERNEL)
    assert [event.digest.hex() for event in profile.of(4)] == [IPXE[7:]]


def test_a_bios_measures_no_kernel_so_that_its_server_proves_no_image() -> None:
    log = log_of("seabios-pxe")
    assert NOTE["boots"]["seabios-pxe"]["pcrs"]["9"] == "00" * 32
    with pytest.raises(Refused, match="last program is not the kernel"):
        learn_firmware("seabios", log, KERNEL)
    refused = judge_boot(log, expected())
    assert isinstance(refused, EvidenceRefused)
    assert refused.reason == Reason.KERNEL_MISMATCH
