"""The tables of a disturbance: each phase is decided on, each step has one writer, and the documentation shows them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import get_args

import pytest

from provisioner.api.nodes.contract import MAINTENANCE_CONDITIONS
from provisioner.api.nodes.maintenance import (
    DISTURBING_PHASES,
    FINAL_PHASES,
    MaintenancePhase,
    MaintenanceStatus,
)
from provisioner.maintenance.decide import DECIDED_IN, RUNS_ON
from provisioner.maintenance.status.record import note
from provisioner.rules.disturbance import BOOT_STEPS, PHASES, RebootUnderWay, answering_order, may_follow
from tests.maintenance.situations import NOON, attempt, node, server

ARCHITECTURE = Path(__file__).parents[2] / "ARCHITECTURE.md"
ALL_PHASES: tuple[MaintenancePhase, ...] = get_args(MaintenancePhase)


def test_every_phase_is_in_the_table_and_every_one_that_is_not_final_is_decided_on() -> None:
    assert set(PHASES) == set(ALL_PHASES)
    assert set(DECIDED_IN) == set(ALL_PHASES) - set(FINAL_PHASES)
    assert set(RUNS_ON) < set(DECIDED_IN)


def test_the_way_of_a_reboot_is_in_the_table_and_each_phase_can_be_reached() -> None:
    way: tuple[MaintenancePhase, ...] = ("Waiting", *DISTURBING_PHASES, "Completed")
    assert all(may_follow(before, after) for before, after in pairwise(way))
    assert {after for rule in PHASES.values() for after in rule.next} == set(ALL_PHASES)


def test_each_phase_may_end_and_what_has_ended_stays_so() -> None:
    for phase, rule in PHASES.items():
        assert rule.next == () if phase in FINAL_PHASES else set(FINAL_PHASES) < set(rule.next)


def test_conditions_of_a_node_are_true_until_its_maintenance_has_ended() -> None:
    assert {each for rule in PHASES.values() for each in rule.conditions} == set(MAINTENANCE_CONDITIONS)
    assert [phase for phase, rule in PHASES.items() if not rule.conditions] == list(FINAL_PHASES)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Waiting", "Rebooting"),
        ("Claiming", "Rebooting"),
        ("Verifying", "Waiting"),
        ("Completed", "Waiting"),
        (None, "Drained"),
    ],
)
def test_a_phase_that_does_not_follow_is_never_written(before: MaintenancePhase, after: MaintenancePhase) -> None:
    status = replace(MaintenanceStatus(), phase=before)
    with pytest.raises(ValueError, match=f"phase {after} of a Maintenance does not follow {before}"):
        note(status, NOON, "Reason", "words", phase=after)
    assert note(status, NOON, "Reason", "words").phase == (before or "Waiting")


def test_an_order_answers_the_attempt_whose_id_it_repeats_and_no_other() -> None:
    asked = attempt(number=2)
    assert answering_order(server(request="try-2"), asked) is not None
    assert answering_order(server(request="try-1"), asked) is None
    assert answering_order(server(), asked) is None
    assert answering_order(replace(server(), status=replace(server().status, order=None)), asked) is None


def test_each_step_of_a_reboot_by_the_agent_is_awaited_until_its_writer_has_taken_it() -> None:
    begun = RebootUnderWay(attempt=attempt(number=2), server=server(), node=node(prepared="o1"))
    assert begun.next_step is not None
    assert begun.next_step.name == "Ordered"
    ordered = replace(begun, server=server(order="o2", request="try-2"))
    assert ordered.next_step is not None
    assert ordered.next_step.name == "Prepared"
    assert "boot order o2" in ordered.next_step.awaited(ordered)
    prepared = replace(ordered, node=node(prepared="o2"))
    assert prepared.next_step is not None
    assert prepared.next_step.name == "Told"
    assert replace(prepared, node=None).next_step is None


def table(heads: tuple[str, ...], *rows: tuple[str, ...]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in (heads, *rows)]
    return "\n".join([lines[0], f"|{'---|' * len(heads)}", *lines[1:]])


def test_the_architecture_shows_the_tables_that_the_code_goes_by() -> None:
    phases = table(
        ("phase", "is over once", "then"),
        *(
            (phase, rule.over_once, ", ".join(each for each in rule.next if each not in FINAL_PHASES) or "an end")
            for phase, rule in PHASES.items()
            if phase not in FINAL_PHASES
        ),
    )
    steps = table(
        ("step", "taken by the account", "written to"),
        *((step.name, step.account, step.written_to) for step in BOOT_STEPS),
    )
    text = ARCHITECTURE.read_text()
    assert phases in text
    assert steps in text
