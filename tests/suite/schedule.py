"""Which worker of pytest-xdist runs which tests, so that `make test` ends as early as two cores allow.

A worker gets whole files, those that take longest first. What files share and is costly to start (a control plane, an
image) has one worker, or a few: the others take those files when nothing else is left. The files of the rack of
machines are one after the other, in the order of their names.
"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests.suite.processor_time import take_shares

WORKERS: Final = 5
"""For all tests, on two cores: most tests wait most of their time."""
RACK: Final = "tests/journey::rack"
WORKERS_OF: Final[Mapping[str, int]] = {RACK: 1, "tests/image::built": 1, "tests::control_plane": 2}
"""Shared fixture, with its folder → how many workers may start one of their own while other tests are left. Of several
that a test has, the first counts."""

LONGEST: Final[Mapping[str, int]] = {
    "tests/journey/test_rollout_follows_the_jobs.py": 300,
    "tests/journey/test_bare_server_becomes_ready_node.py": 150,
    "tests/journey/test_the_gpu_image_without_a_gpu.py": 150,
    "tests/journey/test_the_fleet_comes_back_from_a_snapshot.py": 120,
    "tests/journey/test_kubectl_is_the_remote_control.py": 100,
    "tests/image/test_built_image.py": 290,
    "tests/maintenance/chaos/test_killed_at_every_effect.py": 100,
    "tests/chart/test_installing.py": 140,
    "tests/rollout/chaos/test_rollouts_killed_at_every_effect.py": 140,
    "tests/packaging/test_containers.py": 110,
    "tests/image/test_stage1_boot.py": 110,
    "tests/network/control/test_compile.py": 90,
    "tests/network/control/test_with_real_agents.py": 60,
    "tests/network/vrf/test_isolation_in_vrfs.py": 90,
    "tests/packaging/test_units_run.py": 70,
    "tests/requests/test_requests_of_one_server.py": 60,
    "tests/jobs/test_slurm_for_real.py": 60,
    "tests/image/uki/test_secure_boot.py": 50,
    "tests/lab/test_vpc_demo.py": 60,
    "tests/health/test_crashes.py": 50,
    "tests/ansible/test_servers_and_racks.py": 50,
    "tests/image/driver/test_real_driver.py": 50,
    "tests/boot/test_boot_host_fills_itself.py": 50,
    "tests/image/test_hostile_mirror.py": 45,
    "tests/cli/test_fleet_requests.py": 45,
    "tests/boot/test_ipxe.py": 45,
    "tests/rollout/test_rollout_of_a_fleet.py": 45,
    "tests/network/agent/boot/test_boots.py": 45,
    "tests/join/test_csr.py": 35,
    "tests/network/evpn/test_fabric.py": 30,
    "tests/cli/test_rollout_commands.py": 30,
    "tests/lab/test_rack.py": 30,
    "tests/cluster/test_informer.py": 30,
}
"""Seconds of files that take longer than their number of tests lets one expect: what begins last decides when all
ends. From a report of `make test`; a wrong figure costs time and nothing else."""

RACK_SHARES: Final = WORKERS - 1
"""The rack has the processors first: half of their time, if all others want them, too. A machine that gets too little
does not only boot later: it works more, as its kubelet and its timers run on."""

_SECONDS_OF_A_TEST: Final = 0.2
_FILE: Final = "fixtures-of-files.json"


@dataclass
class Plan:
    """Units of work (a file, or the rack's files together), and which workers have begun with what is shared."""

    shared: Mapping[str, str | None]
    """Unit → the shared fixture that counts."""
    seconds: Mapping[str, float]
    unit_of: Mapping[str, str]
    """File → unit."""
    owners: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def choose(self, worker: str, units: Iterable[str]) -> str:
        """The unit that `worker` shall run next, of those that are left (at least one)."""

        def rank(unit: str) -> tuple[int, float]:
            part = self.shared[unit]
            if part is not None and worker in self.owners[part]:
                order = 0
            elif part is not None and len(self.owners[part]) < WORKERS_OF[part]:
                order = 1
            else:
                order = 2 if part is None else 3
            return order, -self.seconds[unit]

        chosen = min(units, key=rank)
        part = self.shared[chosen]
        if part is not None:
            self.owners[part].add(worker)
        return chosen


def plan(tests: Sequence[str], fixtures: Mapping[str, Collection[str]]) -> Plan:
    """`tests`: node ids. `fixtures`: those that the tests of a file have."""
    seconds: dict[str, float] = defaultdict(float)
    shared: dict[str, str | None] = {}
    unit_of: dict[str, str] = {}
    for file, count in Counter(map(file_of, tests)).items():
        part = next((part for part in WORKERS_OF if part in fixtures.get(file, ())), None)
        unit_of[file] = unit = RACK if part == RACK else file
        shared[unit] = part
        seconds[unit] += LONGEST.get(file, count * _SECONDS_OF_A_TEST)
    return Plan(shared, seconds, unit_of)


def file_of(test: str) -> str:
    return test.partition("::")[0]


def shared_fixtures(item: pytest.Item) -> set[str]:
    """Names of the fixtures that a test uses, with the folder or file that has them."""
    info = getattr(item, "_fixtureinfo", None)
    return {f"{each[-1].baseid}::{name}" for name, each in info.name2fixturedefs.items() if each} if info else set()


class WholeFiles(LoadScopeScheduling):
    """Gives each worker the file that `Plan` chooses."""

    folder: Path
    _plan: Plan
    _index: Mapping[str, int]

    def _split_scope(self, nodeid: str) -> str:
        return self._plan.unit_of[file_of(nodeid)]

    def schedule(self) -> None:
        if self.collection is None:
            tests = next(iter(self.registered_collections.values()))
            self._plan = plan(tests, json.loads((self.folder / _FILE).read_text()))
            self._index = {test: number for number, test in enumerate(tests)}
        super().schedule()

    def _assign_work_unit(self, node: WorkerController) -> None:
        unit = self._plan.choose(node.gateway.id, self.workqueue)
        tests = self.workqueue.pop(unit)
        self.assigned_work.setdefault(node, {})[unit] = tests
        node.send_runtest_some([self._index[test] for test, is_done in tests.items() if not is_done])


@dataclass(eq=False)
class Scheduling:
    """The plugin: a worker notes the fixtures of all files in the report's folder, and the controller reads them."""

    folder: Path
    _shares: int = 0

    @pytest.hookimpl
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> WholeFiles:
        scheduler = WholeFiles(config, log)
        scheduler.folder = self.folder
        return scheduler

    @pytest.hookimpl(tryfirst=True)  # before xdist reports that this worker has collected
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if os.environ.get("PYTEST_XDIST_WORKER") == "gw0":
            found: dict[str, set[str]] = defaultdict(set)
            for item in session.items:
                found[file_of(item.nodeid)] |= WORKERS_OF.keys() & shared_fixtures(item)
            (self.folder / _FILE).write_text(json.dumps({file: sorted(names) for file, names in found.items()}))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        shares = RACK_SHARES if RACK in shared_fixtures(item) else 1
        if shares != self._shares:
            self._shares = shares
            take_shares(shares)
