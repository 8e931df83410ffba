"""Both sides together: the agent with a real software TPM, and the service's own judgement of what it sends."""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode, b64encode
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from provisioner.attestation.challenge import QUOTED_PCRS, ChallengeState, IssuedChallenge, public_area_sha256
from provisioner.attestation.continuation import ProvedBoot, judge_continuation, pcr_digest
from provisioner.attestation.endorsement import endorsement_key_sha256
from provisioner.attestation.judge import (
    ConfirmedQuote,
    Evidence,
    EvidenceAccepted,
    EvidenceRefused,
    KeysAccepted,
    KnownIdentity,
    OfferedKeys,
    confirm_quote,
    judge_evidence,
    judge_keys,
    parse_keys,
)
from provisioner.attestation.outcome import Reason
from provisioner.attestation.sealing import seal_configuration
from provisioner.node.join import SealError
from provisioner.node.prover import PATH, TpmProver
from provisioner.node.tpm import commands
from provisioner.node.tpm.hand_over import PCR, extend, hand_over_digest
from tests.attestation.firmware_log import a_boot, write_log
from tests.attestation.machine import NOW, a_challenge, expected_boot
from tests.node.machine import CONFIGURATION
from tests.node.tpm.swtpm import Swtpm

pytestmark = pytest.mark.programs

SERVER = "r01-u01"
HAND_OVER = hand_over_digest(
    kernel_sha256="sha256:" + "aa" * 32,
    stage1_sha256="sha256:" + "bb" * 32,
    image_digest="sha256:" + "cc" * 32,
    request_key_sha256="sha256:" + "dd" * 32,
    command_line="quiet",
)


class Machine:
    """One whose firmware has measured a boot into its TPM, with the agent's prover."""

    def __init__(self, tpm: Swtpm, root: Path) -> None:
        self.tpm = tpm
        self.said: list[str] = []
        self.prover = TpmProver(tpm.open, str(root), self.said.append)
        self._measure()
        (root / PATH[1:]).parent.mkdir(parents=True)
        (root / PATH[1:]).write_bytes(write_log(a_boot()))

    def _measure(self) -> None:
        device = self.tpm.open()
        for event in a_boot():
            device.call("TPM2_PCR_Extend", commands.pcr_extend(event.pcr, event.digest))
        device.close()

    def reset(self) -> None:
        """The firmware starts it again, and measures the same."""
        self.tpm.stop()
        self.tpm.start()
        self._measure()

    def kexec(self, digest: str) -> None:
        """What the agent measures; PCRs and log stay."""
        device = self.tpm.open()
        extend(device, digest)
        device.close()

    def show(self) -> OfferedKeys:
        """The keys, as the service reads them."""
        return keys_in(self.prover.evidence())

    def prove(self, issued: IssuedChallenge) -> Evidence | None:
        """The answer to a challenge, as the service reads it; None where the TPM cannot."""
        challenge = {
            "type": "TPM2",
            "credentialBlob": b64encode(issued.credential_blob).decode(),
            "encryptedSecret": b64encode(issued.encrypted_secret).decode(),
            "nonce": b64encode(issued.nonce).decode(),
            "pcrs": list(QUOTED_PCRS),
            "state": b64encode(issued.state).decode(),
        }
        sent: Any = self.prover.answer(json.loads(json.dumps(challenge)))
        if sent is None:
            return None
        sent = json.loads(json.dumps(sent))
        assert b64decode(sent["state"]) == issued.state
        return Evidence(
            keys=keys_in(sent),
            activation=b64decode(sent["activation"]),
            quote=b64decode(sent["quote"]),
            signature=b64decode(sent["signature"]),
            pcr_values={int(pcr): bytes.fromhex(value) for pcr, value in sent["pcrValues"].items()},
            event_log=b64decode(sent["eventLog"]),
        )


def keys_in(evidence: Any) -> OfferedKeys:
    keys = parse_keys(
        b64decode(evidence["endorsementKey"]),
        b64decode(evidence["attestationKey"]),
        [b64decode(one) for one in evidence["endorsementCertificates"]],
    )
    assert isinstance(keys, OfferedKeys), keys
    return keys


def challenge_for(keys: OfferedKeys) -> tuple[IssuedChallenge, ChallengeState]:
    return a_challenge(keys.endorsement, keys.attestation)


def registered(keys: OfferedKeys) -> KnownIdentity:
    return KnownIdentity(registered=endorsement_key_sha256(keys.endorsement))


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with Swtpm(tmp_path / "tpm") as tpm:
        yield Machine(tpm, tmp_path / "root")


@pytest.fixture
def intruder(tmp_path: Path) -> Iterator[Machine]:
    """Booted the same, with another TPM."""
    with Swtpm(tmp_path / "intruders-tpm") as tpm:
        yield Machine(tpm, tmp_path / "intruders-root")


def test_the_registered_machine_is_accepted_and_opens_what_is_sealed_to_it(machine: Machine) -> None:
    keys = machine.show()
    assert isinstance(judge_keys(keys, registered(keys), NOW), KeysAccepted)
    issued, state = challenge_for(keys)
    evidence = machine.prove(issued)
    assert evidence is not None
    accepted = judge_evidence(evidence, registered(keys), state, expected_boot(), NOW)
    assert isinstance(accepted, EvidenceAccepted), accepted
    assert accepted.tpm_counts_are_true, "the attestation key is of the endorsement hierarchy"
    sealed = seal_configuration(state.secret, state.nonce, SERVER, json.dumps(CONFIGURATION).encode())
    sent = {
        "type": "A256GCM",
        "nonce": b64encode(sealed.nonce).decode(),
        "ciphertext": b64encode(sealed.ciphertext).decode(),
    }
    with pytest.raises(SealError):
        machine.prover.open(sent, "r01-u02")
    assert machine.prover.open(sent, SERVER) == CONFIGURATION
    assert machine.tpm.loaded() == 0
    assert machine.said == []


def test_another_machine_is_refused_by_its_key(machine: Machine, intruder: Machine) -> None:
    refused = judge_keys(intruder.show(), registered(machine.show()), NOW)
    assert isinstance(refused, EvidenceRefused)
    assert refused.reason is Reason.ENDORSEMENT_KEY_MISMATCH


def test_another_machine_that_shows_the_registered_key_opens_no_credential(machine: Machine, intruder: Machine) -> None:
    honest, own = machine.show(), intruder.show()
    claimed = OfferedKeys(honest.endorsement, own.attestation)
    assert isinstance(judge_keys(claimed, registered(honest), NOW), KeysAccepted), "a public key is no secret"
    issued, _ = challenge_for(claimed)
    assert intruder.prove(issued) is None
    assert "was made for another TPM or another key" in intruder.said[0]


def test_a_proof_with_another_machines_quote_is_refused(machine: Machine, intruder: Machine) -> None:
    keys = machine.show()
    issued, state = challenge_for(keys)
    honest = machine.prove(issued)
    others_issued, _ = challenge_for(intruder.show())
    others = intruder.prove(others_issued)
    assert honest is not None
    assert others is not None
    forged = replace(honest, quote=others.quote, signature=others.signature)
    assert isinstance(judge_evidence(forged, registered(keys), state, expected_boot(), NOW), EvidenceRefused)
    assert isinstance(judge_evidence(honest, registered(keys), state, expected_boot(), NOW), EvidenceAccepted)


def judged(machine: Machine, *hand_overs: str) -> EvidenceAccepted | EvidenceRefused:
    """By a service that expects these hand-overs since the firmware."""
    keys = machine.show()
    issued, state = challenge_for(keys)
    evidence = machine.prove(issued)
    assert evidence is not None
    expected = replace(expected_boot(), later={PCR: [bytes.fromhex(digest[7:]) for digest in hand_overs]})
    machine.prover.close()
    return judge_evidence(evidence, registered(keys), state, expected, NOW)


def test_after_a_kexec_the_machine_is_accepted_by_the_hand_over_that_was_reported(machine: Machine) -> None:
    machine.kexec(HAND_OVER)
    assert isinstance(judged(machine, HAND_OVER), EvidenceAccepted)
    other = "sha256:" + hashlib.sha256(b"another kernel").hexdigest()
    machine.kexec(other)
    assert isinstance(judged(machine, HAND_OVER, other), EvidenceAccepted), "and by both after two"


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        ([HAND_OVER], []),
        ([], [HAND_OVER]),
        (["sha256:" + "ee" * 32], [HAND_OVER]),
        ([HAND_OVER, "sha256:" + "ee" * 32], [HAND_OVER]),
    ],
    ids=["passes for the firmware's", "by hand", "another kernel", "one more"],
)
def test_a_system_that_was_started_by_another_kexec_is_refused(
    machine: Machine, measured: list[str], expected: list[str]
) -> None:
    for digest in measured:
        machine.kexec(digest)
    refused = judged(machine, *expected)
    assert isinstance(refused, EvidenceRefused)
    assert refused.reason is Reason.EVENT_LOG_MISMATCH
    assert "PCR 14" in refused.message


def quoted(machine: Machine) -> tuple[Evidence, ConfirmedQuote]:
    keys = machine.show()
    issued, state = challenge_for(keys)
    evidence = machine.prove(issued)
    assert evidence is not None
    machine.prover.close()
    confirmed = confirm_quote(evidence, registered(keys), state, NOW)
    assert isinstance(confirmed, ConfirmedQuote), confirmed
    return evidence, confirmed


def on_record(evidence: Evidence, confirmed: ConfirmedQuote) -> ProvedBoot:
    assert confirmed.counts_are_true
    return ProvedBoot(
        endorsement_key_sha256=confirmed.keys.endorsement_key_sha256,
        attestation_key_sha256=public_area_sha256(evidence.keys.attestation),
        pcr_digest=pcr_digest(evidence.pcr_values),
        hand_over_pcr=evidence.pcr_values[PCR],
        reset_count=confirmed.quote.clock.reset_count,
        restart_count=confirmed.quote.clock.restart_count,
    )


def continues(machine: Machine, before: ProvedBoot, *hand_overs: str) -> str | None:
    evidence, confirmed = quoted(machine)
    refused = judge_continuation(confirmed, evidence, before, [bytes.fromhex(digest[7:]) for digest in hand_overs])
    return refused.reason if refused is not None else None


def test_what_the_agent_measures_before_a_kexec_is_what_the_service_expects(machine: Machine) -> None:
    before = on_record(*quoted(machine))
    assert before.hand_over_pcr == bytes(32)
    assert continues(machine, before) is None, "the same system asks once more"
    assert continues(machine, before, HAND_OVER) == "HandOverMismatch"
    machine.kexec(HAND_OVER)
    assert continues(machine, before, HAND_OVER) is None
    second = on_record(*quoted(machine))
    machine.kexec("sha256:" + "ee" * 32)
    assert continues(machine, second, "sha256:" + "ee" * 32) is None
    assert continues(machine, before, HAND_OVER) == "HandOverMismatch"


def test_a_system_that_the_firmware_started_anew_continues_nothing(machine: Machine, intruder: Machine) -> None:
    before = on_record(*quoted(machine))
    machine.kexec(HAND_OVER)
    assert continues(machine, before, HAND_OVER) is None
    machine.reset()
    machine.kexec(HAND_OVER)
    assert continues(machine, before, HAND_OVER) == "TpmWasReset"
    intruder.kexec(HAND_OVER)
    assert continues(intruder, before, HAND_OVER) == "EndorsementKeyMismatch"
