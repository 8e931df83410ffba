"""How many machines' proofs one core verifies in a second.

`python -m tests.benchmarks.attestation_bench`. All that a replica does for one machine's join, but HTTP, JSON and
Kubernetes: keys read and judged, a credential made and a challenge sealed; then keys read again, the challenge opened,
activation, quote and event log judged, the configuration sealed. The machines' own part (tests/attestation/fake_tpm.py)
is not counted. The bound is the public-key cryptography alone that the protocol cannot do without, by the same library:
the credential's encryption, the quote's signature, and those of the certificates where they are asked for. Contenders
and bounds take turns; processor time of one thread.

Simulated: the TPMs. The event log has as many events as a server with many option ROMs.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

from provisioner.attestation.boot import ExpectedBoot
from provisioner.attestation.challenge import ChallengeBinding, ChallengeState, issue, open_, public_area_sha256
from provisioner.attestation.event_log.parse import parse_event_log
from provisioner.attestation.judge import (
    ChainPolicy,
    EvidenceAccepted,
    KeysAccepted,
    KnownIdentity,
    OfferedKeys,
    judge_evidence,
    judge_keys,
    parse_keys,
)
from provisioner.attestation.measurements import learn_firmware
from provisioner.attestation.sealing import seal_configuration
from tests.attestation.fake_tpm import FakeTpm
from tests.attestation.firmware_log import LoggedEvent, a_boot, program, sha256, write_log
from tests.attestation.machine import IMAGE, KEYS, NOW, FakeMachine, challenged, expected_boot
from tests.attestation.test_endorsement import INTERMEDIATE, ROOT, leaf
from tests.benchmarks.record import Check, Goal, begin, ratios, spread

GOALS: Final = {"rate": Goal("proofs a second on two cores", 500, at_least=True)}
OPTION_ROMS: Final = 170
TPMS: Final = 4
"""Of each kind: their keys take turns."""
CONFIGURATION: Final = bytes(4000)


@dataclass(frozen=True)
class Contender:
    """Kinds of endorsement and attestation key, and whether a certificate is asked for, too."""

    endorsement: str
    attestation: str
    certified: bool

    @property
    def words(self) -> str:
        kinds = {"rsa": "RSA-2048", "ecc": "P-256"}
        chain = ", certificate and one intermediate" if self.certified else ""
        return f"endorsement key {kinds[self.endorsement]}, attestation key {kinds[self.attestation]}{chain}"


CONTENDERS: Final = tuple(
    Contender(ek, ak, certified)
    for ek, ak, certified in (
        ("ecc", "ecc", False), ("rsa", "ecc", False), ("rsa", "rsa", False), ("ecc", "ecc", True), ("rsa", "ecc", True),
    )
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the table; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--machines", type=int, default=200, help="in each repetition")
    options, _ = parser.parse_known_args(arguments)
    run = begin("attestation")
    fleets = {contender: Fleet(contender) for contender in CONTENDERS}
    ours: dict[Contender, list[float]] = {contender: [] for contender in CONTENDERS}
    bare: dict[Contender, list[float]] = {contender: [] for contender in CONTENDERS}
    for _ in range(options.repetitions):
        for contender, fleet in fleets.items():
            ours[contender].append(fleet.verify(options.machines))
            bare[contender].append(fleet.bound(options.machines))
    return run.finish(table(ours, bare, options.repetitions, options.machines), check_goals(ours), options.repetitions)


def check_goals(ours: dict[Contender, list[float]]) -> list[Check]:
    return [GOALS["rate"].check(each.words, (2 / seconds for seconds in spent)) for each, spent in ours.items()]


class Fleet:
    """Machines of one kind, and what the service knows of them."""

    def __init__(self, contender: Contender) -> None:
        self.contender = contender
        roms = tuple(program(sha256(b"%d" % number), kind=0x80000004, pcr=2) for number in range(OPTION_ROMS))
        events: tuple[LoggedEvent, ...] = (*roms, *a_boot())
        firmware = learn_firmware("many-roms", parse_event_log(write_log(events)), IMAGE.kernel)
        self.expected: ExpectedBoot = expected_boot(firmware)
        self.machines = []
        for _ in range(TPMS):
            tpm = FakeTpm(contender.endorsement, contender.attestation)
            self.machines.append(FakeMachine(tpm, events))
        self.certificates = {
            id(machine): (leaf(tpm=machine.tpm), INTERMEDIATE.der) if contender.certified else ()
            for machine in self.machines
        }

    def identity(self, machine: FakeMachine) -> KnownIdentity:
        if not self.contender.certified:
            return machine.identity
        return replace(machine.identity, authorities=(ROOT.certificate,), chain=ChainPolicy.REQUIRED)

    def verify(self, machines: int) -> float:
        """Processor seconds of one machine's two requests."""
        spent = 0.0
        for number in range(machines):
            machine = self.machines[number % TPMS]
            identity, certificates = self.identity(machine), self.certificates[id(machine)]
            wire = machine.tpm.endorsement.marshalled, machine.tpm.attestation.marshalled
            began = time.process_time()
            keys = read_keys(*wire, certificates)
            assert isinstance(judge_keys(keys, identity, NOW), KeysAccepted)
            asker = asked_by(keys)
            issued = issue(KEYS, asker, keys.endorsement, keys.attestation, now=NOW.timestamp())
            spent += time.process_time() - began
            answer = machine.answer(issued)
            began = time.process_time()
            keys = read_keys(*wire, certificates)
            state = open_(KEYS, issued.state, asked_by(keys), now=NOW.timestamp() + 1)
            assert isinstance(state, ChallengeState)
            judged = judge_evidence(replace(answer, keys=keys), identity, state, self.expected, NOW)
            assert isinstance(judged, EvidenceAccepted), judged
            seal_configuration(state.secret, state.nonce, "r1-s01", CONFIGURATION)
            spent += time.process_time() - began
        return spent / machines

    def bound(self, machines: int) -> float:
        """Processor seconds of the public-key operations alone."""
        machine = self.machines[0]
        endorsement, attestation = machine.tpm.endorsement_key.public_key(), machine.tpm.attestation_key
        operations: list[Callable[[], object]] = [_encrypt(endorsement), _verify(attestation)]
        if self.contender.certified:
            chain = [x509.load_der_x509_certificate(der) for der in self.certificates[id(machine)]]
            # Asked twice: before the challenge and after it.
            operations += 2 * [lambda: chain[0].verify_directly_issued_by(chain[1])]
            operations += 2 * [lambda: chain[1].verify_directly_issued_by(ROOT.certificate)]
        began = time.process_time()
        for _ in range(machines):
            for operation in operations:
                operation()
        return (time.process_time() - began) / machines


def read_keys(endorsement: bytes, attestation: bytes, certificates: Sequence[bytes]) -> OfferedKeys:
    keys = parse_keys(endorsement, attestation, certificates)
    assert isinstance(keys, OfferedKeys)
    return keys


def asked_by(keys: OfferedKeys) -> ChallengeBinding:
    return challenged(keys.endorsement, keys.attestation, endorsement_key_sha256=public_area_sha256(keys.endorsement))


def _encrypt(key: rsa.RSAPublicKey | ec.EllipticCurvePublicKey) -> Callable[[], object]:
    if isinstance(key, rsa.RSAPublicKey):
        oaep = padding.OAEP(padding.MGF1(hashes.SHA256()), hashes.SHA256(), b"IDENTITY\0")
        return lambda: key.encrypt(bytes(32), oaep)
    return lambda: ec.generate_private_key(ec.SECP256R1()).exchange(ec.ECDH(), key)


def _verify(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> Callable[[], object]:
    data = bytes(145)
    if isinstance(key, rsa.RSAPrivateKey):
        public, signature = key.public_key(), key.sign(data, padding.PKCS1v15(), hashes.SHA256())
        return lambda: public.verify(signature, data, padding.PKCS1v15(), hashes.SHA256())
    point, signed = key.public_key(), key.sign(data, ec.ECDSA(hashes.SHA256()))
    return lambda: point.verify(signed, data, ec.ECDSA(hashes.SHA256()))


def table(
    ours: dict[Contender, list[float]], bare: dict[Contender, list[float]], repetitions: int, machines: int
) -> str:
    """As it stands in RESULTS.md."""
    lines = [
        "## Proofs by TPM that one core verifies",
        "",
        f"All that a replica does for one machine's join but HTTP, JSON and Kubernetes; an event log of "
        f"{OPTION_ROMS + len(a_boot())} events. {repetitions} repetitions of {machines} machines, in turns with the "
        f"bound: the public-key operations alone. Processor time of one thread, median (least to most).",
        "",
        "| keys | ms a machine | a second on one core | bound, ms | ratio to the bound |",
        "|---|---|---|---|---|",
    ]
    for contender in CONTENDERS:
        rates = [1 / seconds for seconds in ours[contender]]
        spreads = (
            spread([1000 * each for each in ours[contender]], ".2f"),
            spread(rates, ",.0f"),
            spread([1000 * each for each in bare[contender]], ".2f"),
            spread(ratios(ours[contender], bare[contender]), ".1f"),
        )
        lines.append(f"| {' | '.join((contender.words, *spreads))} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
