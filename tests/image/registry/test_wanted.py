"""Which images a boot host pulls, which first, and what it says of the others."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.image.registry.wanted import (
    Attempts,
    Candidate,
    choose_pulls,
    failed,
    is_wanted,
    rank_images,
    words_of,
)


def image(name: str, hour: int, recipe: str = "gpu-node") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "creationTimestamp": f"2026-06-01T{hour:02d}:00:00Z"},
        "spec": {"digest": f"sha256:{name}", "recipe": recipe, "distribution": "debian-13", "architecture": "x86_64"},
    }


def test_what_servers_run_comes_first_and_then_what_pools_want_and_then_the_newest() -> None:
    images = [image(name, hour) for hour, name in enumerate(("run", "other", "wanted", "runs-by-digest", "new"))]
    ranked = rank_images(images, {"run", "sha256:runs-by-digest"}.__contains__, {"wanted"}.__contains__)
    assert [each.name for each in ranked] == ["runs-by-digest", "run", "wanted", "new", "other"]
    assert [each.name for each in ranked if is_wanted(each, "needed")] == ["runs-by-digest", "run", "wanted", "new"]
    assert all(is_wanted(each, "all") for each in ranked)


def test_each_kind_has_its_newest() -> None:
    images = [image("a", 1), image("b", 2), image("c", 0, "cpu-node")]
    ranked = rank_images(images, lambda key: False, lambda key: False)
    assert {each.name for each in ranked if is_wanted(each, "needed")} == {"b", "c"}


def test_few_are_pulled_at_a_time_and_those_that_failed_wait() -> None:
    lacking = [Candidate(name, 0) for name in "abcd"]
    assert choose_pulls(lacking, {}, 0.0, 2) == ("a", "b")
    attempts = {"a": Attempts(is_pulling=True), "b": Attempts(1, retry_at=10.0)}
    assert choose_pulls(lacking, attempts, 9.0, 2) == ("c",)
    assert choose_pulls(lacking, attempts, 10.0, 2) == ("b",)
    assert choose_pulls(lacking, attempts, 10.0, 1) == ()


def test_the_wait_grows_to_minutes_and_is_as_long_as_the_registry_asks() -> None:
    attempts, waits = Attempts(), []
    for _ in range(9):
        attempts = failed(attempts, "words", 100.0, after_seconds=0, spread=1.0)
        assert attempts.retry_at is not None
        waits.append(attempts.retry_at - 100.0)
    assert waits == [5, 10, 20, 40, 80, 160, 300, 300, 300]
    assert failed(Attempts(), "words", 0.0, after_seconds=0, spread=0.0).retry_at == 2.5
    assert failed(Attempts(), "words", 0.0, after_seconds=600, spread=1.0).retry_at == 600
    assert failed(Attempts(), "words", 0.0, after_seconds=1e9, spread=1.0).retry_at == 3600


@pytest.mark.parametrize(
    ("attempts", "wanted", "words"),
    [
        (Attempts(), (), "nothing names it, so it is not pulled from R"),
        (Attempts(), ("x",), "it waits for its turn to be pulled from R"),
        (Attempts(is_pulling=True), ("x",), "it is being pulled from R"),
        (Attempts(1, 7.0, "no room"), ("x",), "pulling it is tried again and again: no room"),
        (Attempts(1, 7.0, "no room", is_pulling=True), ("x",), "pulling it is tried again and again: no room"),
    ],
)
def test_what_it_waits_for_is_said_in_words_that_stay_the_same(
    attempts: Attempts, wanted: tuple[str, ...], words: str
) -> None:
    assert words_of("x", {"x": attempts}, wanted, "R") == words
