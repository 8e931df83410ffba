"""The picture of a rollout."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from provisioner.rollout.simulate.plot import draw_fleet
from provisioner.rollout.simulate.run import Sample
from tests.golden_files import assert_golden

HOUR = 3600.0


def sample(time: float, updated: int, updating: int, idle: int, busy: int) -> Sample:
    return Sample(time=time, updated=updated, updating=updating, idle=idle, busy=busy)


def test_the_picture_of_a_small_rollout_is_as_it_was() -> None:
    samples = [
        sample(0.0, 0, 2, 2, 4),
        sample(HOUR, 2, 2, 0, 4),
        sample(5 * HOUR, 4, 4, 0, 0),
        sample(6 * HOUR, 8, 0, 0, 0),
    ]
    assert_golden("rollout/fleet.svg", draw_fleet("8 servers <provisioner>", 8, samples, 6 * HOUR))


def test_a_long_rollout_is_drawn_with_few_points_and_is_well_formed() -> None:
    samples = [sample(number * 60.0, number, 1, 0, 20_000 - number) for number in range(20_000)]
    text = draw_fleet("many", 20_000, samples, 20_000 * 60.0)
    assert len(text) < 100_000
    assert ET.fromstring(text).tag.endswith("svg")  # noqa: S314 - our own
    assert "days" in text


def test_a_rollout_that_took_no_time_can_be_drawn() -> None:
    assert "svg" in draw_fleet("none", 1, [sample(0.0, 1, 0, 0, 0)], 0.0)
