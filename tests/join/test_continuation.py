"""A kernel that was started by kexec continues the proof of the system before it, or does not."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from provisioner.api.servers.attestation import AttestationStatus
from provisioner.api.servers.server import PowerStatus
from provisioner.attestation.judge import Evidence
from provisioner.join.admission.admit import Challenged, Denied, NotYet
from provisioner.join.admission.configuration import SealedConfiguration
from tests.attestation.fake_tpm import FakeTpm, attestation_area, new_key
from tests.attestation.firmware_log import BootParts, a_boot, sha256, write_log
from tests.attestation.machine import FakeMachine
from tests.attestation.real_tpm import OWNER
from tests.join import samples
from tests.join.attesting import Agent, Desk, approved_firmware, is_handed_out
from tests.join.kexecing import FIRMWARE_BOOT, attested, hand_over, kexeced, proved, raw, tell_to_kexec, told

EVERY_POOL = pytest.mark.parametrize("attestation", ["Required", "Optional"])


@EVERY_POOL
def test_what_a_proved_system_handed_over_to_joins_and_is_on_record(attestation: str) -> None:
    agent = Agent()
    before = told(agent, attestation)
    record = attested(before)
    assert (record.pcr14, record.tpm_reset_count, record.tpm_restart_count) == ("sha256:" + "00" * 32, 7, 2)
    after = kexeced(agent, hand_over())
    answer = before.joins(after)
    assert isinstance(answer, SealedConfiguration), answer
    assert after.opened(answer)["nodeName"] == "r01-u01"
    next_record = attested(before)
    assert (next_record.boot_id, next_record.firmware_profile) == (samples.BOOT_ID, approved_firmware().name)
    assert next_record.pcr14 == "sha256:" + hashlib.sha256(bytes(32) + raw(hand_over())).hexdigest()
    assert (next_record.tpm_reset_count, next_record.tpm_restart_count) == (7, 2)


def test_another_image_than_the_firmware_started_is_no_matter() -> None:
    """Of registers 4 and 9 the log goes on to tell of the system before."""
    agent = Agent()
    before = told(agent)
    image = before.cluster.objects[("Image", "gpu-node-9f9f9f9f9f9f")]
    image["spec"]["measurements"]["kernelAuthenticodeSHA256"] = "sha256:" + "12" * 32
    assert is_handed_out(before.joins(kexeced(agent, hand_over())))


def test_hand_overs_follow_each_other_and_none_is_left_out() -> None:
    agent, next_boot = Agent(), "44444444-8c55-4b57-9f8f-0d8a5a3f1e11"
    before = told(agent)
    second = hand_over("the second")
    assert is_handed_out(before.joins(kexeced(agent, hand_over())))
    tell_to_kexec(before, says=second, order_id="order-3", boot_id=samples.BOOT_ID, key=samples.OTHER_KEY)
    for measured, is_admitted in (((second,), False), ((hand_over(), second), True)):
        third = replace(kexeced(agent, *measured, key=samples.OTHER_KEY), boot_id=next_boot)
        before.passes(20)
        assert is_handed_out(before.joins(third)) == is_admitted


def test_an_answer_that_was_lost_is_made_good() -> None:
    agent = Agent()
    before = told(agent)
    after = kexeced(agent, hand_over())
    answered = after.answered(before.challenged(after))
    assert is_handed_out(before.ask(answered, key=after.key))
    again = before.ask(answered, key=after.key)
    assert isinstance(again, Challenged)
    assert is_handed_out(before.ask(after.answered(again.challenge), key=after.key))


def _other_registers(evidence: Evidence) -> Evidence:
    return replace(evidence, pcr_values={**evidence.pcr_values, 14: raw(hand_over())})


def _with_other_attestation_key(agent: Agent) -> Agent:
    tpm = FakeTpm()
    tpm.endorsement_key, tpm.endorsement = agent.machine.tpm.endorsement_key, agent.machine.tpm.endorsement
    tpm.attestation_key = new_key("ecc")
    tpm.attestation = attestation_area(tpm.attestation_key)
    return kexeced(agent, hand_over(), tpm=tpm)


def _with_counts(agent: Agent, resets: int, restarts: int) -> Agent:
    agent.machine.tpm.resets, agent.machine.tpm.restarts = resets, restarts
    return kexeced(agent, hand_over())


def _with_hidden_counts(agent: Agent) -> Agent:
    """Its quote is signed as a key of another hierarchy signs."""
    agent.machine.tpm.hierarchy = OWNER
    return kexeced(agent, hand_over())


def _with_other_registers(agent: Agent, **changes: bytes) -> Agent:
    return Agent(
        FakeMachine(agent.machine.tpm, a_boot(BootParts().but(**changes)), (raw(hand_over()),)),
        kexeced(agent).key,
    )


@EVERY_POOL
@pytest.mark.parametrize(
    ("starts", "reason"),
    [
        (lambda agent: kexeced(agent), "HandOverMismatch"),
        (lambda agent: kexeced(agent, hand_over("another")), "HandOverMismatch"),
        (lambda agent: kexeced(agent, hand_over(), hand_over()), "HandOverMismatch"),
        (lambda agent: kexeced(agent, hand_over("another"), hand_over()), "HandOverMismatch"),
        (lambda agent: _with_counts(agent, 8, 0), "TpmWasReset"),
        (lambda agent: _with_counts(agent, 7, 3), "TpmWasReset"),
        (lambda agent: _with_counts(agent, 6, 2), "TpmWasReset"),
        (_with_hidden_counts, "TpmWasReset"),
        (_with_other_attestation_key, "AttestationKeyMismatch"),
        (lambda agent: _with_other_registers(agent, firmware=b"implant"), "RegistersChanged"),
        (lambda agent: _with_other_registers(agent, boot_order=b"\1\0"), "RegistersChanged"),
        (lambda agent: _with_other_registers(agent, kernel=sha256(b"another")), "RegistersChanged"),
    ],
    ids=[
        "nothing measured", "something else", "twice", "something else before", "reset", "restarted with saved state",
        "cleared", "counts that are hidden", "another attestation key", "other firmware",
        "what no profile judges", "another kernel",
    ],
)  # fmt: skip
def test_what_does_not_continue_the_proved_boot_is_refused(starts: object, reason: str, attestation: str) -> None:
    agent = Agent()
    before = told(agent, attestation)
    assert callable(starts)
    answer = before.joins(starts(agent))
    assert isinstance(answer, Denied), answer
    assert answer.reason == reason
    assert answer.recorded
    assert before.cluster.secrets == []
    assert attested(before).boot_id == FIRMWARE_BOOT, "what was proved before stays on record"


@pytest.mark.parametrize("says", [None, "", "sha256:", "sha256:" + "g" * 64, hand_over() + "0", hand_over().upper()])
def test_a_hand_over_of_which_the_report_says_no_digest_is_refused(says: str | None) -> None:
    agent = Agent()
    before = proved(agent)
    tell_to_kexec(before, says=says)
    answer = before.joins(kexeced(agent, hand_over()))
    assert isinstance(answer, Denied)
    assert answer.reason == "HandOverUnreported"


def test_the_values_that_are_sent_are_those_that_the_tpm_signed() -> None:
    agent = Agent()
    before = told(agent)
    answer = before.joins(kexeced(agent), _other_registers)
    assert isinstance(answer, Denied)
    assert answer.reason == "QuoteDigestMismatch"


@pytest.mark.parametrize(
    "lost",
    [
        {"boot_id": samples.BOOT_ID},
        {"pcr14": None},
        {"tpm_reset_count": None, "tpm_restart_count": None},
        {"attestation_key_sha256": None},
    ],
    ids=["another boot was proved", "no PCR 14", "a key that hides the counts", "no key"],
)
def test_a_system_that_had_proved_nothing_or_too_little_hands_nothing_over(lost: dict[str, str | None]) -> None:
    agent = Agent()
    before = told(agent)
    before.change(attestation=replace(attested(before), **lost))
    answer = before.joins(kexeced(agent, hand_over()))
    assert isinstance(answer, NotYet)
    assert answer.reason == "PredecessorUnproven"


def test_a_system_that_never_proved_anything_hands_nothing_over() -> None:
    agent = Agent()
    before = Desk(registered=agent, firmware=approved_firmware(), attestation="Optional")
    tell_to_kexec(before, says=hand_over())
    assert is_handed_out(before.joins(kexeced(agent, hand_over())))
    assert attested(before) == AttestationStatus(pending=attested(before).pending), "it joined, and proved nothing"


def test_without_the_request_key_it_is_judged_as_one_that_the_firmware_started() -> None:
    agent = Agent.booted(*a_boot())
    before = told(agent)
    before.passes(300)
    answer = before.joins(kexeced(agent, hand_over(), key=samples.OTHER_KEY))
    assert isinstance(answer, Denied)
    assert answer.reason == "EventLogMismatch"
    assert "PCR 14" in answer.message


def tell_to_boot(before: Desk) -> None:
    """By its BMC."""
    order = samples.order(id="order-4", boot_id_before=FIRMWARE_BOOT)
    before.change(order=order, power=PowerStatus(order_id=order.id, order_time=samples.ago(5), state="On"))
    before.cluster.node = samples.node(prepared=order.id)


def test_the_firmware_starts_the_next_boot_by_a_reset() -> None:
    agent = Agent()
    before = proved(agent)
    tell_to_boot(before)
    answer = before.joins(agent)
    assert isinstance(answer, Denied)
    assert answer.reason == "TpmNotReset"
    agent.machine.tpm.resets += 1
    before.passes(20)
    assert is_handed_out(before.joins(agent))


def test_the_resets_of_a_mainboard_that_was_exchanged_say_nothing_of_the_new_one() -> None:
    before, new = proved(Agent()), Agent()
    tell_to_boot(before)
    new.machine.tpm.resets = 1
    before.register(str(new.machine.identity.registered))
    assert is_handed_out(before.joins(new))


def test_who_waits_for_an_image_that_is_published_again_shows_a_log_that_its_tpm_confirms() -> None:
    agent = Agent()
    before = Desk(registered=agent, firmware=approved_firmware(), image=samples.image())
    answer = before.joins(agent, lambda honest: replace(honest, event_log=write_log(a_boot()[:-1])))
    assert isinstance(answer, Denied)
    assert answer.reason == "EventLogMismatch"
