"""Maintenance windows, through a change of clocks, too."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from provisioner.api.machinery.errors import NeedsHuman
from provisioner.api.pools.upgrade_strategy import MaintenanceWindow
from provisioner.rollout.windows import open_until, opens_next


def window(schedule: str, hours: float = 4, zone: str = "UTC") -> MaintenanceWindow:
    return MaintenanceWindow(schedule=schedule, duration_seconds=int(hours * 3600), time_zone=zone)


def utc(day: int, hour: int, minute: int = 0, month: int = 11) -> datetime:
    return datetime(2026, month, day, hour, minute, tzinfo=UTC)


def test_it_is_open_from_its_first_second_to_its_last() -> None:
    nightly = [window("0 22 * * *")]
    assert open_until(nightly, utc(2, 21, 59)) is None
    assert open_until(nightly, utc(2, 22)) == utc(3, 2)
    assert open_until(nightly, utc(3, 1, 59)) == utc(3, 2)
    assert open_until(nightly, utc(3, 2)) is None


def test_seconds_within_the_minute_change_nothing() -> None:
    assert open_until([window("0 22 * * *")], utc(2, 22) + timedelta(seconds=30)) == utc(3, 2)
    assert open_until([window("0 22 * * *")], utc(2, 22) - timedelta(seconds=1)) is None


def test_of_two_that_are_open_the_later_end_counts() -> None:
    both = [window("0 22 * * *", hours=1), window("30 22 * * *", hours=3)]
    assert open_until(both, utc(2, 22, 45)) == utc(3, 1, 30)


def test_the_next_one_is_told() -> None:
    assert opens_next([window("0 22 * * SAT"), window("0 3 * * SUN")], utc(2, 12)) == utc(7, 22)


def test_it_is_meant_in_its_own_time_zone() -> None:
    berlin = [window("0 22 * * *", zone="Europe/Berlin")]
    assert open_until(berlin, utc(2, 21)) == utc(3, 1)  # winter: one hour ahead of UTC
    assert open_until(berlin, utc(2, 20, month=7)) == utc(3, 0, month=7)  # summer: two


def test_an_hour_that_a_change_of_clocks_leaves_out_still_opens_it_once() -> None:
    # On 29 March 2026 the clocks of Berlin go from 02:00 to 03:00, which is 01:00 UTC.
    berlin = [window("30 2 * * *", hours=1, zone="Europe/Berlin")]
    opening = opens_next(berlin, utc(29, 0, month=3))
    assert opening is not None
    assert utc(29, 1, month=3) <= opening <= utc(29, 2, month=3)
    assert open_until(berlin, opening + timedelta(minutes=10)) == opening + timedelta(hours=1)


def test_an_hour_that_comes_twice_opens_it_once() -> None:
    # On 25 October 2026 the clocks of Berlin go from 03:00 back to 02:00, which is 01:00 UTC.
    berlin = [window("30 2 * * *", hours=0.25, zone="Europe/Berlin")]
    moments = [utc(25, 0, month=10) + timedelta(minutes=5 * number) for number in range(36)]
    openings = [moment for moment in moments if open_until(berlin, moment) is not None]
    assert openings
    assert openings[-1] - openings[0] < timedelta(minutes=15)


@pytest.mark.parametrize(("day", "month"), [(28, 3), (24, 10)])
def test_a_window_over_a_change_of_clocks_is_as_long_as_any_other(day: int, month: int) -> None:
    berlin = [window("0 22 * * *", hours=8, zone="Europe/Berlin")]
    opening = opens_next(berlin, utc(day, 12, month=month))
    assert opening is not None
    assert open_until(berlin, opening) == opening + timedelta(hours=8)
    assert open_until(berlin, opening + timedelta(hours=7, minutes=59)) == opening + timedelta(hours=8)
    assert open_until(berlin, opening + timedelta(hours=8)) is None


@pytest.mark.parametrize(
    ("schedule", "seconds"), [("0 0 * * *", 86_400), ("0 * * * *", 3600), ("*/30 * * * *", 3600), ("* * * * *", 60)]
)
def test_windows_that_follow_one_another_are_always_open(schedule: str, seconds: int) -> None:
    always = [MaintenanceWindow(schedule=schedule, duration_seconds=seconds, time_zone="UTC")]
    for number in range(0, 2 * 86_400, 1230):
        moment = utc(2, 0) + timedelta(seconds=number)
        assert open_until(always, moment) is not None, moment
        assert open_until(always, moment - timedelta(seconds=1)) is not None, moment


@pytest.mark.parametrize("schedule", ["15 * * * *", "0 */2 * * *", "*/30 * * * *", "30 2 * * *"])
@pytest.mark.parametrize("day", [utc(28, 20, month=3), utc(24, 20, month=10)])
def test_a_window_is_open_when_it_was_said_to_open_through_a_change_of_clocks(schedule: str, day: datetime) -> None:
    berlin = [window(schedule, hours=1 / 60, zone="Europe/Berlin")]
    moment = day
    for _ in range(12):
        opening = opens_next(berlin, moment)
        assert opening is not None
        assert open_until(berlin, opening) == opening + timedelta(minutes=1)
        moment = opening


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (
            window("0 22 * * *", zone="Europe/Berlinn"),
            "time zone 'Europe/Berlinn', which is not known here; write an IANA",
        ),
        (window("0 22 * * *", zone="../../etc/passwd"), "not known here"),
        (window("0 22 * * NOSUCHDAY"), "schedule '0 22 \\* \\* NOSUCHDAY', which is none"),
    ],
)
def test_one_that_cannot_be_read_says_how_to_write_it(bad: MaintenanceWindow, words: str) -> None:
    with pytest.raises(NeedsHuman, match=words):
        open_until([bad], utc(2, 12))
    with pytest.raises(NeedsHuman, match=words):
        opens_next([bad], utc(2, 12))
