"""`kubectl provision rollout status`: the same objects give the same words."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from provisioner.api import ObjectMeta
from provisioner.api.pools.rollout_status import RolloutRecord
from provisioner.cli.kubectl.printing import WIDTH
from provisioner.cli.rollout.fleet_picture import draw_fleet, one_line
from provisioner.cli.rollout.look_commands import render_history, render_pools
from provisioner.cli.rollout.screen import LOOKS, draw_bar, render_rollout, render_under_way
from provisioner.cli.rollout.watching import outcome, verdict
from provisioner.rollout.wait import WAIT_WORDS, WaitReason
from tests.cli.rollout_situations import (
    NEW,
    OLD,
    SITUATIONS,
    a_pool,
    a_rollout,
    complete,
    half_way,
    large,
    not_taken_up,
    paused,
    stopped,
)
from tests.cli.situations import NOON, before
from tests.golden_files import assert_golden


@pytest.mark.parametrize("situation", SITUATIONS)
def test_golden_each_situation_is_told_on_one_screen(situation: str) -> None:
    told = render_rollout(SITUATIONS[situation]())
    assert_golden(f"cli/rollout-{situation}.txt", told)
    top = told.split("\nSERVER ")[0].splitlines()
    assert max(len(line) for line in top) <= WIDTH


def test_a_stopped_rollout_says_what_failed_and_the_commands_for_each_way_on() -> None:
    told = " ".join(render_rollout(stopped()).split())
    assert "STOPPED, a person must decide" in told
    assert "ChecksFailed: GPUs: 7 of 8 (Maintenance r01-u01-1)" in told
    for command in ("why r01-u01", "rollout undo gpu", "rollout resume gpu", "rollout start gpu --image"):
        assert f"kubectl provision {command}" in told


def test_a_paused_rollout_names_the_command_that_lets_it_go_on() -> None:
    assert "kubectl provision rollout resume gpu" in render_rollout(paused())


@pytest.mark.parametrize("field", ["max_parallel", "max_unavailable"])
def test_a_cap_of_nothing_pauses_and_the_screen_says_which(field: str) -> None:
    view = half_way()
    strategy = replace(view.pool.spec.upgrade_strategy, **{field: "0%"})
    pool = replace(view.pool, spec=replace(view.pool.spec, upgrade_strategy=strategy))
    camel = {"max_parallel": "maxParallel", "max_unavailable": "maxUnavailable"}[field]
    told = " ".join(render_rollout(replace(view, pool=pool)).split())
    assert f"spec.upgradeStrategy.{camel} is 0%" in told
    assert f'"{camel}":null' in told


def test_of_a_large_pool_the_first_servers_are_shown_and_how_many_more_there_are() -> None:
    told = render_rollout(large())
    assert "and 170 more: kubectl provision rollout status gpu --all" in told
    assert len(told.split("SERVER ")[1].splitlines()) == 32
    assert "more" not in render_rollout(large(), everything=True)


def test_every_reason_for_which_the_planner_lets_a_server_wait_has_words() -> None:
    assert set(get_args(WaitReason)) == set(WAIT_WORDS)


@pytest.mark.parametrize(
    "counts", [{"Updated": 1}, {"Updated": 10_000, "Failed": 1}, dict.fromkeys(LOOKS, 1), {"Outdated": 3, "Down": 5}]
)
def test_the_bar_is_as_long_as_it_shall_be_and_leaves_nobody_out(counts: dict[str, int]) -> None:
    drawn = draw_bar(counts, 60)
    assert len(drawn) == 60
    assert {LOOKS[state].mark for state in counts} == set(drawn)


def test_the_fleet_is_drawn_rack_by_rack() -> None:
    drawn = draw_fleet(half_way(), 100, 24, colour=False)
    assert_golden("cli/rollout-fleet.txt", drawn)
    assert "r01  ###>\n" in drawn
    assert "r02  ..x-\n" in drawn


def test_a_fleet_that_is_larger_than_the_terminal_is_cut_and_says_so() -> None:
    drawn = draw_fleet(large(), 40, 20, colour=False).splitlines()
    assert len(drawn) <= 20
    assert max(len(line) for line in drawn) <= 40
    shown = sum(line.count("#") + line.count(".") for line in drawn if line.startswith("r"))
    (more,) = [line for line in drawn if line.startswith("and ")]
    assert int(more.split()[1]) == 200 - shown


def test_colours_are_orders_to_a_terminal_and_only_there() -> None:
    assert "\x1b[32m###" in draw_fleet(half_way(), 100, 24, colour=True)
    assert "\x1b" not in draw_fleet(half_way(), 100, 24, colour=False)


def test_what_a_tenant_wrote_is_no_order_to_the_terminal() -> None:
    view = half_way()
    pool = a_pool(a_rollout(message="canary \x1b[2J of \u202e1"))
    for told in (render_rollout(replace(view, pool=pool)), draw_fleet(replace(view, pool=pool), 80, 24, colour=False)):
        assert "\x1b" not in told
        assert "\u202e" not in told
    assert "\x1b" not in one_line(replace(view, pool=pool))


@pytest.mark.parametrize(
    ("situation", "code"),
    [
        ("half-way", None),
        ("canary", None),
        ("stopped", 4),
        ("paused", None),
        ("complete", 0),
        ("complete-but-for-some", 0),
    ],
)
def test_who_watches_is_let_go_when_it_is_complete_or_stopped(situation: str, code: int | None) -> None:
    assert outcome(SITUATIONS[situation]()) == code


def test_the_end_of_an_earlier_rollout_is_not_taken_for_that_of_this_one() -> None:
    view = complete()
    anew = replace(view.pool.metadata, generation=3)
    assert outcome(replace(view, pool=replace(view.pool, metadata=anew))) is None
    assert outcome(not_taken_up()) is None


def test_the_last_words_of_a_stopped_rollout_name_what_failed_and_what_one_can_do() -> None:
    told = verdict(stopped())
    assert told.startswith("error: the rollout of NodePool gpu stopped (Failures): r01-u01\n")
    assert "kubectl provision rollout undo gpu" in told


def test_golden_pools_are_a_line_each() -> None:
    pools = [
        replace(view().pool, metadata=replace(view().pool.metadata, name=name)) for name, view in SITUATIONS.items()
    ]
    assert_golden("cli/rollout-pools.txt", render_pools(pools))


def test_golden_status_has_a_line_for_each_rollout_under_way_and_none_for_others() -> None:
    pools = [
        replace(view().pool, metadata=replace(view().pool.metadata, name=name)) for name, view in SITUATIONS.items()
    ]
    assert_golden("cli/status-rollouts.txt", render_under_way(pools, NOON))
    assert render_under_way([complete().pool, not_taken_up().pool], NOON) == ""


def test_of_many_rollouts_status_shows_the_first_and_how_many_more_there_are() -> None:
    pools = [
        replace(a_pool(a_rollout()), metadata=ObjectMeta(name=f"a{number:03}", generation=2)) for number in range(100)
    ]
    told = render_under_way([*pools, stopped().pool], NOON).splitlines()
    assert told[0].startswith("gpu moves from"), "the one that stopped"
    assert [line.split()[0] for line in told[1:-1]] == [f"a{number:03}" for number in range(7)]
    assert told[-1] == "and 93 more rollouts: kubectl provision rollout status"


def test_golden_history_shows_what_is_under_way_and_what_is_over() -> None:
    over = RolloutRecord(
        image_ref=OLD, previous_image_ref="gpu-node-0", started_time=before(days=9), ended_time=before(days=8),
        outcome="Completed", updated=8, failed=0, message="all servers may follow",
    )  # fmt: skip
    given_up = replace(over, image_ref="gpu-node-0", previous_image_ref=None, outcome="Superseded", updated=2, failed=1)
    assert_golden("cli/rollout-history.txt", render_history(a_pool(a_rollout(), history=(over, given_up))))
    assert "was never moved to another image" in render_history(a_pool(None, wants=NEW))
