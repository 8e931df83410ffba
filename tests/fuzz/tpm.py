"""Readers of what a TPM, firmware or a machine that lies about both sends, on either side; with good input for each."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from typing import Final

from provisioner.api.machinery.errors import Refused
from provisioner.attestation.challenge import QUOTED_PCRS
from provisioner.attestation.endorsement import check_certificates
from provisioner.attestation.event_log.parse import parse_event_log
from provisioner.attestation.event_log.replay import replay
from provisioner.attestation.event_log.words import LONGEST_WORDS, describe
from provisioner.attestation.judge import parse_keys
from provisioner.attestation.keys import check_attestation_key, check_endorsement_key
from provisioner.attestation.measurements import learn_firmware
from provisioner.attestation.outcome import EvidenceRefused
from provisioner.attestation.quote import verify_signature
from provisioner.attestation.tpm.attest import parse_quote
from provisioner.attestation.tpm.public import parse_public
from provisioner.join.admission.tpm.wire import challenge_to_wire, read_evidence
from provisioner.node.prover import read_challenge
from provisioner.node.tpm import commands, templates
from provisioner.node.tpm.device import TpmDevice, TpmError
from provisioner.node.tpm.identity import split_certificates
from tests.attestation.fake_tpm import FakeTpm, attest, zeros
from tests.attestation.firmware_log import KERNEL, a_boot, write_log
from tests.attestation.machine import FakeMachine, a_challenge, digest_of
from tests.attestation.test_endorsement import NOW, leaf
from tests.attestation.test_measurements import a_program
from tests.join.attesting import Agent
from tests.node.tpm.fake_tpm import answered

RECORDED: Final = Path(__file__).parents[1] / "attestation" / "recorded"
ANSWERS: Final[tuple[Callable[[bytes], object], ...]] = (
    commands.read_created,
    commands.read_read_public,
    commands.read_nv_size,
    commands.read_nv,
    commands.read_session,
    commands.read_activated,
    commands.read_quote,
    commands.read_pcrs,
)


@cache
def tpms() -> tuple[FakeTpm, FakeTpm]:
    return FakeTpm("ecc", "ecc"), FakeTpm("rsa", "rsa")


def evidence(data: bytes) -> None:
    """The field `evidence` of a join request, and whatever of it is read before the TPM has proved anything."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Refused("no JSON", hint="parse_join_request has a target of its own") from error
    if not isinstance(document, Mapping):
        raise Refused("no object", hint="parse_join_request has a target of its own")
    offered = read_evidence(document)
    keys = parse_keys(offered.endorsement_key, offered.attestation_key, offered.certificates)
    if isinstance(keys, EvidenceRefused):
        return
    check_endorsement_key(keys.endorsement)
    check_attestation_key(keys.attestation)
    check_certificates(keys.endorsement, keys.certificates, (), NOW)


def some_evidence() -> list[bytes]:
    agent = Agent()
    issued, _ = a_challenge(agent.machine.tpm.endorsement, agent.machine.tpm.attestation)
    shown = agent.shown()
    return [json.dumps(each).encode() for each in (shown, agent.answered(challenge_to_wire(issued)))]


def public_area(data: bytes) -> None:
    public = parse_public(data)
    check_endorsement_key(public)
    check_attestation_key(public)


def some_public_areas() -> list[bytes]:
    return [public.marshalled for tpm in tpms() for public in (tpm.endorsement, tpm.attestation)]


def quote(data: bytes) -> None:
    parse_quote(data)


def some_quotes() -> list[bytes]:
    return [attest(bytes(32), zeros())]


def signature(data: bytes) -> None:
    for tpm in tpms():
        verify_signature(tpm.attestation, b"signed", data)


def some_signatures() -> list[bytes]:
    return [tpm.sign(b"signed") for tpm in tpms()]


def certificate(data: bytes) -> None:
    check_certificates(tpms()[0].endorsement, [data], (), NOW)


def some_certificates() -> list[bytes]:
    return [leaf()]


def event_log(data: bytes) -> None:
    """As far as the service goes with one: an administrator is shown the words, and may approve what was learned."""
    log = parse_event_log(data)
    replay(log, QUOTED_PCRS)
    for event in log.events:
        words = describe(event)
        assert words.isprintable(), words
        assert len(words) <= LONGEST_WORDS, words
    with suppress(Refused):
        learn_firmware("learned", log, digest_of(KERNEL))


def some_event_logs() -> list[bytes]:
    return [write_log(a_boot()), *(path.read_bytes() for path in sorted(RECORDED.glob("*.eventlog")))]


def some_programs() -> list[bytes]:
    return [a_program(), a_program(plus=False, certificate=b"c" * 64, trailing=b"debug")]


def answer(data: bytes) -> None:
    """What follows the header of an answer, by each reader of one: the TPM chooses which it is given."""
    for reader in ANSWERS:
        with suppress(TpmError):
            reader(data)
    for found in split_certificates(data):
        assert data.find(found) >= 0


def some_answers() -> list[bytes]:
    public = commands.sized(templates.ATTESTATION_ECC.public)
    pcrs = bytes(4) + commands.selection([0, 7]) + (2).to_bytes(4, "big") + commands.sized(b"v" * 32) * 2
    quoted = commands.sized(attest(bytes(32), zeros())) + tpms()[0].sign(b"signed")
    sessions = b"\0\0\0\0\x01\0\0"
    return [
        public,
        pcrs,
        b"\x80\0\0\x01" + len(public).to_bytes(4, "big") + public + sessions,
        len(quoted).to_bytes(4, "big") + quoted + sessions,
        *some_certificates(),
    ]


class _Device(TpmDevice):
    """One whose end is not waited for: the real one leaves that to a child, as closing may take the TPM's time."""

    def _abandon(self) -> None:
        self.close()


def device(data: bytes) -> None:
    """Whatever comes from /dev/tpmrm0, header and all."""
    ours, theirs = socket.socketpair()
    with closing(theirs), closing(_Device(ours.detach(), "/dev/tpmrm0")) as opened:
        theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)
        opened.call("TPM2_ReadPublic", commands.read_public(1), 0.2)


def some_answers_of_a_device() -> list[bytes]:
    return [answered(commands.sized(b"r" * 32)), answered(b"", 0x8002)]


def challenge(data: bytes) -> None:
    """What a service, or who plays it, has the agent do with its TPM."""
    try:
        document = json.loads(data)
    except RecursionError as error:
        raise ValueError("no JSON") from error
    read_challenge(document)


def some_challenges() -> list[bytes]:
    machine = FakeMachine(tpms()[0])
    issued, _ = a_challenge(machine.tpm.endorsement, machine.tpm.attestation)
    return [json.dumps(challenge_to_wire(issued)).encode()]
