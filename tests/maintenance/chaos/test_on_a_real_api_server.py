"""A sample of the same histories against a real API server, so that they are not true of the fake alone.

Every controller writes with its own account's rights, under the shipped policies; kubelets and agents as their nodes,
the join service as the boot service's account, and people as administrators of the provisioner.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from lab.control_plane.plane import ControlPlane
from provisioner.cluster.client import Cluster
from tests.maintenance.chaos import replay
from tests.maintenance.chaos.accounts import Accounts
from tests.maintenance.chaos.injections import INJECTIONS, Injection
from tests.maintenance.chaos.scenarios import SCENARIOS, Scenario, run

HISTORIES = 24 if replay.LONG else 3


@pytest.fixture(scope="module")
def accounts(
    control_plane: ControlPlane,
    cluster: Cluster,
    account: Callable[[str], Cluster],
    tmp_path_factory: pytest.TempPathFactory,
) -> Accounts:
    return Accounts.on(control_plane, cluster, account, tmp_path_factory.mktemp("accounts"))


def chosen(number: int) -> tuple[Scenario, Injection, int, str]:
    """Two servers take twice the time, and show nothing here that one does not."""
    chance = replay.rng("real", str(number))
    scenario = chance.choice([scenario for scenario in SCENARIOS if scenario.fleet.servers == 1])
    return scenario, chance.choice(INJECTIONS), chance.randint(1, 24), chance.choice(("before", "after"))


@pytest.mark.parametrize("number", range(HISTORIES))
def test_killed_and_started_again(number: int, accounts: Accounts, cluster: Cluster, unique: str) -> None:
    scenario, injection, effect, side = chosen(number)
    start = datetime.now(UTC).replace(microsecond=0)
    run(scenario, strike=(effect, side, injection), accounts=accounts, prefix=unique, start=start)
