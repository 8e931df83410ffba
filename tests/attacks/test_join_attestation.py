"""Somebody has the server's address, and wants to be the server. docs/threat-model.md, "Who is not the machine"."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace

import pytest
from cryptography.exceptions import InvalidTag

from provisioner.api.machinery.conditions import find_condition
from provisioner.api.servers.attestation import AttestationStatus
from provisioner.api.servers.firmware_profile import FirmwareProfile
from provisioner.api.servers.server import PowerStatus
from provisioner.attestation.judge import Evidence
from provisioner.attestation.tpm.algorithms import Attribute
from provisioner.health.look import check_credential
from provisioner.join.admission.admit import Challenged, Denied, NotYet
from provisioner.join.admission.configuration import JoinConfiguration, SealedConfiguration
from provisioner.join.admission.service import Answer
from provisioner.join.admission.tpm import verifier
from provisioner.join.admission.tpm.firmware import MAX_LEARNED, MAX_LEARNED_OF_STRANGERS
from provisioner.rules.stage_timeouts import time_to_join
from tests.attestation.fake_tpm import FakeTpm, attestation_area
from tests.attestation.firmware_log import BootParts, a_boot, sha256, write_log
from tests.attestation.machine import FakeMachine
from tests.attestation.real_tpm import AK_ATTRIBUTES
from tests.join import samples
from tests.join.attesting import NAME, Agent, Desk, approved_firmware, is_handed_out

EVERY_POOL = pytest.mark.parametrize("attestation", ["Required", "Optional"])


def desk(agent: Agent, attestation: str) -> Desk:
    return Desk(attestation=attestation, registered=agent, firmware=approved_firmware())


def refused(answer: Answer, reason: str, before: Desk) -> None:
    """Nothing was handed out, and the server's status says why."""
    assert isinstance(answer, Denied), answer
    assert answer.reason == reason
    assert before.cluster.secrets == []
    join = before.server().status.join
    assert join is not None
    assert join.refused_reason == reason


@EVERY_POOL
def test_a_machine_with_another_tpm_is_refused_and_the_servers_own_is_not(attestation: str) -> None:
    honest, thief = Agent(), Agent(key=samples.OTHER_KEY)
    before = desk(honest, attestation)
    refused(before.ask(thief.shown(), key=thief.key), "EndorsementKeyMismatch", before)
    assert is_handed_out(before.joins(honest))


@EVERY_POOL
def test_who_shows_the_servers_endorsement_key_without_its_tpm_cannot_answer(attestation: str) -> None:
    """Endorsement keys are public. The credential opens in the TPM that has the private part, and nowhere else."""
    honest, thief = Agent(), Agent(key=samples.OTHER_KEY)
    before = desk(honest, attestation)
    stolen = {**thief.shown(), "endorsementKey": honest.shown()["endorsementKey"]}
    answer = before.ask(stolen, key=thief.key)
    assert isinstance(answer, Challenged)
    with pytest.raises(ValueError, match="TPM_RC_INTEGRITY"):
        thief.answered(answer.challenge)

    own = Desk(registered=thief, firmware=approved_firmware())
    guessed = {**thief.answered(own.challenged(thief)), **stolen, "state": answer.challenge["state"]}
    refused(before.ask(guessed, key=thief.key), "ActivationFailed", before)
    assert is_handed_out(before.joins(honest))


@EVERY_POOL
def test_a_captured_proof_that_is_sent_again_brings_a_challenge_and_nothing_else(attestation: str) -> None:
    honest = Agent()
    before = desk(honest, attestation)
    captured = honest.answered(before.challenged(honest))
    first = before.ask(captured)
    assert isinstance(first, SealedConfiguration)
    tokens = before.cluster.secrets
    elsewhere = before.ask(captured, address="10.80.0.99")
    assert isinstance(elsewhere, Denied)
    assert elsewhere.reason == "WrongAddress"
    assert isinstance(before.ask(captured), Challenged)
    assert before.cluster.secrets == tokens
    stranger = Agent()
    stranger.secret, stranger.nonce = b"\0" * 32, honest.nonce
    with pytest.raises(InvalidTag):
        stranger.opened(first)
    assert honest.opened(first)["nodeName"] == NAME


@EVERY_POOL
def test_a_proof_for_an_earlier_order_is_worth_nothing_for_the_next(attestation: str) -> None:
    honest = Agent()
    before = desk(honest, attestation)
    earlier = honest.answered(before.challenged(honest))
    order = samples.order(id="the-next-order")
    before.change(order=order, power=PowerStatus(order_id=order.id, order_time=samples.ago(5), state="On"))
    before.cluster.node = samples.node(prepared=order.id)
    again = before.ask(earlier)
    assert isinstance(again, Challenged)
    assert before.cluster.secrets == []
    assert is_handed_out(before.ask(honest.answered(again.challenge)))


@EVERY_POOL
def test_a_challenge_of_more_than_a_minute_ago_is_not_taken(attestation: str) -> None:
    honest = Agent()
    before = desk(honest, attestation)
    answered = honest.answered(before.challenged(honest))
    before.passes(61)
    assert isinstance(before.ask(answered), Challenged)
    assert before.cluster.secrets == []
    answered = honest.answered(before.challenged(honest))
    before.passes(50)
    assert is_handed_out(before.ask(answered))


def _other_log(honest: Evidence) -> Evidence:
    """The log of a good boot for registers that something else went into."""
    return replace(honest, event_log=write_log(a_boot()))


def _other_registers(honest: Evidence) -> Evidence:
    """And the registers of a good boot, which the TPM did not sign."""
    good = FakeMachine(FakeTpm())
    return replace(_other_log(honest), pcr_values=good.values)


@EVERY_POOL
@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        (lambda honest: honest, "KernelMismatch"),
        (_other_log, "EventLogMismatch"),
        (_other_registers, "QuoteDigestMismatch"),
    ],
)
def test_a_machine_that_booted_another_kernel_cannot_say_otherwise(
    attestation: str, lie: Callable[[Evidence], Evidence], reason: str
) -> None:
    """Its TPM is the server's own: somebody answered DHCP first, and gave it a kernel of theirs."""
    tpm = FakeTpm()
    rogue = Agent(FakeMachine(tpm, a_boot(BootParts().but(kernel=sha256(b"a kernel of theirs")))))
    before = desk(rogue, attestation)
    refused(before.joins(rogue, lie), reason, before)
    before.passes(20)
    assert is_handed_out(before.joins(Agent(FakeMachine(tpm))))


def _no_log(honest: Evidence) -> Evidence:
    return replace(honest, event_log=b"")


@EVERY_POOL
def test_a_server_that_has_proved_its_firmware_is_refused_once_it_drops_its_log(attestation: str) -> None:
    """The downgrade: what would show another kernel, or an implant, is said to be a firmware that keeps no log."""
    honest = Agent()
    before = desk(honest, attestation)
    assert is_handed_out(before.joins(honest))
    before.cluster.secrets.clear()
    rogue = replace(honest, machine=FakeMachine(honest.machine.tpm, a_boot(BootParts().but(kernel=sha256(b"theirs")))))
    for agent in (rogue, honest):
        refused(before.joins(agent, _no_log), "EventLogMissing", before)
        before.passes(20)
    assert is_handed_out(before.joins(honest)), "its twin, which shows what it booted"


def test_open_a_machine_that_never_proved_its_firmware_hides_it_where_proof_is_optional() -> None:
    """It is let in as one that proves nothing, sealed to the server's own TPM. Where proof is required it waits."""
    tpm = FakeTpm()
    rogue = Agent(FakeMachine(tpm, a_boot(BootParts().but(kernel=sha256(b"a kernel of theirs")))))
    optional, required = desk(rogue, "Optional"), desk(rogue, "Required")
    refused(optional.joins(rogue), "KernelMismatch", optional)
    optional.passes(20)
    assert isinstance(optional.joins(rogue, _no_log), SealedConfiguration)
    attested = find_condition(optional.server().status.conditions, "Attested")
    assert attested is not None
    assert (attested.status, attested.reason) == ("False", "EventLogMissing")
    assert isinstance(required.joins(rogue, _no_log), NotYet)
    assert required.cluster.secrets == []


@EVERY_POOL
@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        (lambda answer: replace(answer, activation=b"\0" * 32), "ActivationFailed"),
        (lambda answer: replace(answer, pcr_values=FakeMachine(FakeTpm()).values), "QuoteDigestMismatch"),
    ],
)
def test_without_a_log_keys_activation_and_quote_have_to_hold_all_the_same(
    attestation: str, lie: Callable[[Evidence], Evidence], reason: str
) -> None:
    rogue = Agent.booted(*a_boot(BootParts().but(kernel=sha256(b"a kernel of theirs"))))
    before = desk(rogue, attestation)
    refused(before.joins(rogue, lambda honest: lie(_no_log(honest))), reason, before)


@EVERY_POOL
def test_an_attestation_key_that_signs_whatever_it_is_given_is_refused(attestation: str) -> None:
    honest, liar = Agent(), Agent(key=samples.OTHER_KEY)
    tpm = liar.machine.tpm
    tpm.attestation = attestation_area(tpm.attestation_key, AK_ATTRIBUTES & ~Attribute.RESTRICTED)
    before = Desk(attestation=attestation, registered=liar, firmware=approved_firmware())
    refused(before.ask(liar.shown(), key=liar.key), "AttestationKeyUnfit", before)
    assert is_handed_out(desk(honest, attestation).joins(honest))


@EVERY_POOL
def test_a_server_whose_tpm_is_known_is_nobody_without_it(attestation: str) -> None:
    """The downgrade: what has no TPM says that it has none."""
    honest = Agent()
    before = desk(honest, attestation)
    refused(before.ask(key=samples.OTHER_KEY), "ProofMissing", before)
    assert is_handed_out(before.joins(honest))


def test_a_server_that_once_proved_itself_by_a_vendors_certificate_is_nobody_without_its_tpm() -> None:
    honest = Agent()
    before = Desk(attestation="Optional", firmware=approved_firmware())
    assert isinstance(before.ask(), JoinConfiguration), "its twin, of which nothing was ever proved"
    before = Desk(attestation="Optional", firmware=approved_firmware())
    proved = AttestationStatus(
        endorsement_key_sha256=str(honest.machine.identity.registered), known_by="Certificate", time=samples.ago(9)
    )
    before.change(attestation=proved)
    refused(before.ask(key=samples.OTHER_KEY), "ProofMissing", before)
    thief = Agent(key=samples.OTHER_KEY)
    refused(before.ask(thief.shown(), key=thief.key), "EndorsementKeyMismatch", before)


def test_a_pool_that_requires_proof_never_falls_back() -> None:
    before = Desk(attestation="Required", firmware=approved_firmware())
    for evidence in (None, {"type": "None"}):
        refused(before.ask(evidence), "AttestationRequired", before)


def contested(before: Desk) -> bool:
    condition = find_condition(before.server().status.conditions, "CredentialContested")
    return condition is not None and condition.status == "True"


def test_two_machines_that_ask_for_one_boots_credential_are_noticed_and_the_node_is_not_let_in() -> None:
    """Nothing is proved in this pool: first use wins, and nobody can say whether the first was the server."""
    before = Desk(attestation="Optional")
    assert is_handed_out(before.ask(key=samples.OTHER_KEY))
    assert check_credential(before.server()).ok
    second = before.ask()
    assert isinstance(second, Denied)
    assert second.reason == "AlreadyFetched"
    assert contested(before)
    assert [each.reason for each in before.events.told if each.type == "Warning"] == [
        "JoinRefused",
        "CredentialContested",
    ]
    finding = check_credential(before.server())
    assert finding.ok is False
    assert finding.patience_seconds == 0.0


def test_the_same_machine_that_asks_again_contests_nothing() -> None:
    before = Desk(attestation="Optional")
    for _ in range(3):
        assert is_handed_out(before.ask())
    assert not contested(before)
    join = before.server().status.join
    assert join is not None
    before.change(join=replace(join, certificate_token_id=join.token_id))
    assert isinstance(before.ask(), Denied), "its token is spent"
    assert not contested(before)


def test_the_next_ordered_boot_ends_it_and_a_late_request_contests_nothing() -> None:
    before = Desk(attestation="Optional")
    assert is_handed_out(before.ask(key=samples.OTHER_KEY))
    before.passes(time_to_join(None).total_seconds())
    assert isinstance(before.ask(), Denied)
    assert not contested(before), "a machine that was switched on by hand, long after"

    before = Desk(attestation="Optional")
    assert is_handed_out(before.ask(key=samples.OTHER_KEY))
    before.ask()
    assert contested(before)
    order = samples.order(id="the-next-order")
    before.change(order=order, power=PowerStatus(order_id=order.id, order_time=samples.ago(5), state="On"))
    before.cluster.node = samples.node(prepared=order.id)
    assert is_handed_out(before.ask())
    assert find_condition(before.server().status.conditions, "CredentialContested") is None


def test_who_asks_beside_a_machine_that_proved_itself_contests_nothing() -> None:
    honest = Agent()
    before = desk(honest, "Optional")
    assert is_handed_out(before.joins(honest))
    answer = before.ask(key=samples.OTHER_KEY)
    assert isinstance(answer, Denied)
    assert not contested(before)


def test_a_machine_with_a_tpm_that_nobody_approved_pins_nothing() -> None:
    """Trust on first use is none: the thief's key is shown to a person, and the server's own machine joins next."""
    thief, honest = Agent(key=samples.OTHER_KEY), Agent()
    before = Desk(attestation="Required", firmware=approved_firmware())
    answer = before.joins(thief)
    assert isinstance(answer, NotYet)
    assert answer.reason == "EndorsementKeyUnknown"
    before.register(str(honest.machine.identity.registered))
    before.passes(20)
    refused(before.ask(thief.shown(), key=thief.key), "EndorsementKeyMismatch", before)
    assert is_handed_out(before.joins(honest))


def test_a_state_that_was_made_up_or_changed_is_worth_nothing() -> None:
    honest = Agent()
    before = desk(honest, "Required")
    answered = honest.answered(before.challenged(honest))
    for state in (b"\0" * 200, b"x"):
        forged = {**answered, "state": b64encode(state).decode()}
        assert isinstance(before.ask(forged), Challenged)
    assert before.cluster.secrets == []
    assert is_handed_out(before.ask(answered))


def _invent(before: Desk, count: int) -> None:
    """Software plays a TPM at the server's address, and each time another firmware."""
    for number in range(count):
        stranger = Agent.booted(*a_boot(BootParts(firmware=b"invented %d" % number)))
        assert isinstance(before.joins(stranger), NotYet)
        before.passes(5)


def _learned_of(before: Desk, agent: Agent) -> str | None:
    """What waits for approval of the machine, once its key is registered and it has asked."""
    before.register(str(agent.machine.identity.registered))
    before.passes(60)
    answer = before.joins(agent)
    assert isinstance(answer, NotYet)
    assert answer.reason == "FirmwareNotApproved"
    attested = before.server().status.attestation
    assert attested is not None
    assert attested.pending is not None
    return attested.pending.firmware_profile


def test_firmware_that_a_stranger_invents_leaves_room_for_that_of_servers_whose_key_is_known() -> None:
    before = Desk()
    _invent(before, MAX_LEARNED_OF_STRANGERS + 4)
    assert len(before.cluster.read_all(FirmwareProfile)) == MAX_LEARNED_OF_STRANGERS
    learned = _learned_of(before, Agent())
    assert learned in {each.name for each in before.cluster.read_all(FirmwareProfile)}


def test_firmware_that_a_stranger_invents_succeeds_without_a_bound_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifier, "MAX_LEARNED_OF_STRANGERS", MAX_LEARNED)
    before = Desk()
    _invent(before, MAX_LEARNED)
    assert _learned_of(before, Agent()) is None
