"""Some of the same rollouts against a real API server, with each account's own rights and the shipped policies."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from lab.control_plane.plane import ControlPlane
from provisioner.cluster.client import Cluster
from tests.maintenance.chaos import replay
from tests.maintenance.chaos.accounts import Accounts
from tests.maintenance.conftest import _nothing_is_left
from tests.rollout.chaos.scenarios import SCENARIOS, run
from tests.rollout.chaos.troubles import TROUBLES

__all__ = ["_nothing_is_left"]

HISTORIES = 16 if replay.LONG else 1
PLAYED = ("an idle pool", "undone half way", "a bad image")


@pytest.fixture(scope="module")
def accounts(
    control_plane: ControlPlane,
    cluster: Cluster,
    account: Callable[[str], Cluster],
    tmp_path_factory: pytest.TempPathFactory,
) -> Accounts:
    return Accounts.on(control_plane, cluster, account, tmp_path_factory.mktemp("accounts"))


@pytest.mark.parametrize("number", range(HISTORIES))
def test_killed_and_started_again(number: int, accounts: Accounts, cluster: Cluster, unique: str) -> None:
    chance = replay.rng("real rollout", str(number))
    scenario = chance.choice([scenario for scenario in SCENARIOS if scenario.name in PLAYED])
    strike = (chance.randint(1, 60), chance.choice(("before", "after")), chance.choice(TROUBLES))
    start = datetime.now(UTC).replace(microsecond=0)
    run(scenario, strike=strike, accounts=accounts, prefix=unique, start=start)
