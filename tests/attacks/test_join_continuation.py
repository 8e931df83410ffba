"""Root on a proved system, or who has what it knew, wants its next boot. docs/threat-model.md, "Kexec and the TPM"."""

from __future__ import annotations

from dataclasses import replace

import pytest

from provisioner.attestation import continuation
from provisioner.attestation.judge import Evidence
from provisioner.join.admission.admit import Denied
from provisioner.join.admission.service import Answer
from provisioner.join.admission.tpm import before as tpm_before
from provisioner.join.admission.tpm import verifier
from tests.attestation.fake_tpm import FakeTpm
from tests.join import samples
from tests.join.attesting import Agent, Desk, is_handed_out
from tests.join.kexecing import (
    FIRMWARE_BOOT,
    KEXEC_ORDER,
    NEXT_KEY,
    attested,
    hand_over,
    kexeced,
    proved,
    raw,
    spend_token,
    tell_to_kexec,
    told,
)

EVERY_POOL = pytest.mark.parametrize("attestation", ["Required", "Optional"])
OWN = hand_over("a kernel of its own")
INVENTED_BOOT = "44444444-8c55-4b57-9f8f-0d8a5a3f1e11"


def refused(answer: Answer, reason: str, before: Desk) -> None:
    """Nothing was handed out, and the server's status says why."""
    assert isinstance(answer, Denied), answer
    assert answer.reason == reason
    assert before.cluster.secrets == []
    join = before.server().status.join
    assert join is not None
    assert join.refused_reason == reason


def honest_twin_joins(before: Desk, agent: Agent) -> None:
    """The same machine, started as its agent said, by the same desk."""
    before.passes(20)
    assert is_handed_out(before.joins(kexeced(agent, hand_over())))


@EVERY_POOL
@pytest.mark.parametrize("measured", [(), (OWN,), (OWN, hand_over())], ids=["nothing", "its own", "both"])
def test_root_that_starts_a_kernel_of_its_own_without_the_agent_is_refused(
    attestation: str, measured: tuple[str, ...]
) -> None:
    """It has read the next boot's request key; the agent has said which system follows."""
    agent = Agent()
    before = told(agent, attestation)
    refused(before.joins(kexeced(agent, *measured)), "HandOverMismatch", before)
    honest_twin_joins(before, agent)


@EVERY_POOL
def test_root_whose_kernel_passes_for_one_that_the_firmware_started_is_refused(attestation: str) -> None:
    """The order is for the image that ran before: log and registers show it, and no hand-over was measured."""
    agent = Agent()
    before = told(agent, attestation)
    before.passes(300)
    rogue = kexeced(agent, key=samples.OTHER_KEY)
    refused(before.joins(rogue), "TpmNotReset", before)
    agent.machine.tpm.resets += 1
    before.passes(20)
    assert is_handed_out(before.joins(rogue)), "the firmware has started it since: it is what it shows"


@EVERY_POOL
def test_root_that_asks_for_the_next_order_by_the_boot_id_on_record_is_refused(attestation: str) -> None:
    """Its kubelet's certificate has reported another one before the order, so that its own is not the old boot's."""
    agent = Agent()
    before = proved(agent, attestation)
    spend_token(before)
    tell_to_kexec(before, says=hand_over(), boot_id=INVENTED_BOOT)
    before.passes(300)
    rogue = replace(kexeced(agent, key=samples.OTHER_KEY), boot_id=FIRMWARE_BOOT)
    refused(before.joins(rogue), "TpmNotReset", before)
    agent.machine.tpm.resets += 1
    before.passes(20)
    assert is_handed_out(before.joins(rogue)), "the firmware has started it since: it is what it shows"


def told_after_a_lie(agent: Agent, attestation: str) -> Desk:
    """Root on the proved system has its kubelet report another boot id, and then what its successor is known by."""
    before = proved(agent, attestation)
    spend_token(before)
    tell_to_kexec(before, says=hand_over(), boot_id=INVENTED_BOOT)
    return before


@EVERY_POOL
def test_root_that_says_another_boot_id_to_have_proved_nothing_is_refused(attestation: str) -> None:
    agent = Agent()
    before = told_after_a_lie(agent, attestation)
    refused(before.joins(kexeced(agent, OWN)), "HandOverUnreported", before)
    tell_to_kexec(before, says=hand_over())
    honest_twin_joins(before, agent)


@EVERY_POOL
def test_a_boot_that_got_no_certificate_waits_for_the_next_order_where_no_bmc_resets_it(attestation: str) -> None:
    agent = Agent()
    before = proved(agent, attestation)
    before.without_bmc()
    before.change(order=samples.order(id=KEXEC_ORDER, boot_id_before=None), power=None)
    before.cluster.node = samples.node(prepared=KEXEC_ORDER)
    before.passes(20)
    assert is_handed_out(before.joins(replace(agent, boot_id=FIRMWARE_BOOT)))


@EVERY_POOL
def test_a_quote_of_the_old_system_is_none_of_the_next(attestation: str) -> None:
    agent = Agent()
    before = told(agent, attestation)
    old, now = kexeced(agent), kexeced(agent, hand_over())
    kept: list[Evidence] = []

    def keep(evidence: Evidence) -> Evidence:
        kept.append(evidence)
        return evidence

    refused(before.joins(old, keep), "HandOverMismatch", before)

    def replay(evidence: Evidence) -> Evidence:
        return replace(evidence, quote=kept[0].quote, signature=kept[0].signature, pcr_values=kept[0].pcr_values)

    before.passes(20)
    refused(before.joins(now, replay), "QuoteNonceMismatch", before)
    honest_twin_joins(before, agent)


@EVERY_POOL
def test_register_values_with_the_hand_over_that_the_tpm_did_not_sign_are_refused(attestation: str) -> None:
    agent = Agent()
    before = told(agent, attestation)
    wanted = kexeced(agent, hand_over()).machine.values
    refused(
        before.joins(kexeced(agent), lambda honest: replace(honest, pcr_values=wanted)), "QuoteDigestMismatch", before
    )
    honest_twin_joins(before, agent)


@EVERY_POOL
def test_another_machine_that_stole_the_request_key_is_refused(attestation: str) -> None:
    agent = Agent()
    before = told(agent, attestation)
    thief = kexeced(agent, hand_over(), tpm=FakeTpm())
    refused(before.ask(thief.shown(), key=thief.key), "EndorsementKeyMismatch", before)
    before.passes(20)
    refused(before.ask(key=NEXT_KEY), "ProofMissing", before)
    honest_twin_joins(before, agent)


@EVERY_POOL
def test_a_machine_that_was_reset_and_measured_the_hand_over_by_itself_continues_nothing(attestation: str) -> None:
    agent = Agent()
    before = told(agent, attestation)
    tpm = agent.machine.tpm
    tpm.resets += 1
    refused(before.joins(kexeced(agent, hand_over())), "TpmWasReset", before)
    tpm.resets -= 1
    honest_twin_joins(before, agent)


@EVERY_POOL
def test_a_hand_over_of_an_earlier_kexec_is_none_of_the_next(attestation: str) -> None:
    """Its register has one extension, and the report of the second kexec asks for two."""
    agent = Agent()
    before = told(agent, attestation)
    assert is_handed_out(before.joins(kexeced(agent, hand_over())))
    before.cluster.secrets.clear()
    tell_to_kexec(before, says=OWN, order_id="order-3", boot_id=samples.BOOT_ID, key=samples.OTHER_KEY)
    boot_id = "44444444-8c55-4b57-9f8f-0d8a5a3f1e11"
    stale = replace(kexeced(agent, hand_over(), key=samples.OTHER_KEY), boot_id=boot_id)
    refused(before.joins(stale), "HandOverMismatch", before)
    before.passes(20)
    next_one = replace(kexeced(agent, hand_over(), OWN, key=samples.OTHER_KEY), boot_id=boot_id)
    assert is_handed_out(before.joins(next_one))
    assert attested(before).boot_id == boot_id


def test_a_kernel_of_its_own_succeeds_without_the_register_of_hand_overs(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent()
    before = told(agent)
    monkeypatch.setattr(continuation, "_other_registers", lambda *_: None)
    assert is_handed_out(before.joins(kexeced(agent)))


def test_what_passes_for_the_firmwares_succeeds_without_the_count_of_resets(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent()
    before = told(agent)
    before.passes(300)
    monkeypatch.setattr(verifier, "reset_count_before", lambda *_: None)
    assert is_handed_out(before.joins(kexeced(agent, key=samples.OTHER_KEY)))


def test_the_boot_id_on_record_succeeds_without_the_look_at_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent()
    before = proved(agent)
    spend_token(before)
    tell_to_kexec(before, says=hand_over(), boot_id=INVENTED_BOOT)
    before.passes(300)
    monkeypatch.setattr(tpm_before, "_asks_again", lambda question, attested: True)
    assert is_handed_out(before.joins(replace(kexeced(agent, key=samples.OTHER_KEY), boot_id=FIRMWARE_BOOT)))


def test_another_boot_id_succeeds_without_the_look_at_who_has_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent()
    before = told_after_a_lie(agent, "Optional")
    monkeypatch.setattr(tpm_before, "is_joined", lambda server: False)
    assert is_handed_out(before.joins(kexeced(agent, OWN)))


def test_open_root_that_measures_what_was_reported_and_starts_something_else_is_believed() -> None:
    """No register tells: software measures here. Lockdown and a start by the firmware stand against it."""
    agent = Agent()
    before = told(agent)
    assert raw(hand_over()) != raw(OWN)
    something_else = kexeced(agent, hand_over())
    assert is_handed_out(before.joins(something_else))
