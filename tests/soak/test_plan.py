"""What a soak does follows from its seed."""

from __future__ import annotations

from typing import get_args

from tests.soak.plan import SERVICES, Kind, plan

RACK = ("r01-u01", "r01-u02")
TEN_MINUTES = 600.0


def test_the_same_seed_is_the_same_soak_and_another_is_another() -> None:
    assert plan(7, TEN_MINUTES, RACK) == plan(7, TEN_MINUTES, RACK)
    assert plan(7, TEN_MINUTES, RACK) != plan(8, TEN_MINUTES, RACK)


def test_ten_minutes_have_every_kind_of_trouble_and_dozens_of_kills() -> None:
    for seed in range(200):
        troubles = plan(seed, TEN_MINUTES, RACK)
        assert {each.kind for each in troubles} == set(get_args(Kind)), seed
        assert sum(each.kind.startswith("Kill") for each in troubles) >= 38, seed
        assert {each.target for each in troubles if each.kind == "KillService"} == set(SERVICES), seed


def test_nothing_begins_or_lasts_after_the_end() -> None:
    for seed in range(200):
        troubles = plan(seed, 60.0, RACK)
        assert troubles == sorted(troubles, key=lambda each: each.at)
        assert all(each.at + each.lasts < 60.0 for each in troubles), seed
