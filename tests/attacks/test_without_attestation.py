"""Each defence of the attestation, taken away by itself, lets the attack through that it is for.

The attacks on the whole of it are in test_join_attestation.py, tests/join/test_tpm_join.py and tests/attestation; each
here is one of them, at the join service, which is asked with the defence and without.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

import pytest

from provisioner.api.machinery.conditions import find_condition
from provisioner.api.machinery.values import SecretBytes
from provisioner.api.servers.firmware_profile import FirmwareProfile
from provisioner.api.servers.server import PowerStatus
from provisioner.attestation.challenge import QUOTED_PCRS, activation_proof
from provisioner.attestation.endorsement import Vouched
from provisioner.attestation.event_log.parse import Event, EventLog
from provisioner.attestation.event_log.words import describe
from provisioner.attestation.judge import Evidence, EvidenceAccepted, judge_evidence
from provisioner.attestation.measurements import PROGRAMS_PCR
from provisioner.attestation.outcome import EvidenceRefused
from provisioner.attestation.tpm.algorithms import Attribute
from provisioner.join.admission.admit import Denied
from provisioner.join.admission.attestation import EvidenceQuestion
from provisioner.join.admission.service import CHALLENGES, Answer
from provisioner.join.admission.successor import Successor
from provisioner.join.admission.tpm.before import Predecessor, find_predecessor
from provisioner.join.admission.tpm.firmware import learned_profile, measurements_of
from provisioner.rules.rate import Rate
from tests.attestation.fake_tpm import FakeTpm, attest, attestation_area
from tests.attestation.firmware_log import BootParts, LoggedEvent, a_boot, pcr_values, program, sha256, write_log
from tests.attestation.machine import FIRMWARE, NOW, FakeMachine, a_challenge, expected_boot
from tests.attestation.real_tpm import AK_ATTRIBUTES, OWNER
from tests.attestation.test_endorsement import authority, leaf
from tests.join import samples
from tests.join.attesting import Agent, Desk, approved_firmware, is_handed_out
from tests.join.kexecing import hand_over, kexeced, told

VERIFIER: Final = "provisioner.join.admission.tpm.verifier."
SUCCESSOR: Final = "provisioner.join.admission.successor.Successor"
ADMIT: Final = "provisioner.join.admission.admit."
JUDGE: Final = "provisioner.attestation.judge."
QUOTE: Final = "provisioner.attestation.quote."
CHALLENGE: Final = "provisioner.attestation.challenge."
ENDORSEMENT: Final = "provisioner.attestation.endorsement."
BOOT: Final = "provisioner.attestation.boot."
ANY: Final = SimpleNamespace(compare_digest=lambda one, other: True)
"""In the place of `hmac`: everything is the same as everything."""
ANY_BOOT: Final = {f"{JUDGE}judge_boot": lambda log, expected: FIRMWARE}
YEARS: Final = (-3650, 3650)
ROGUE: Final = a_boot(BootParts().but(kernel=sha256(b"a kernel of theirs")))
GOOD_VALUES: Final = pcr_values(a_boot(), QUOTED_PCRS)


def programs_by_what_the_log_calls_them(log: EventLog) -> tuple[Event, ...]:
    return tuple(event for event in log.events if event.pcr == PROGRAMS_PCR and event.type == 0x80000003)


def nothing(*_: object, **__: object) -> None:
    """No objection."""


@dataclass(frozen=True)
class Attack:
    """act: what is tried, at a service of its own. reason: why it is refused. absent: by the names of what refuses it,
    what is there in its place."""

    reason: str
    act: Callable[[], Answer]
    absent: Mapping[str, object]

    def outcome(self) -> str:
        answer = self.act()
        return "HandedOut" if is_handed_out(answer) else str(getattr(answer, "reason", type(answer).__name__))


def desk(registered: Agent | None, attestation: str = "Required", **more: Any) -> Desk:
    return Desk(**{"attestation": attestation, "registered": registered, "firmware": approved_firmware(), **more})


def another_tpm() -> Answer:
    thief = Agent()
    before = desk(Agent())
    challenge = getattr(answer := before.ask(thief.shown()), "challenge", None)
    return answer if challenge is None else before.ask(thief.answered(challenge))


def first_that_is_shown() -> Answer:
    return desk(None).joins(Agent())


def certificate_of_a_stranger() -> Answer:
    """Of a CA that calls itself as the vendor's."""
    thief = Agent()
    vendor, stranger = (authority("Made-up TPM Root CA", days=YEARS) for _ in range(2))
    chain = [b64encode(leaf(stranger, thief.machine.tpm, days=YEARS)).decode()]
    before = desk(None, authorities=(vendor.certificate,))
    challenge = getattr(before.ask({**thief.shown(), "endorsementCertificates": chain}), "challenge", None)
    return before.ask({**thief.answered(challenge or {}), "endorsementCertificates": chain})


def stolen_endorsement_key() -> Answer:
    """The victim's public key beside one's own attestation key; what the credential holds is guessed."""
    honest, thief = Agent(), Agent()
    before = desk(honest)
    stolen = {**thief.shown(), "endorsementKey": honest.shown()["endorsementKey"]}
    challenge = getattr(before.ask(stolen), "challenge", {})
    return before.ask(_answered(thief, stolen, challenge, bytes(32)))


def read_challenge() -> Answer:
    """The same, and the state of the challenge is read, in which is what the credential holds."""
    honest, thief = Agent(), Agent()
    before = desk(honest)
    stolen = {**thief.shown(), "endorsementKey": honest.shown()["endorsementKey"]}
    challenge = getattr(before.ask(stolen), "challenge", {})
    try:
        secret = SecretBytes(b64decode(json.loads(b64decode(challenge["state"]))["secret"]))
    except ValueError:
        return Denied("StateUnreadable", "it is sealed")
    return before.ask(_answered(thief, stolen, challenge, activation_proof(secret, b64decode(challenge["nonce"]))))


def _answered(thief: Agent, shown: Mapping[str, Any], challenge: Mapping[str, Any], proof: bytes) -> dict[str, Any]:
    quote, signature = thief.machine.tpm.quote(b64decode(challenge["nonce"]), GOOD_VALUES)
    return {
        **shown,
        "state": challenge["state"],
        "activation": b64encode(proof).decode(),
        "quote": b64encode(quote).decode(),
        "signature": b64encode(signature).decode(),
        "pcrValues": {str(pcr): value.hex() for pcr, value in GOOD_VALUES.items()},
        "eventLog": b64encode(write_log(a_boot())).decode(),
    }


def captured_again() -> Answer:
    honest = Agent()
    before = desk(honest)
    captured = honest.answered(before.challenged(honest))
    assert is_handed_out(before.ask(captured))
    return before.ask(captured)


def for_an_earlier_order() -> Answer:
    honest = Agent()
    before = desk(honest)
    earlier = honest.answered(before.challenged(honest))
    order = samples.order(id="the-next-order")
    before.change(order=order, power=PowerStatus(order_id=order.id, order_time=samples.ago(5), state="On"))
    before.cluster.node = samples.node(prepared=order.id)
    return before.ask(earlier)


def too_late() -> Answer:
    honest = Agent()
    before = desk(honest)
    answered = honest.answered(before.challenged(honest))
    before.passes(61)
    return before.ask(answered)


def other_system(*events: LoggedEvent, lie: Callable[[Evidence], Evidence] = lambda honest: honest) -> Answer:
    """The server's own machine, whose boot somebody else has chosen."""
    rogue = Agent.booted(*events)
    return desk(rogue).joins(rogue, lie)


def booted(**parts: bytes) -> Callable[[], Answer]:
    return lambda: other_system(*a_boot(BootParts().but(**parts)))


def log_of_a_good_boot() -> Answer:
    return other_system(*ROGUE, lie=lambda honest: replace(honest, event_log=write_log(a_boot())))


def _good(honest: Evidence) -> Evidence:
    return replace(honest, event_log=write_log(a_boot()), pcr_values=GOOD_VALUES)


def values_of_a_good_boot() -> Answer:
    return other_system(*ROGUE, lie=_good)


def forged_quote(*, sign: Callable[[FakeTpm, bytes], bytes], **area: Any) -> Answer:
    """A quote of a good boot that no TPM has made, for the challenge's own nonce."""
    tpm = FakeTpm()
    if area:
        tpm.attestation = attestation_area(tpm.attestation_key, **area)
    rogue = Agent(FakeMachine(tpm, ROGUE))
    before = desk(rogue)
    challenge = getattr(answer := before.ask(rogue.shown()), "challenge", None)
    if challenge is None:
        return answer
    quoted = attest(b64decode(challenge["nonce"]), GOOD_VALUES)

    def lie(honest: Evidence) -> Evidence:
        return replace(_good(honest), quote=quoted, signature=sign(tpm, quoted))

    return before.ask(rogue.answered(challenge, lie))


def quote_of_an_earlier_boot() -> Answer:
    """Of the same TPM, as it had booted what it should; the machine runs another kernel since."""
    tpm = FakeTpm()
    before = tpm.quote(b"n" * 32, GOOD_VALUES)
    rogue = Agent(FakeMachine(tpm, ROGUE))

    def lie(honest: Evidence) -> Evidence:
        return replace(_good(honest), quote=before[0], signature=before[1])

    return desk(rogue).joins(rogue, lie)


def hidden_bootkit() -> Answer:
    """Started before iPXE, and told by the log as an action of the firmware."""
    at = next(number for number, event in enumerate(a_boot()) if event.digest == BootParts().ipxe)
    foreign = program(sha256(b"a bootkit"))
    disguised = LoggedEvent(4, 0x80000007, foreign.digest, b"Calling EFI Application from Boot Option")
    lying = write_log((*a_boot()[:at], disguised, *a_boot()[at:]))
    return other_system(*a_boot()[:at], foreign, *a_boot()[at:], lie=lambda honest: replace(honest, event_log=lying))


def firmware_that_nobody_approved() -> Answer:
    agent = Agent()
    return desk(agent, firmware=learned_profile(FIRMWARE)).joins(agent)


def changed_firmware() -> Answer:
    """After it was proved: what is unknown then is refused, and not learned."""
    agent = Agent()
    before = desk(agent)
    assert is_handed_out(before.joins(agent))
    return before.joins(replace(agent, machine=FakeMachine(agent.machine.tpm, a_boot(BootParts().but(firmware=b"x")))))


def without_its_tpm() -> Answer:
    return desk(Agent(), "Optional").ask(key=samples.OTHER_KEY)


def without_any_proof() -> Answer:
    return Desk(attestation="Required").ask()


def challenges_without_end() -> Answer:
    agent = Agent()
    before = desk(agent)
    for _ in range(int(CHALLENGES.burst)):
        before.ask(agent.shown())
    return before.joins(agent) if not hasattr(answer := before.ask(agent.shown()), "reason") else answer


def whatever_was_proved_last(question: EvidenceQuestion, successor: Successor) -> Predecessor | EvidenceRefused | None:
    """In the place of find_predecessor: of which boot the proof on record is does not count."""
    status = question.server.status
    assert status.attestation is not None
    record = replace(status.attestation, boot_id=question.order.boot_id_before)
    server = replace(question.server, status=replace(status, attestation=record))
    return find_predecessor(replace(question, server=server), successor)


def hand_over_without_its_key() -> Answer:
    agent = Agent()
    before = told(agent)
    before.passes(300)
    return before.joins(kexeced(agent, hand_over(), key=samples.OTHER_KEY))


def hand_over_of_a_system_that_proved_nothing() -> Answer:
    agent = Agent()
    before = told(agent)
    record = before.server().status.attestation
    assert record is not None
    before.change(attestation=replace(record, boot_id=samples.BOOT_ID))
    return before.joins(kexeced(agent, hand_over()))


def first_asks_second(*, proves: bool) -> Answer:
    """Who asks first gets the one credential of the boot; who comes second contests it, unless the first proved itself.

    Returns: the second's answer; its reason is what a person is told of it.
    """
    first = Agent()
    before = desk(first, "Optional") if proves else Desk(attestation="Optional")
    assert is_handed_out(before.joins(first) if proves else before.ask())
    answer = before.ask(key=samples.OTHER_KEY)
    assert isinstance(answer, Denied)
    found = find_condition(before.server().status.conditions, "CredentialContested")
    return Denied("Contested" if found is not None and found.status == "True" else "Unnoticed", answer.message)


ATTACKS = {
    "a machine with another TPM": Attack("EndorsementKeyMismatch", another_tpm, {f"{JUDGE}hmac": ANY}),
    "a machine with the first TPM that is shown": Attack(
        "EndorsementKeyUnknown",
        first_that_is_shown,
        {
            f"{VERIFIER}_authority": lambda *_: "anybody",
            f"{JUDGE}check_certificates": lambda *_: Vouched("anybody"),
        },
    ),
    "a certificate of a stranger that calls itself the vendor": Attack(
        "EndorsementKeyUnknown", certificate_of_a_stranger, {f"{ENDORSEMENT}_why_no_issuer": nothing}
    ),
    "the victim's endorsement key without its TPM": Attack(
        "ActivationFailed", stolen_endorsement_key, {f"{JUDGE}hmac": ANY}
    ),
    "the same, and reads in the state what the credential holds": Attack(
        "StateUnreadable",
        read_challenge,
        {
            f"{CHALLENGE}ChallengeKeys.seal": lambda self, plain, random: plain,
            f"{CHALLENGE}ChallengeKeys.unseal": lambda self, sealed: sealed,
        },
    ),
    "a captured proof once more": Attack("Challenged", captured_again, {f"{VERIFIER}fetch_id": lambda *_: ""}),
    "the proof for an earlier order": Attack(
        "Challenged", for_an_earlier_order, {f"{VERIFIER}fetch_id": lambda *_: ""}
    ),
    "an answer that is late": Attack("Challenged", too_late, {f"{CHALLENGE}LIFE_SECONDS": 3600}),
    "another kernel": Attack("KernelMismatch", lambda: other_system(*ROGUE), ANY_BOOT),
    "another initrd": Attack("InitrdMismatch", booted(initrd=sha256(b"another")), {f"{BOOT}_wrong_linux": nothing}),
    "another command line": Attack(
        "CommandLineMismatch", booted(load_options=sha256(b"init=/bin/sh")), {f"{BOOT}_wrong_linux": nothing}
    ),
    "another boot program": Attack(
        "FirmwareNotApproved", booted(ipxe=sha256(b"bad iPXE")), {f"{BOOT}_unknown_program": nothing}
    ),
    "the log of a good boot": Attack("EventLogMismatch", log_of_a_good_boot, {f"{JUDGE}replay": lambda log, pcrs: {}}),
    "log and values of a good boot": Attack("QuoteDigestMismatch", values_of_a_good_boot, {f"{QUOTE}hmac": ANY}),
    "a quote by a key that signs whatever it is given": Attack(
        "AttestationKeyUnfit",
        partial(forged_quote, sign=FakeTpm.sign, attributes=AK_ATTRIBUTES & ~Attribute.RESTRICTED),
        {f"{VERIFIER}check_attestation_key": nothing, f"{JUDGE}check_attestation_key": nothing},
    ),
    "a quote that somebody else has signed": Attack(
        "QuoteSignatureInvalid",
        partial(forged_quote, sign=lambda tpm, quoted: FakeTpm().sign(quoted)),
        {f"{QUOTE}verify_signature": lambda *_: True},
    ),
    "a quote of an earlier, good boot": Attack("QuoteNonceMismatch", quote_of_an_earlier_boot, {f"{QUOTE}hmac": ANY}),
    "a bootkit that the log calls an action": Attack(
        "FirmwareNotApproved", hidden_bootkit, {f"{BOOT}programs_started": programs_by_what_the_log_calls_them}
    ),
    "firmware that nobody approved": Attack(
        "FirmwareNotApproved",
        firmware_that_nobody_approved,
        {f"{VERIFIER}approved": lambda profiles: tuple(map(measurements_of, profiles))},
    ),
    "firmware that changed since it was proved": Attack(
        "FirmwareMismatch", changed_firmware, {f"{BOOT}_compare": lambda *_: (1, None)}
    ),
    "a server whose TPM is known, without it": Attack(
        "ProofMissing", without_its_tpm, {f"{ADMIT}known_endorsement_key": nothing}
    ),
    "no proof at all where it is required": Attack(
        "AttestationRequired", without_any_proof, {f"{ADMIT}_without_proof": nothing}
    ),
    "challenges without end": Attack(
        "TooManyChallenges",
        challenges_without_end,
        {"provisioner.join.admission.service.CHALLENGES": Rate(per_second=1000.0, burst=1000.0)},
    ),
    "a hand-over by a system that had proved nothing": Attack(
        "PredecessorUnproven",
        hand_over_of_a_system_that_proved_nothing,
        {f"{VERIFIER}find_predecessor": whatever_was_proved_last},
    ),
    "a hand-over without the key of the system before": Attack(
        "EventLogMismatch", hand_over_without_its_key, {f"{SUCCESSOR}.asks": lambda self, key: True}
    ),
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_the_attack_on_attestation_is_refused_by_that_defence(attack: Attack) -> None:
    assert attack.outcome() == attack.reason


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_the_attack_succeeds_without_that_defence_of_attestation(
    attack: Attack, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, instead in attack.absent.items():
        monkeypatch.setattr(name, instead)
    assert attack.outcome() == "HandedOut"


@pytest.mark.parametrize(("proves", "says", "noticed"), [(False, False, "Contested"), (True, True, "Unnoticed")])
def test_two_machines_are_not_told_apart_without_the_rule_who_contests(
    monkeypatch: pytest.MonkeyPatch, proves: bool, says: bool, noticed: str
) -> None:
    """A thief who was first goes unnoticed; whoever asks beside a machine that proved itself casts doubt on it."""
    outcome = Attack(noticed, partial(first_asks_second, proves=proves), {}).outcome
    assert outcome() == noticed
    monkeypatch.setattr(f"{ADMIT}_contests", lambda *_: says)
    assert outcome() == ("Contested" if says else "Unnoticed")


def learned_of_many(count: int) -> int:
    """How many profiles wait for approval after a machine has shown so many invented firmwares."""
    tpm = FakeTpm()
    before = desk(Agent(FakeMachine(tpm)), firmware=None)
    for number in range(count):
        before.joins(Agent(FakeMachine(tpm, a_boot(BootParts().but(firmware=b"%d" % number)))))
        before.passes(6)
    return len(before.cluster.read_all(FirmwareProfile))


def test_invented_firmware_fills_the_list_without_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    for most, found in ((3, 3), (1000, 6)):
        monkeypatch.setattr(f"{VERIFIER}MAX_LEARNED", most)
        assert learned_of_many(6) == found


def test_a_tpm_that_hides_its_resets_passes_for_a_new_boot_without_the_look_at_its_keys_hierarchy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = FakeMachine(FakeTpm())
    machine.tpm.hierarchy = OWNER
    issued, state = a_challenge(machine.tpm.endorsement, machine.tpm.attestation)
    expected = replace(expected_boot(), reset_count_above=6)

    def judged() -> object:
        return judge_evidence(machine.answer(issued), machine.identity, state, expected, NOW)

    assert getattr(judged(), "reason", None) == "TpmNotReset"
    monkeypatch.setattr(f"{JUDGE}counts_true_resets", lambda *_: True)
    assert isinstance(judged(), EvidenceAccepted)


def test_an_event_log_writes_to_a_terminal_without_the_words_made_printable(monkeypatch: pytest.MonkeyPatch) -> None:
    event = Event(1, 4, 0x80000007, bytes(32), b"\x1b[2Jall is well")
    assert "\x1b" not in describe(event)
    monkeypatch.setattr("provisioner.attestation.event_log.words.printable", lambda data, *_: data.decode())
    assert "\x1b[2J" in describe(event)
