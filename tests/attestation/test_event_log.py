"""Event logs: read, replayed and told in words; what breaks the format is refused."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from provisioner.attestation.challenge import QUOTED_PCRS
from provisioner.attestation.event_log.compare import ExpectedEvent, first_difference
from provisioner.attestation.event_log.parse import LARGEST_LOG_BYTES, MOST_EVENTS, Event, parse_event_log
from provisioner.attestation.event_log.replay import measured, replay
from provisioner.attestation.event_log.words import LONGEST_WORDS, describe
from provisioner.attestation.tpm.algorithms import Algorithm
from provisioner.attestation.tpm.wire import MalformedTpmData
from tests.attestation.firmware_log import (
    END,
    FROM_NETWORK,
    SHA256_ONLY,
    TWO_BANKS,
    LoggedEvent,
    a_boot,
    node,
    pcr_values,
    program,
    separator,
    sha256,
    write_log,
)


@pytest.mark.parametrize("banks", [SHA256_ONLY, TWO_BANKS, (*TWO_BANKS, (0x000C, 48), (0x0012, 32))])
def test_a_log_of_any_banks_replays_to_what_the_pcrs_hold(banks: tuple[tuple[int, int], ...]) -> None:
    log = parse_event_log(write_log(a_boot(), banks))
    assert len(log.events) == len(a_boot())
    assert [event.number for event in log.events] == list(range(1, len(a_boot()) + 1))
    assert replay(log, QUOTED_PCRS) == pcr_values(a_boot(), QUOTED_PCRS)


@pytest.mark.parametrize("locality", [0, 3, 4])
def test_firmware_that_starts_by_another_locality_begins_pcr_0_with_it(locality: int) -> None:
    log = parse_event_log(write_log(a_boot(), locality=locality))
    assert log.startup_locality == locality
    assert replay(log, [0, 7]) == pcr_values(a_boot(), (0, 7), locality)


def test_what_is_told_and_not_measured_changes_no_pcr() -> None:
    note = LoggedEvent(4, 3, bytes(32), b"a note")
    far = LoggedEvent(0xFFFFFFFF, 3, bytes(32), b"another")
    log = parse_event_log(write_log((note, *a_boot(), far)))
    assert replay(log, QUOTED_PCRS) == pcr_values(a_boot(), QUOTED_PCRS)


def test_pcrs_of_a_dynamic_launch_begin_with_ones() -> None:
    assert replay(parse_event_log(write_log(())), [16, 17, 22, 23]) == {
        16: bytes(32), 17: b"\xff" * 32, 22: b"\xff" * 32, 23: bytes(32),
    }  # fmt: skip


def test_each_event_is_told_in_words() -> None:
    log = parse_event_log(write_log(a_boot()))
    told = [f"{event.pcr} {describe(event)}" for event in log.events]
    assert told == [
        "0 CRTM version 1",
        "0 firmware volume",
        "7 variable SecureBoot of 1 bytes",
        "7 variable PK of 2 bytes",
        "7 variable KEK of 3 bytes",
        "7 variable db of 2 bytes",
        "7 variable dbx of 3 bytes",
        "7 separator",
        "1 variable BootOrder of 2 bytes",
        "1 variable Boot0000 of 5 bytes",
        "2 boot services driver PciRoot(0x0)/Pci(0x3,0x0)/MAC(525400123456)/IPv4(10.80.0.2)",
        "4 action 'Calling EFI Application from Boot Option'",
        *(f"{pcr} separator" for pcr in range(7)),
        "4 boot program PciRoot(0x0)/Pci(0x3,0x0)/MAC(525400123456)/IPv4(10.80.0.2)",
        "4 boot program vmlinuz",
        "9 command line ('LOADED_IMAGE::LoadOptions')",
        "9 initrd ('Linux initrd')",
        "5 action 'Exit Boot Services Invocation'",
        "5 action 'Exit Boot Services Returned with Success'",
    ]


@pytest.mark.parametrize(
    ("kind", "data", "words"),
    [
        (4, b"\0\0\0\1", "separator of an error"),
        (0x0D, b"grub_cmd: linux\0", "boot loader 'grub_cmd: linux'"),
        (0x0D, "systemd\0".encode("utf-16-le"), "boot loader 'systemd'"),
        (6, struct.pack("<II", 7, 4) + b"more", "tagged event 0x00000007 'more'"),
        (6, b"\1", "event of type 0x6 with data that cannot be read"),
        (0x77, b"", "event of type 0x77"),
        (0x77, b"text", "event of type 0x77 text"),
        (0x05, b"\x1b[2Jgone\r\nby", "action '?[2Jgone??by'"),
        (0x80000003, b"", "event of type 0x80000003 with data that cannot be read"),
        (
            0x80000001,
            bytes(16) + struct.pack("<QQ", 1 << 60, 0),
            "event of type 0x80000001 with data that cannot be read",
        ),
    ],
)
def test_data_that_nobody_vouches_for_are_told_as_printable_words(kind: int, data: bytes, words: str) -> None:
    assert describe(Event(1, 4, kind, bytes(32), data)) == words


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (FROM_NETWORK, "PciRoot(0x0)/Pci(0x3,0x0)/MAC(525400123456)/IPv4(10.80.0.2)"),
        (node(3, 13, bytes(16) + bytes.fromhex("fd00") + bytes(13) + b"\1" + bytes(8)) + END, "IPv6(fd00::1)"),
        (node(3, 24, b"https://boot.example/ipxe.efi") + END, "Uri(https://boot.example/ipxe.efi)"),
        (node(4, 6, bytes(16)) + END, "FvFile(00000000-0000-0000-0000-000000000000)"),
        (node(4, 7, bytes(16)) + END, "Fv(00000000-0000-0000-0000-000000000000)"),
        (node(4, 8, bytes(4) + struct.pack("<QQ", 16, 32)) + END, "Offset(0x10,0x20)"),
        (node(2, 1, struct.pack("<II", 7, 1)) + END, "Acpi(0x7,0x1)"),
        (node(5, 1, b"") + END, "(5,1)"),
    ],
)
def test_the_way_by_which_a_program_came_is_told_as_firmware_does(path: bytes, words: str) -> None:
    log = parse_event_log(write_log((program(bytes(32), path),)))
    assert describe(log.events[0]) == f"boot program {words}"


def test_words_are_bounded() -> None:
    long = node(4, 4, ("x" * 4000).encode("utf-16-le")) + node(4, 4, ("y" * 400).encode("utf-16-le")) * 40
    told = describe(parse_event_log(write_log((program(bytes(32), long),))).events[0])
    assert len(told) == LONGEST_WORDS
    assert told.endswith("…")


GOOD = write_log((separator(0),))
EVENT_AT = 32 + 28 + 2 * 4 + 1


def with_bytes(at: int, data: bytes) -> bytes:
    return GOOD[:at] + data + GOOD[at + len(data) :]


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (b"", "ends after 0 bytes"),
        (GOOD[:-1], "1 too early"),
        (GOOD + b"\0", "too early"),
        (struct.pack("<II20sI", 0, 3, b"", 4) + b"Spec", "ends after 4 bytes"),
        (struct.pack("<II20sI", 0, 8, b"", 0), "is it one of a TPM 1.2"),
        (with_bytes(32, b"Spec ID Event02\0"), "is not crypto-agile"),
        (write_log((), ()), "has 0 banks"),
        (write_log((), ((Algorithm.SHA256, 20),)), "is named twice, or has 20 bytes"),
        (write_log((), ((Algorithm.SHA256, 32), (Algorithm.SHA256, 32))), "is named twice"),
        (write_log((), ((Algorithm.SHA1, 20),)), "has no bank SHA256, but SHA1"),
        (with_bytes(EVENT_AT, struct.pack("<I", 24)), "event 1 of the log is of PCR 24"),
        (with_bytes(EVENT_AT + 8, struct.pack("<I", 1)), "the first event of the log has 1 digests, expected 2"),
        (with_bytes(EVENT_AT + 12, struct.pack("<H", 11)), "a digest of 0x"),
        (with_bytes(len(GOOD) - 8, struct.pack("<I", 5)), "1 too early"),
        (with_bytes(EVENT_AT + 12, struct.pack("<H", 13)), "a digest of SHA512 twice, or too many"),
        (write_log(tuple(a_boot()), locality=5), "startup locality 5"),
        (write_log((separator(0),) * (MOST_EVENTS + 1), SHA256_ONLY), "more than 1024 events"),
        (bytes(LARGEST_LOG_BYTES + 1), "at most 131072 are expected"),
    ],
)
def test_a_log_that_is_none_is_refused(log: bytes, words: str) -> None:
    with pytest.raises(MalformedTpmData, match=words):
        parse_event_log(log)
    assert len(parse_event_log(GOOD).events) == 1


def test_a_locality_after_measurements_is_refused() -> None:
    late = (separator(0), LoggedEvent(0, 3, bytes(32), b"StartupLocality\0\3"))
    with pytest.raises(MalformedTpmData, match="startup locality 3"):
        parse_event_log(write_log(late))


def test_the_first_component_that_differs_is_named_and_those_that_are_missing_or_too_many() -> None:
    log = parse_event_log(write_log(a_boot()))
    events = measured(log, 7)
    expected = [ExpectedEvent(7, event.digest, describe(event)) for event in events]
    assert first_difference(7, events, expected) is None
    changed = [
        *expected[:1],
        replace(expected[1], digest=sha256(b"x")),
        replace(expected[2], digest=sha256(b"y")),
        *expected[3:],
    ]
    assert (first_difference(7, events, changed) or "").startswith("PCR 7: variable PK of 2 bytes is sha256:")
    assert (first_difference(7, events[:-1], expected) or "").startswith(
        "PCR 7: separator (sha256:df3f619804a9…) was not"
    )
    assert "nothing more is expected" in (first_difference(7, events, expected[:-1]) or "")
