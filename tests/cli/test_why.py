"""`kubectl provision why` and `status`: the same objects give the same words."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from provisioner.cli.status_command import render_status
from provisioner.cli.subject import Subject
from provisioner.cli.targets import Target
from provisioner.cli.why import WIDTH, render_why
from tests.cli.golden import assert_golden
from tests.cli.situations import NAME, NOON, SITUATIONS, node, node_condition, subject


@pytest.mark.parametrize("situation", SITUATIONS)
def test_golden_each_situation_is_told_on_one_screen(situation: str) -> None:
    told = render_why(SITUATIONS[situation]())
    assert_golden(f"why-{situation}.txt", told)
    lines = told.splitlines()
    assert len(lines) <= 24
    assert max(len(line) for line in lines) <= WIDTH


@pytest.mark.parametrize(
    ("situation", "words"),
    [
        ("idle", "is in production; nothing is asked of it"),
        ("waits-for-a-job", "waits until no job runs"),
        ("deadline-announced", "in 10 min, of which its jobs were warned"),
        ("blocked-by-a-budget", "is being drained, to be reimaged into Image gpu-node-2, since 14 min"),
        ("boots-by-kexec", "boots anew into Image gpu-node-2 by kexec"),
        ("fell-back-to-reset", "by a reset of its BMC"),
        ("failed-verification", "failed its checks before use"),
        ("held", "is held by a person"),
        ("failed-maintenance", "is not Ready (NodeNotReady)"),
        ("never-booted", "was never booted (ImageUnavailable)"),
    ],
)
def test_the_first_line_says_what_it_does(situation: str, words: str) -> None:
    first = " ".join(render_why(SITUATIONS[situation]()).split("\n\n")[0].split())
    assert first.startswith(f"{NAME} ")
    assert words in first


def test_a_refused_request_is_told_with_its_remedy() -> None:
    refused = node_condition("provisioner.dev/RequestRefused", "True", "Unreadable", "write the deadline as +2h")
    assert "refused: write the deadline as +2h" in render_why(subject(None, node(refused)))


def test_conditions_with_nonsense_in_them_are_no_obstacle() -> None:
    odd = {"type": "provisioner.dev/RebootRequested", "status": "True", "lastTransitionTime": "yesterday"}
    told = render_why(subject(None, node(odd, odd, {"type": "X"})))
    assert "condition provisioner.dev/RebootRequested (no reason)" in told


def test_events_that_may_not_be_read_are_said_to_be_so() -> None:
    assert "may not be read" in render_why(subject(events=None))


@pytest.mark.parametrize("wide", [False, True])
def test_golden_status_is_a_line_each(wide: bool) -> None:
    chosen: list[Callable[[], Subject]] = [SITUATIONS[s] for s in ("idle", "waits-for-a-job", "failed-verification")]
    tables = []
    for situation in chosen:
        found = situation()
        target = Target(server=found.server, node=found.node)
        tables.append(render_status([target], found.maintenances, NOON, wide=wide))
    assert_golden("status-wide.txt" if wide else "status.txt", "\n".join(tables))
