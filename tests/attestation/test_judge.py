"""What a liar sends in place of what a TPM said, and a machine that booted something else: each refused by its name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from provisioner.attestation.challenge import QUOTED_PCRS
from provisioner.attestation.endorsement import endorsement_key_sha256
from provisioner.attestation.event_log.parse import parse_event_log
from provisioner.attestation.judge import (
    ChainPolicy,
    EvidenceAccepted,
    EvidenceRefused,
    KnownIdentity,
    judge_evidence,
    judge_keys,
    parse_keys,
)
from provisioner.attestation.measurements import FIRMWARE_PCRS, FirmwareMeasurements, learn_firmware
from provisioner.attestation.tpm.algorithms import Attribute
from tests.attestation.fake_tpm import FakeTpm, attest, endorsement_area, new_key
from tests.attestation.firmware_log import (
    BootParts,
    LoggedEvent,
    a_boot,
    action,
    pcr_values,
    program,
    sha256,
    write_log,
)
from tests.attestation.machine import FIRMWARE, IMAGE, NOW, FakeMachine, a_challenge, expected_boot

TPM = FakeTpm()
AS_IT_SHOULD = BootParts()


def judge(machine: FakeMachine, *firmware: FirmwareMeasurements) -> EvidenceAccepted | EvidenceRefused:
    issued, state = a_challenge(machine.tpm.endorsement, machine.tpm.attestation)
    return judge_evidence(machine.answer(issued), machine.identity, state, expected_boot(*firmware), NOW)


def refused(judged: object, reason: str) -> EvidenceRefused:
    assert isinstance(judged, EvidenceRefused), judged
    assert judged.reason == reason, judged
    assert len(judged.message) < 1000
    return judged


@pytest.mark.parametrize("ek", ["rsa", "ecc"])
@pytest.mark.parametrize("ak", ["rsa", "ecc"])
def test_an_honest_machine_is_accepted_with_all_that_it_proved(ek: str, ak: str) -> None:
    machine = FakeMachine(FakeTpm(ek, ak))
    accepted = judge(machine)
    assert isinstance(accepted, EvidenceAccepted), accepted
    assert accepted.keys.endorsement_key_sha256 == endorsement_key_sha256(machine.tpm.endorsement)
    assert (accepted.firmware, accepted.firmware_digest) == ("model-a-1.0", FIRMWARE.digest)
    assert accepted.tpm_counts_are_true
    assert (accepted.tpm_reset_count, accepted.tpm_restart_count) == (machine.tpm.resets, machine.tpm.restarts)


@pytest.mark.parametrize(
    ("parts", "reason", "words"),
    [
        (AS_IT_SHOULD.but(kernel=sha256(b"another kernel")), "KernelMismatch", "PCR 4: the kernel is sha256:"),
        (AS_IT_SHOULD.but(load_options=sha256(b"init=/bin/sh")), "CommandLineMismatch", "PCR 9: the command line is"),
        (AS_IT_SHOULD.but(initrd=sha256(b"another initrd")), "InitrdMismatch", "PCR 9: the initrd (stage-1) is"),
        (AS_IT_SHOULD.but(firmware=b"firmware 0.9"), "FirmwareMismatch", "PCR 0: firmware volume is"),
        (AS_IT_SHOULD.but(option_rom=sha256(b"a bad ROM")), "FirmwareMismatch", "PCR 2: boot services driver PciRoot"),
        (AS_IT_SHOULD.but(secure_boot=b"\0"), "FirmwareMismatch", "PCR 7: variable SecureBoot of 1 bytes is"),
        (
            AS_IT_SHOULD.but(ipxe=sha256(b"bad iPXE")),
            "BootProgramMismatch",
            "MAC(525400123456)/IPv4(10.80.0.2) is sha256:",
        ),
    ],
)
def test_a_machine_that_booted_something_else_is_refused_and_the_component_named(
    parts: BootParts, reason: str, words: str
) -> None:
    fault = refused(judge(FakeMachine(TPM, a_boot(parts))), reason)
    assert words in fault.message
    assert "expected" in fault.message
    assert isinstance(judge(FakeMachine(TPM)), EvidenceAccepted)


def test_what_differs_between_machines_of_one_kind_is_not_judged_unless_asked_for() -> None:
    other_order = a_boot(AS_IT_SHOULD.but(boot_order=b"\1\0"))
    assert isinstance(judge(FakeMachine(TPM, other_order)), EvidenceAccepted)
    log = parse_event_log(write_log(a_boot()))
    strict = learn_firmware("strict", log, IMAGE.kernel, judged=FIRMWARE_PCRS | {1})
    assert (
        "PCR 1: variable BootOrder" in refused(judge(FakeMachine(TPM, other_order), strict), "FirmwareMismatch").message
    )
    accepted = judge(FakeMachine(TPM), strict)
    assert isinstance(accepted, EvidenceAccepted)


def test_firmware_that_started_by_another_locality_is_another_firmware() -> None:
    machine = FakeMachine(TPM)
    issued, state = a_challenge(TPM.endorsement, TPM.attestation)
    values = pcr_values(a_boot(), QUOTED_PCRS, 3)
    quote, signature = TPM.quote(issued.nonce, values)
    evidence = replace(
        machine.answer(issued),
        quote=quote,
        signature=signature,
        pcr_values=values,
        event_log=write_log(a_boot(), locality=3),
    )
    fault = refused(judge_evidence(evidence, machine.identity, state, expected_boot(), NOW), "FirmwareMismatch")
    assert fault.message.startswith("PCR 0: started by locality 3, expected 0")
    learned = replace(expected_boot(), firmware=(replace(FIRMWARE, startup_locality=3),))
    assert isinstance(judge_evidence(evidence, machine.identity, state, learned, NOW), EvidenceAccepted)


def test_one_of_several_approved_firmwares_is_enough() -> None:
    newer = a_boot(AS_IT_SHOULD.but(firmware=b"firmware 2.0"))
    learned = learn_firmware("model-a-2.0", parse_event_log(write_log(newer)), IMAGE.kernel)
    accepted = judge(FakeMachine(TPM, newer), FIRMWARE, learned)
    assert isinstance(accepted, EvidenceAccepted)
    assert accepted.firmware == "model-a-2.0"
    nearest = refused(
        judge(
            FakeMachine(TPM, a_boot(AS_IT_SHOULD.but(firmware=b"firmware 2.0", secure_boot=b"\0"))), FIRMWARE, learned
        ),
        "FirmwareMismatch",
    )
    assert "firmware profile model-a-2.0" in nearest.message


def test_a_firmware_that_nobody_has_approved_is_learned_and_waits() -> None:
    issued, state = a_challenge(TPM.endorsement, TPM.attestation)
    machine = FakeMachine(TPM)
    nothing = replace(expected_boot(), firmware=())
    fault = refused(
        judge_evidence(machine.answer(issued), machine.identity, state, nothing, NOW), "FirmwareNotApproved"
    )
    assert fault.learned is not None
    assert fault.learned.digest == FIRMWARE.digest
    approved = replace(nothing, firmware=(fault.learned,), boot_programs={})
    accepted = judge_evidence(machine.answer(issued), machine.identity, state, approved, NOW)
    assert isinstance(accepted, EvidenceAccepted)


def test_a_boot_of_another_kernel_teaches_no_firmware() -> None:
    machine = FakeMachine(TPM, a_boot(AS_IT_SHOULD.but(kernel=sha256(b"another"))))
    assert refused(judge(machine), "KernelMismatch").learned is None


def test_firmware_may_try_a_known_boot_program_more_than_once() -> None:
    at = next(number for number, event in enumerate(a_boot()) if event.digest == AS_IT_SHOULD.ipxe)
    again = (
        *a_boot()[: at + 1],
        action(4, b"Returning from EFI Application from Boot Option"),
        action(4, b"Calling EFI Application from Boot Option"),
        *a_boot()[at:],
    )
    assert isinstance(judge(FakeMachine(TPM, again)), EvidenceAccepted)


@pytest.mark.parametrize("kind", [0x04, 0x05, 0x80000007, 0x0D, 0x03])
def test_a_foreign_program_is_not_hidden_by_another_type_in_the_log(kind: int) -> None:
    at = next(number for number, event in enumerate(a_boot()) if event.digest == AS_IT_SHOULD.ipxe)
    foreign = program(sha256(b"a bootkit"))
    disguised = LoggedEvent(4, kind, foreign.digest, b"Calling EFI Application from Boot Option")
    honest, lying = (FakeMachine(TPM, (*a_boot()[:at], each, *a_boot()[at:])) for each in (foreign, disguised))
    refused(judge(honest), "BootProgramMismatch")
    issued, state = a_challenge(TPM.endorsement, TPM.attestation)
    evidence = replace(honest.answer(issued), event_log=write_log(lying.events))
    # What is said not to have been measured at all is missed when the log is replayed.
    reason = "EventLogMismatch" if kind == 0x03 else "BootProgramMismatch"
    refused(judge_evidence(evidence, honest.identity, state, expected_boot(), NOW), reason)


@pytest.mark.parametrize("pcr", [8, 12, 14])
def test_what_a_boot_loader_that_we_have_not_measures_is_refused(pcr: int) -> None:
    with_loader = (*a_boot(), LoggedEvent(pcr, 0x0D, sha256(b"linux /vmlinuz"), b"linux /vmlinuz"))
    fault = refused(judge(FakeMachine(TPM, with_loader)), "MeasurementUnexpected")
    assert fault.message.startswith(f"PCR {pcr}: boot loader 'linux /vmlinuz' (sha256:")


def test_a_second_initrd_is_refused() -> None:
    more = (*a_boot(), LoggedEvent(9, 6, sha256(b"another"), b"\xec\x22\x3b\x8f\1\0\0\0x"))
    assert "nothing more is expected" in refused(judge(FakeMachine(TPM, more)), "MeasurementUnexpected").message


def test_a_kernel_that_measures_nothing_is_refused_in_words() -> None:
    silent = tuple(event for event in a_boot() if event.pcr != 9)
    fault = refused(judge(FakeMachine(TPM, silent)), "CommandLineMismatch")
    assert "PCR 9: the command line (sha256:" in fault.message
    assert "was not measured" in fault.message


def test_what_the_system_measures_after_the_log_counts_where_it_is_known() -> None:
    machine = FakeMachine(TPM)
    late = sha256(b"a hand-over by kexec")
    machine.events = (*a_boot(), LoggedEvent(14, 6, late, b""))
    issued, state = a_challenge(TPM.endorsement, TPM.attestation)
    evidence = replace(machine.answer(issued), event_log=write_log(a_boot()))
    for later, reason in (({}, "EventLogMismatch"), ({14: (sha256(b"another"),)}, "EventLogMismatch")):
        expected = replace(expected_boot(), later=later)
        refused(judge_evidence(evidence, machine.identity, state, expected, NOW), reason)
    known = replace(expected_boot(), later={14: (late,)})
    assert isinstance(judge_evidence(evidence, machine.identity, state, known, NOW), EvidenceAccepted)


def test_another_log_than_what_was_measured_is_refused() -> None:
    booted_another = FakeMachine(TPM, a_boot(AS_IT_SHOULD.but(kernel=sha256(b"another"))))
    issued, state = a_challenge(TPM.endorsement, TPM.attestation)
    evidence = replace(booted_another.answer(issued), event_log=write_log(a_boot()))
    fault = refused(judge_evidence(evidence, booted_another.identity, state, expected_boot(), NOW), "EventLogMismatch")
    assert fault.message.startswith("PCR 4: the event log leads to sha256:")


def test_other_values_than_the_tpm_signed_are_refused() -> None:
    booted_another = FakeMachine(TPM, a_boot(AS_IT_SHOULD.but(kernel=sha256(b"another"))))
    issued, state = a_challenge(TPM.endorsement, TPM.attestation)
    evidence = replace(
        booted_another.answer(issued),
        event_log=write_log(a_boot()),
        pcr_values=pcr_values(a_boot(), QUOTED_PCRS),
    )
    refused(judge_evidence(evidence, booted_another.identity, state, expected_boot(), NOW), "QuoteDigestMismatch")


def test_a_machine_without_the_endorsement_key_does_not_learn_the_secret() -> None:
    """A neighbour shows the victim's public endorsement key beside an attestation key of its own."""
    neighbour = FakeMachine(FakeTpm())
    victim = TPM.endorsement
    shown = replace(neighbour.keys, endorsement=victim)
    issued, state = a_challenge(victim, neighbour.tpm.attestation)
    with pytest.raises(ValueError, match=r"INTEGRITY"):
        neighbour.tpm.activate(issued.credential_blob, issued.encrypted_secret)
    quote, signature = neighbour.tpm.quote(issued.nonce, neighbour.values)
    guess = replace(
        FakeMachine(TPM).answer(a_challenge(TPM.endorsement, TPM.attestation)[0]),
        keys=shown,
        activation=bytes(32),
        quote=quote,
        signature=signature,
    )
    identity = KnownIdentity(registered=endorsement_key_sha256(victim))
    refused(judge_evidence(guess, identity, state, expected_boot(), NOW), "ActivationFailed")


def test_the_answer_to_one_challenge_answers_no_other() -> None:
    machine = FakeMachine(TPM)
    first, _ = a_challenge(TPM.endorsement, TPM.attestation)
    second, state = a_challenge(TPM.endorsement, TPM.attestation)
    replayed = machine.answer(first)
    refused(judge_evidence(replayed, machine.identity, state, expected_boot(), NOW), "ActivationFailed")
    mixed = replace(machine.answer(second), quote=replayed.quote, signature=replayed.signature)
    refused(judge_evidence(mixed, machine.identity, state, expected_boot(), NOW), "QuoteNonceMismatch")


def test_a_challenge_for_other_keys_is_not_answered_with_these() -> None:
    other = FakeTpm()
    _, state = a_challenge(other.endorsement, other.attestation)
    issued, _ = a_challenge(TPM.endorsement, TPM.attestation)
    machine = FakeMachine(TPM)
    refused(judge_evidence(machine.answer(issued), machine.identity, state, expected_boot(), NOW), "ChallengeMismatch")


@pytest.mark.parametrize(
    ("quote", "reason"),
    [
        ({"magic": 0xFF544346}, "EvidenceMalformed"),
        ({"kind": 0x8017}, "EvidenceMalformed"),
        ({"bank": 0x0004}, "QuoteSelectionMismatch"),
    ],
)
def test_what_the_key_signed_and_is_no_quote_of_this_bank_is_refused(quote: dict[str, int], reason: str) -> None:
    machine = FakeMachine(TPM)
    issued, state = a_challenge(TPM.endorsement, TPM.attestation)
    other = attest(issued.nonce, machine.values, **quote)
    evidence = replace(machine.answer(issued), quote=other, signature=TPM.sign(other))
    refused(judge_evidence(evidence, machine.identity, state, expected_boot(), NOW), reason)


def test_another_tpm_than_the_registered_is_refused_before_it_is_challenged() -> None:
    machine = FakeMachine(TPM)
    another = KnownIdentity(registered=endorsement_key_sha256(FakeTpm().endorsement))
    refused(judge_keys(machine.keys, another, NOW), "EndorsementKeyMismatch")
    unknown = refused(judge_keys(machine.keys, KnownIdentity(registered=None), NOW), "EndorsementKeyUnknown")
    assert endorsement_key_sha256(TPM.endorsement) in unknown.message
    required = replace(machine.identity, chain=ChainPolicy.REQUIRED)
    refused(judge_keys(machine.keys, required, NOW), "EndorsementCertificateRefused")


def test_keys_that_are_not_fit_are_refused_before_they_are_challenged() -> None:
    machine = FakeMachine(TPM)
    free = replace(TPM.attestation, attributes=TPM.attestation.attributes & ~Attribute.RESTRICTED)
    refused(judge_keys(replace(machine.keys, attestation=free), machine.identity, NOW), "AttestationKeyUnfit")
    signing = endorsement_area(TPM.endorsement_key, TPM.endorsement.attributes | Attribute.SIGN_ENCRYPT)
    refused(judge_keys(replace(machine.keys, endorsement=signing), machine.identity, NOW), "EndorsementKeyUnfit")
    read = parse_keys(TPM.endorsement.marshalled, TPM.attestation.marshalled, ())
    assert read == machine.keys
    refused(parse_keys(TPM.endorsement.marshalled[:-1], TPM.attestation.marshalled, ()), "EvidenceMalformed")


def test_a_key_of_another_size_is_not_fit() -> None:
    large = endorsement_area(new_key("rsa", 3072))
    machine = FakeMachine(TPM)
    fault = refused(judge_keys(replace(machine.keys, endorsement=large), machine.identity, NOW), "EndorsementKeyUnfit")
    assert fault.message == "the endorsement key has 3072 bits, expected 2048"
