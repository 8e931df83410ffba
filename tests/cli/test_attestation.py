"""`kubectl provision attestation`, as decided: what a person may vouch for or have forgotten, and what comes of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.meta import Condition, ObjectMeta
from provisioner.api.pools.node_pool import NodePool, NodePoolSpec
from provisioner.api.servers.attestation import AttestationStatus, SeenMachine
from provisioner.api.servers.server import Server
from provisioner.cli.kubectl.attestation_command import decide_approval
from provisioner.cli.kubectl.forgetting import Forgetting, decide_forgetting, forget_event
from provisioner.cli.why.identity import identity
from tests.cli.situations import server, subject

SHOWN, OTHER = "sha256:" + "ab" * 32, "sha256:" + "cd" * 32


def showing(*, registered: str | None = None, profile: str | None = None) -> Server:
    made = server()
    seen = SeenMachine(endorsement_key_sha256=SHOWN, firmware_profile=profile, time="2026-03-01T11:00:00Z")
    return replace(
        made,
        spec=replace(made.spec, endorsement_key_sha256=registered),
        status=replace(made.status, attestation=AttestationStatus(pending=seen)),
    )


def test_the_key_that_was_shown_is_registered() -> None:
    approval = decide_approval(showing(), None, firmware=None)
    assert (approval.key, approval.profile) == (SHOWN, None)


def test_firmware_is_approved_only_if_asked_for() -> None:
    waits = showing(registered=SHOWN, profile="learned-1")
    assert decide_approval(waits, None, firmware=None).profile is None
    approval = decide_approval(waits, None, firmware="learned-1")
    assert (approval.key, approval.profile) == (None, "learned-1")


@pytest.mark.parametrize(
    ("waits", "key", "firmware", "words"),
    [
        (server(), None, None, "nothing of Server"),
        (showing(), OTHER, None, f"expected {OTHER}"),
        (showing(), None, "learned-1", "no FirmwareProfile was learned"),
        (showing(profile="learned-2"), None, "learned-1", "FirmwareProfile learned-2 .*, expected learned-1"),
        (showing(), None, "learned-1", f"kubectl get server {server().name} .*status.attestation.pending"),
        (showing(registered=OTHER), None, None, f"is registered with endorsement key {OTHER}"),
    ],
)
def test_what_nobody_showed_or_expects_is_not_approved(
    waits: Server, key: str | None, firmware: str | None, words: str
) -> None:
    with pytest.raises(Refused, match=words):
        decide_approval(waits, key, firmware=firmware)


def test_a_new_mainboard_is_approved_by_its_key() -> None:
    assert decide_approval(showing(registered=OTHER), SHOWN, firmware=None).key == SHOWN


def test_why_says_what_waits_for_a_person_and_by_which_command() -> None:
    told = "\n".join(identity(replace(subject(), server=showing(profile="learned-1"))))
    assert f"showed endorsement key {SHOWN}" in told
    assert f"kubectl provision attestation approve {server().name}" in told
    assert "FirmwareProfile learned-1" in told
    assert list(identity(subject())) == []


def test_why_names_no_command_that_is_refused() -> None:
    waits = replace(subject(), server=showing(registered=SHOWN, profile="learned-1"), firmware_obstacle="was changed")
    assert list(identity(waits)) == ["its firmware cannot be approved: was changed"]


def test_why_asks_for_no_approval_of_firmware_that_was_approved_since() -> None:
    waits = replace(subject(), server=showing(registered=SHOWN, profile="learned-1"), firmware_is_approved=True)
    assert list(identity(waits)) == [
        "its firmware is approved since, by FirmwareProfile learned-1: its next boot proves it"
    ]


PROVED = AttestationStatus(
    endorsement_key_sha256=SHOWN, known_by="Registered", firmware_profile="model-a", time="2026-03-01T11:00:00Z"
)


def proved(*, registered: str | None = SHOWN, **status: Any) -> Server:
    made = server(attestation=PROVED, **status)
    return replace(made, spec=replace(made.spec, endorsement_key_sha256=registered))


def pool(attestation: str) -> NodePool:
    spec: Any = NodePoolSpec(image_ref="gpu-node-2")
    return NodePool(metadata=ObjectMeta(name="gpu"), spec=replace(spec, attestation=attestation))


def foretold(forgetting: Forgetting) -> str:
    return "\n".join(forgetting.next_boot)


def test_the_proof_is_forgotten_and_the_registered_key_stays_unless_it_is_said() -> None:
    forgetting = decide_forgetting(proved(), pool("Required"), key=False)
    assert (forgetting.record, forgetting.key) == (True, None)
    assert f"only the machine with endorsement key {SHOWN} joins" in foretold(forgetting)
    assert (decide_forgetting(proved(), pool("Required"), key=True).key) == SHOWN


@pytest.mark.parametrize(
    ("key", "attestation", "words"),
    [
        (False, "Required", "else it waits until: kubectl provision attestation approve"),
        (False, "Optional", "else it joins and proves nothing until"),
        (True, "Required", "none joins until the key that it shows is approved"),
        (True, "Optional", "any that has its address joins and proves nothing until"),
    ],
)
def test_it_says_what_the_next_boot_will_need_and_that_a_kexec_is_none(key: bool, attestation: str, words: str) -> None:
    told = foretold(decide_forgetting(proved(), pool(attestation), key=key))
    assert words in told
    assert f"NodePool gpu, attestation {attestation}" in told
    assert f"kubectl provision power-cycle {server().name}" in told


def test_a_server_without_a_pool_is_told_of_as_one_that_has_to_prove() -> None:
    assert "none joins" in foretold(decide_forgetting(proved(), None, key=True))


@pytest.mark.parametrize("key", [True, False])
def test_of_a_server_of_which_nothing_is_on_record_nothing_is_written(key: bool) -> None:
    assert not decide_forgetting(server(), pool("Required"), key=key).is_any
    registered = replace(server(), spec=replace(server().spec, endorsement_key_sha256=SHOWN))
    assert decide_forgetting(registered, pool("Required"), key=key).is_any is key, "what a first try left over"


def test_the_event_says_who_had_it_forgotten_what_and_why() -> None:
    now = datetime(2026, 3, 1, tzinfo=UTC)
    event = forget_event(decide_forgetting(proved(), None, key=True), "ada", "mainboard exchanged", now, "1")
    assert event["involvedObject"]["name"] == server().name
    assert event["message"].startswith("ada took back what it had proved and shown of itself and its registered")
    assert event["message"].endswith(f"{SHOWN}: mainboard exchanged")
    assert (
        len(forget_event(decide_forgetting(proved(), None, key=True), "ada", "x" * 2000, now, "1")["message"]) == 1024
    )


def refused_for(reason: str, type_: str = "Joined") -> tuple[Condition, ...]:
    time = "2026-03-01T11:30:00Z"
    return (Condition(type=type_, status="False", reason=reason, message="its words", last_transition_time=time),)


@pytest.mark.parametrize("reason", ["FirmwareMismatch", "EventLogMissing", "TpmNotReset", "EndorsementKeyMismatch"])
def test_why_names_the_command_where_a_proof_on_record_stands_against_the_machine(reason: str) -> None:
    forget = f"kubectl provision attestation forget {server().name}"
    refused = proved(conditions=refused_for(reason))
    assert forget in "\n".join(identity(replace(subject(), server=refused)))
    never = replace(refused, status=replace(refused.status, attestation=None))
    others = [proved(conditions=refused_for("OrderExpired")), proved(), never]
    for other in others:
        assert forget not in "\n".join(identity(replace(subject(), server=other)))


def test_why_says_that_a_firmware_gives_no_event_log() -> None:
    without = server(conditions=refused_for("EventLogMissing", "Attested"))
    assert list(identity(replace(subject(), server=without))) == ["not proved: its words"]
