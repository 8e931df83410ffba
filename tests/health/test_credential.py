"""The check `Credential`: two machines asked for one boot's credential, and neither proved who it is."""

from __future__ import annotations

from dataclasses import replace

from provisioner.api.machinery.codec import from_json
from provisioner.api.machinery.meta import Condition
from provisioner.api.servers.server import Verification
from provisioner.health.decide import decide
from provisioner.health.decision import HealthDecision
from provisioner.health.situation import CheckInputs
from tests.health.objects import after, carried_on, situation

CONTESTED = Condition(
    type="CredentialContested",
    status="True",
    reason="SecondMachine",
    message="two machines asked",
    last_transition_time="2026-03-01T12:00:00Z",
)


def contested(world: CheckInputs) -> CheckInputs:
    status = world.server.status
    return replace(
        world, server=replace(world.server, status=replace(status, conditions=(*status.conditions, CONTESTED)))
    )


def failed(decision: HealthDecision) -> list[str]:
    found = from_json(Verification, decision.status["verification"])
    return [each.name for each in found.checks if each.result == "Failed"]


def verified(decision: HealthDecision) -> str:
    (found,) = (each for each in decision.status["conditions"] if each["type"] == "Verified")
    return str(found["status"])


def test_a_node_whose_credential_is_contested_is_not_let_in() -> None:
    honest = decide(situation(), after(0))
    assert failed(honest) == []
    decision = decide(contested(situation()), after(0))
    assert failed(decision) == ["Credential"]
    assert (verified(honest), verified(decision)) == ("True", "False")
    assert "have the server booted again" in str(decision.status["conditions"])


def test_a_node_that_was_let_in_before_stays_in() -> None:
    """Who takes an address must not be able to end what runs there."""
    before = situation()
    let_in = decide(before, after(0))
    world = contested(carried_on(before, let_in))
    for seconds in (1, 60, 3600):
        later = decide(world, after(seconds))
        assert failed(later) == []
        assert verified(later) == verified(let_in) == "True"
