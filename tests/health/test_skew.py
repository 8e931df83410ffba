"""A node's clock, measured by the renewals of its Lease."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from provisioner.api.machinery.meta import rfc3339_micro
from provisioner.health.skew import ClockSkew
from tests.health.objects import after


class FakeClock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> datetime:
        return after(self.seconds)


def lease(seconds: float | None) -> dict[str, Any]:
    return {"spec": {"renewTime": rfc3339_micro(after(seconds)) if seconds is not None else "nonsense"}}


def test_only_a_renewal_that_was_seen_tells_the_clock() -> None:
    clock = FakeClock()
    skew = ClockSkew(clock)
    skew.saw("n", None, lease(-40))  # of any age
    skew.saw("n", lease(-40), lease(-40))  # something else in it changed
    skew.saw("n", lease(-40), lease(None))
    assert skew.of("n") is None
    skew.saw("n", lease(-40), lease(25))
    assert skew.of("n") == 25
    assert skew.of("another") is None


def test_a_watch_that_was_held_up_does_not_make_a_clock_look_behind() -> None:
    clock = FakeClock()
    skew = ClockSkew(clock)
    for seconds, renewed in ((10, 10), (45, 20), (46, 30)):
        clock.seconds = seconds
        skew.saw("n", lease(renewed - 10), lease(renewed))
    assert skew.of("n") == 0


def test_what_was_seen_before_the_boot_joined_tells_of_another_clock() -> None:
    clock = FakeClock()
    skew = ClockSkew(clock)
    skew.saw("n", lease(0), lease(5))
    assert skew.of("n", since=after(1)) is None
    assert skew.of("n", since=after(0)) == 5


def test_an_old_sighting_and_a_lease_that_is_gone_are_forgotten() -> None:
    clock = FakeClock()
    skew = ClockSkew(clock)
    skew.saw("n", lease(0), lease(1))
    clock.seconds = 61
    assert skew.of("n") is None
    clock.seconds = 1
    skew.saw("n", lease(1), None)
    assert skew.of("n") is None
