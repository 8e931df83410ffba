"""A sample of the same histories against a real API server, so that they are not true of the fake alone."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from provisioner.cluster.client import Cluster
from tests.maintenance.chaos.injections import INJECTIONS, Injection
from tests.maintenance.chaos.scenarios import SCENARIOS, Scenario, run

SAMPLE = {
    "reboot when idle": (8, "after", "nothing else"),
    "reboot now": (5, "before", "409"),
    "drain": (6, "after", "cordoned by an administrator"),
}


@pytest.mark.parametrize("name", SAMPLE)
def test_killed_and_started_again(name: str, cluster: Cluster, unique: str) -> None:
    number, moment, trouble = SAMPLE[name]
    scenario: Scenario = next(scenario for scenario in SCENARIOS if scenario.name == name)
    injection: Injection = next(injection for injection in INJECTIONS if injection.name == trouble)
    start = datetime.now(UTC).replace(microsecond=0)
    run(scenario, strike=(number, moment, injection), cluster=cluster, prefix=unique, start=start)
