"""What machines with TPMs get of the join service, from the first request to what they alone can read."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Final

import pytest

from provisioner.api import FirmwareProfile, Image
from provisioner.api.machinery.codec import encode
from provisioner.api.machinery.conditions import find_condition
from provisioner.api.machinery.meta import ObjectMeta
from provisioner.api.servers.server import PowerStatus
from provisioner.attestation.endorsement import endorsement_key_sha256
from provisioner.attestation.judge import Evidence
from provisioner.join.admission.admit import Challenged, Denied, NotYet
from provisioner.join.admission.configuration import JoinConfiguration, SealedConfiguration
from provisioner.join.admission.service import CHALLENGES
from tests.attestation.fake_tpm import FakeTpm
from tests.attestation.firmware_log import (
    BootParts,
    LoggedEvent,
    a_boot,
    separator,
    sha256,
    variable,
    write_log,
)
from tests.attestation.machine import FakeMachine, new_keys
from tests.join import samples
from tests.join.attesting import Agent, Desk, approved_firmware, is_handed_out

OTHER_ORDER = "0d5f4a2e-0000-4000-8000-000000000002"


def desk(agent: Agent, attestation: str = "Required") -> Desk:
    """Everything is known: the machine's key, its Image, its firmware."""
    return Desk(attestation=attestation, registered=agent, firmware=approved_firmware())


def key_of(agent: Agent) -> str:
    return endorsement_key_sha256(agent.machine.tpm.endorsement)


@pytest.mark.parametrize(("endorsement", "attestation"), [("rsa", "rsa"), ("ecc", "ecc"), ("rsa", "ecc")])
def test_a_machine_that_proves_itself_gets_a_configuration_that_it_alone_can_read(
    endorsement: str, attestation: str
) -> None:
    agent = Agent(FakeMachine(FakeTpm(endorsement, attestation)))
    before = desk(agent)
    answer = before.joins(agent)
    assert isinstance(answer, SealedConfiguration), answer
    token = answer.configuration.bootstrap_token.reveal()
    assert token not in str(answer.to_wire())
    assert token not in repr(answer)
    assert agent.opened(answer) == answer.configuration.to_wire()


def test_what_was_proved_is_on_record_with_its_boot() -> None:
    agent = Agent()
    before = desk(agent)
    assert is_handed_out(before.joins(agent))
    server = before.server()
    attested = server.status.attestation
    assert attested is not None
    assert (attested.endorsement_key_sha256, attested.known_by) == (key_of(agent), "Registered")
    assert (attested.order_id, attested.boot_id) == (samples.ORDER, samples.BOOT_ID)
    assert attested.firmware_profile == approved_firmware().name
    assert attested.pcr_digest is not None
    assert attested.pending is None
    condition = find_condition(server.status.conditions, "Attested")
    assert condition is not None
    assert (condition.status, condition.reason) == ("True", "Registered")


def test_each_credential_is_told_of_with_its_evidence() -> None:
    agent = Agent()
    before = desk(agent)
    assert is_handed_out(before.joins(agent))
    (issued,) = before.server().status.credentials
    assert (issued.evidence, issued.endorsement_key_sha256, issued.known_by) == ("TPM2", key_of(agent), "Registered")
    assert (issued.address, issued.order_id) == (samples.ADDRESS, samples.ORDER)
    (told,) = before.events.told
    assert told.reason == "JoinConfigurationIssued"
    assert issued.token_id in told.message
    assert key_of(agent) in told.message


def test_what_was_handed_out_without_proof_says_so() -> None:
    before = Desk(attestation="Optional")
    assert isinstance(before.ask(), JoinConfiguration)
    (issued,) = before.server().status.credentials
    assert (issued.evidence, issued.endorsement_key_sha256, issued.known_by) == ("None", None, None)
    assert "nothing was proved" in before.events.told[0].message
    condition = find_condition(before.server().status.conditions, "Attested")
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "NothingProved")


def test_the_newest_sixteen_credentials_are_on_record() -> None:
    before = Desk(attestation="Optional")
    tokens = []
    for number in range(18):
        order = samples.order(id=f"order-{number}")
        before.change(order=order, power=PowerStatus(order_id=order.id, order_time=samples.ago(50), state="On"))
        before.cluster.node = samples.node(prepared=order.id)
        answer = before.ask()
        assert isinstance(answer, JoinConfiguration)
        tokens.append(answer.bootstrap_token.reveal()[:6])
    assert [each.token_id for each in before.server().status.credentials] == tokens[2:]


def test_an_answer_that_was_lost_is_made_good_by_another_challenge() -> None:
    agent = Agent()
    before = desk(agent)
    answered = agent.answered(before.challenged(agent))
    assert is_handed_out(before.ask(answered))
    again = before.ask(answered)
    assert isinstance(again, Challenged)
    second = before.ask(agent.answered(again.challenge))
    assert isinstance(second, SealedConfiguration)
    assert agent.opened(second)["bootstrapToken"] == second.configuration.bootstrap_token.reveal()
    assert len(before.cluster.secrets) == 1


def test_another_replica_takes_the_answer_to_a_challenge_also_when_the_key_has_been_rotated() -> None:
    agent = Agent()
    before = desk(agent)
    answered = agent.answered(before.challenged(agent))
    before.keys, before.replica = new_keys(previous=before.current_key), before.new_replica()
    assert is_handed_out(before.ask(answered))


def test_a_key_that_was_rotated_twice_ago_costs_another_challenge_and_no_boot() -> None:
    agent = Agent()
    before = desk(agent)
    answered = agent.answered(before.challenged(agent))
    before.keys = new_keys()
    again = before.ask(answered)
    assert isinstance(again, Challenged)
    assert is_handed_out(before.ask(agent.answered(again.challenge)))


def test_challenges_of_a_server_are_bounded_and_come_again() -> None:
    agent = Agent()
    before = desk(agent)
    answers = [before.ask(agent.shown()) for _ in range(int(CHALLENGES.burst) + 1)]
    assert [type(each) for each in answers] == [Challenged] * int(CHALLENGES.burst) + [NotYet]
    before.passes(10)
    assert is_handed_out(before.joins(agent))


def test_a_machine_whose_boot_is_not_armed_is_told_to_wait_and_not_challenged() -> None:
    agent = Agent()
    before = Desk(registered=agent, firmware=approved_firmware(), power=None)
    answer = before.ask(agent.shown())
    assert isinstance(answer, NotYet)
    assert answer.reason == "OrderNotCarriedOut"


@pytest.mark.parametrize("firmware", [approved_firmware(), None])
def test_a_key_that_nobody_knows_waits_for_a_person_and_then_lets_its_machine_in(
    firmware: FirmwareProfile | None,
) -> None:
    agent = Agent()
    before = Desk(firmware=firmware)
    answer = before.joins(agent)
    assert isinstance(answer, NotYet)
    assert answer.reason == "EndorsementKeyUnknown"
    assert f"attestation approve r01-u01 --key {key_of(agent)}" in answer.message
    assert before.cluster.secrets == []
    attested = before.server().status.attestation
    assert attested is not None
    assert attested.pending is not None
    assert attested.pending.endorsement_key_sha256 == key_of(agent)
    condition = find_condition(before.server().status.conditions, "Attested")
    assert condition is not None
    assert condition.reason == "EndorsementKeyUnknown"

    before.register(key_of(agent))
    _approve_all(before)
    before.passes(20)
    assert is_handed_out(before.joins(agent))
    proved = before.server().status.attestation
    assert proved is not None
    assert (proved.known_by, proved.pending) == ("Approved", None)


def _approve_all(before: Desk) -> None:
    for profile in before.cluster.read_all(FirmwareProfile):
        before.cluster.objects[("FirmwareProfile", profile.name)]["spec"]["approved"] = True


def test_firmware_that_nobody_approved_is_learned_once_and_waits_for_a_person() -> None:
    agent = Agent()
    before = Desk(registered=agent)
    for _ in range(2):
        answer = before.joins(agent)
        assert isinstance(answer, NotYet)
        assert answer.reason == "FirmwareNotApproved"
        before.passes(20)
    (learned,) = before.cluster.read_all(FirmwareProfile)
    assert not learned.spec.approved
    assert learned.name in answer.message
    assert learned.spec.events == approved_firmware().spec.events
    _approve_all(before)
    assert is_handed_out(before.joins(agent))


def test_an_image_that_says_nothing_of_tpms_has_to_be_published_again() -> None:
    agent = Agent()
    before = Desk(registered=agent, firmware=approved_firmware(), image=samples.image())
    answer = before.joins(agent)
    assert isinstance(answer, NotYet)
    assert answer.reason == "ImageNotMeasured"
    assert "publish it again" in answer.message


@pytest.mark.parametrize(
    "before", [Desk(attestation="Optional"), Desk(attestation="Optional", image=samples.image())],
    ids=["nothing is known of it", "nor of its image"],
)  # fmt: skip
def test_an_optional_pool_takes_a_tpm_that_nobody_knows_yet_seals_to_it_and_shows_it(before: Desk) -> None:
    agent = Agent()
    answer = before.joins(agent)
    assert isinstance(answer, SealedConfiguration)
    assert agent.opened(answer)["nodeName"] == "r01-u01"
    attested = before.server().status.attestation
    assert attested is not None
    assert attested.endorsement_key_sha256 is None, "nothing is trusted because it came first"
    assert attested.pending is not None
    assert attested.pending.endorsement_key_sha256 == key_of(agent)
    (issued,) = before.server().status.credentials
    assert (issued.endorsement_key_sha256, issued.known_by) == (key_of(agent), None)


def without_log(honest: Evidence) -> Evidence:
    return replace(honest, event_log=b"")


@pytest.mark.parametrize("image", [None, samples.image()], ids=["an image with measurements", "one without"])
def test_a_server_whose_firmware_never_gave_an_event_log_joins_an_optional_pool_and_pins_nothing(
    image: Image | None,
) -> None:
    agent = Agent()
    before = Desk(attestation="Optional", registered=agent, firmware=approved_firmware(), image=image)
    for _ in range(2):
        answer = before.joins(agent, without_log)
        assert isinstance(answer, SealedConfiguration)
        assert agent.opened(answer)["nodeName"] == "r01-u01"
        before.passes(20)
    attested = before.server().status.attestation
    assert attested is not None
    assert (attested.endorsement_key_sha256, attested.firmware_profile) == (None, None)
    condition = find_condition(before.server().status.conditions, "Attested")
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "EventLogMissing")
    assert "a newer firmware" in condition.message


def test_it_waits_in_a_pool_that_requires_proof_and_joins_once_it_gives_one() -> None:
    agent = Agent()
    before = desk(agent)
    answer = before.joins(agent, without_log)
    assert isinstance(answer, NotYet)
    assert answer.reason == "EventLogMissing"
    assert before.cluster.secrets == []
    before.passes(20)
    assert is_handed_out(before.joins(agent))


def test_a_key_that_nobody_knows_is_shown_first_also_without_an_event_log() -> None:
    agent = Agent()
    before = Desk(firmware=approved_firmware())
    for expected in ("EndorsementKeyUnknown", "EventLogMissing"):
        answer = before.joins(agent, without_log)
        assert isinstance(answer, NotYet)
        assert answer.reason == expected
        before.register(key_of(agent))
        before.passes(20)
    optional = Desk(attestation="Optional", firmware=approved_firmware())
    assert isinstance(optional.joins(agent, without_log), SealedConfiguration)


_BIOS: Final = (
    LoggedEvent(0, 8, sha256(b"2.0"), b"2.0"),
    LoggedEvent(2, 5, sha256(b"Start Option ROM Scan"), b"Start Option ROM Scan"),
    *(separator(register) for register in range(8)),
    LoggedEvent(4, 5, sha256(b"Calling INT 19h"), b"Calling INT 19h"),
    LoggedEvent(4, 13, sha256(b"boot image"), b"PXE"),
)
_CSM: Final = (variable(7, 0x80000001, "SecureBoot", b"\0"), *_BIOS)
_OMITTED: Final = (
    *(separator(register) for register in range(8)),
    LoggedEvent(4, 18, sha256(b"BOOT ATTEMPTS OMITTED"), b"BOOT ATTEMPTS OMITTED"),
)


def of_tpm12(events: tuple[LoggedEvent, ...], first: bytes = b"") -> bytes:
    """A log of SHA-1 records; `first` is the data of its first event, of a platform that names its specification."""
    header = struct.pack("<II20sI", 0, 3, b"", len(first)) + first if first else b""
    return header + b"".join(struct.pack("<II20sI", e.pcr, e.type, e.digest[:20], len(e.data)) + e.data for e in events)


LOGS_WITHOUT_A_BOOT: Final = {
    "a BIOS": write_log(_BIOS),
    "UEFI in its mode for a BIOS": write_log(_CSM),
    "boot attempts left out": write_log(_OMITTED),
    "SHA-1 records": of_tpm12(a_boot()),
    "SHA-1 records behind a Spec ID": of_tpm12(a_boot(), b"Spec ID Event02\0" + bytes(9)),
    "the bank SHA-1 alone": write_log(a_boot(), ((4, 20),)),
    "cut off": write_log(a_boot())[:-3],
    "zeros": bytes(4096),
}


@pytest.mark.parametrize("log", LOGS_WITHOUT_A_BOOT.values(), ids=LOGS_WITHOUT_A_BOOT.keys())
@pytest.mark.parametrize("is_known", [True, False], ids=["a known key", "an unknown key"])
def test_a_log_that_cannot_show_a_boot_is_as_none_until_the_server_has_proved_one(log: bytes, is_known: bool) -> None:
    agent = Agent.booted(*_BIOS)
    registered = agent if is_known else None
    for attestation in ("Optional", "Required"):
        before = Desk(attestation=attestation, registered=registered, firmware=approved_firmware())
        answer = before.joins(agent, lambda honest: replace(honest, event_log=log))
        condition = find_condition(before.server().status.conditions, "Attested")
        assert condition is not None
        assert (condition.status, condition.reason) == (
            "False",
            "EventLogMissing" if is_known else "EndorsementKeyUnknown",
        )
        assert is_handed_out(answer) == (attestation == "Optional"), answer
        if is_known:
            assert "booting by UEFI with TPM 2.0 and its SHA-256 bank on" in condition.message


@pytest.mark.parametrize("log", LOGS_WITHOUT_A_BOOT.values(), ids=LOGS_WITHOUT_A_BOOT.keys())
@pytest.mark.parametrize("attestation", ["Required", "Optional"])
def test_a_server_that_has_proved_its_boot_never_falls_back_to_a_log_without_one(attestation: str, log: bytes) -> None:
    agent = Agent()
    before = desk(agent, attestation)
    assert is_handed_out(before.joins(agent))
    bios = replace(agent, machine=FakeMachine(agent.machine.tpm, _BIOS))
    answer = before.joins(bios, lambda honest: replace(honest, event_log=log))
    assert isinstance(answer, Denied)
    assert (answer.reason, "attestation forget r01-u01" in answer.message) == ("EventLogMissing", True)


def test_an_answer_that_has_no_field_for_the_log_is_refused() -> None:
    agent = Agent()
    before = desk(agent, "Optional")
    answered = agent.answered(before.challenged(agent))
    del answered["eventLog"]
    answer = before.ask(answered)
    assert isinstance(answer, Denied)
    assert (answer.reason, "has no eventLog" in answer.message) == ("EvidenceMalformed", True)


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        (BootParts().but(kernel=sha256(b"another kernel")), "KernelMismatch"),
        (BootParts().but(initrd=sha256(b"another initrd")), "InitrdMismatch"),
        (BootParts().but(load_options=sha256(b"init=/bin/sh")), "CommandLineMismatch"),
    ],
)
@pytest.mark.parametrize("attestation", ["Required", "Optional"])
def test_a_machine_that_booted_something_else_is_refused_and_told_what(
    parts: BootParts, reason: str, attestation: str
) -> None:
    agent = Agent.booted(*a_boot(parts))
    before = desk(agent, attestation)
    answer = before.joins(agent)
    assert isinstance(answer, Denied)
    assert answer.reason == reason
    assert answer.recorded
    assert before.cluster.secrets == []


def test_firmware_that_changed_since_it_was_proved_is_refused_in_an_optional_pool_too() -> None:
    agent = Agent()
    before = desk(agent, "Optional")
    assert is_handed_out(before.joins(agent))
    changed = replace(agent, machine=FakeMachine(agent.machine.tpm, a_boot(BootParts().but(firmware=b"implant"))))
    answer = before.joins(changed)
    assert isinstance(answer, Denied)
    assert answer.reason in ("FirmwareNotApproved", "FirmwareMismatch")
    assert "PCR 0" in answer.message


def test_who_is_refused_because_an_approved_profile_was_edited_is_told_so() -> None:
    """The registers that a learned profile judges were edited after the server had proved itself with it."""
    agent, profile = Agent(), approved_firmware()
    before = desk(agent)
    assert is_handed_out(before.joins(agent))
    edited = replace(profile, spec=replace(profile.spec, judged=(0,)))
    before.cluster.objects["FirmwareProfile", profile.name] = encode(edited)
    answer = before.joins(agent)
    assert isinstance(answer, Denied)
    assert f"FirmwareProfile {profile.name} has the content of learned-" in answer.message
    assert f"kubectl provision attestation forget {before.server().name}" in answer.message
    assert "the boot host writes it again" not in answer.message, "of a server with a proof nothing is learned"
    kept = replace(edited, metadata=ObjectMeta(name="model-a"))
    before.cluster.objects["FirmwareProfile", kept.name] = encode(kept)
    assert is_handed_out(before.joins(agent))


def test_an_update_of_the_firmware_is_learned_once_its_administrator_has_the_former_proof_forgotten() -> None:
    agent = Agent()
    before = desk(agent)
    assert is_handed_out(before.joins(agent))
    updated = replace(agent, machine=FakeMachine(agent.machine.tpm, a_boot(BootParts().but(firmware=b"2.7"))))
    assert isinstance(before.joins(updated), Denied)
    assert [profile.name for profile in before.cluster.read_all(FirmwareProfile)] == [approved_firmware().name]
    proved = before.server().status.attestation
    assert proved is not None
    before.change(attestation=replace(proved, firmware_profile=None))
    waits = before.joins(updated)
    assert isinstance(waits, NotYet)
    assert waits.reason == "FirmwareNotApproved"
    _approve_all(before)
    assert is_handed_out(before.joins(updated))


@pytest.mark.parametrize("evidence", [{"type": "TPM2"}, {"type": "TPM2", "endorsementKey": "?"}, {"type": "SEV"}])
def test_evidence_that_cannot_be_read_is_refused_in_every_pool(evidence: dict[str, str]) -> None:
    for attestation in ("Required", "Optional"):
        answer = Desk(attestation=attestation).ask(evidence)
        assert isinstance(answer, Denied)
        assert answer.reason in ("EvidenceMalformed", "EvidenceUnknown")
