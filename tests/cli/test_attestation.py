"""`kubectl provision attestation approve`, as decided: what a person may vouch for, and what not by accident."""

from __future__ import annotations

from dataclasses import replace

import pytest

from provisioner.api.attestation import AttestationStatus, SeenMachine
from provisioner.api.errors import Refused
from provisioner.api.server import Server
from provisioner.cli.kubectl.attestation_command import decide_approval
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
    approval = decide_approval(showing(), None, firmware=False)
    assert (approval.key, approval.profile) == (SHOWN, None)


def test_firmware_is_approved_only_if_asked_for() -> None:
    waits = showing(registered=SHOWN, profile="learned-1")
    assert decide_approval(waits, None, firmware=False).profile is None
    approval = decide_approval(waits, None, firmware=True)
    assert (approval.key, approval.profile) == (None, "learned-1")


@pytest.mark.parametrize(
    ("waits", "key", "firmware", "words"),
    [
        (server(), None, False, "nothing of Server"),
        (showing(), OTHER, False, f"expected {OTHER}"),
        (showing(), None, True, "no FirmwareProfile was learned"),
        (showing(registered=OTHER), None, False, f"is registered with endorsement key {OTHER}"),
    ],
)
def test_what_nobody_showed_or_expects_is_not_approved(
    waits: Server, key: str | None, firmware: bool, words: str
) -> None:
    with pytest.raises(Refused, match=words):
        decide_approval(waits, key, firmware=firmware)


def test_a_new_mainboard_is_approved_by_its_key() -> None:
    assert decide_approval(showing(registered=OTHER), SHOWN, firmware=False).key == SHOWN


def test_why_says_what_waits_for_a_person_and_by_which_command() -> None:
    told = "\n".join(identity(replace(subject(), server=showing(profile="learned-1"))))
    assert f"showed endorsement key {SHOWN}" in told
    assert f"kubectl provision attestation approve {server().name}" in told
    assert "FirmwareProfile learned-1" in told
    assert list(identity(subject())) == []
