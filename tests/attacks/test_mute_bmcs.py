"""A thousand BMCs that say nothing, and some that drip just in time: the others are looked at as ever.

The queues and the connections are the real ones; what a visit finds is not written to an API server.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from provisioner.power import bmc_queues, standing
from provisioner.power.act import WORKERS
from provisioner.power.bmc.redfish import RedfishPower
from provisioner.power.bmc_queues import BmcQueues
from provisioner.power.standing import QueueName
from provisioner.power.visit import Timed, Visit
from tests.lab.fake_machine import fake_server
from tests.power.hostile_bmc import HostileBmc, Wire, access_to, hostile_bmc, mute_port

PATIENCE = 180.0
POLL_SECONDS = 0.1
MUTE = 1000
ROUNDS = 10


class Fleet:
    """Visits BMCs by name, and notes by which queue's workers, and how many wait for which kind of BMC at once."""

    def __init__(self) -> None:
        self.bmcs: dict[str, RedfishPower] = {}
        self.looks: Counter[tuple[str, str]] = Counter()
        self.changed = threading.Condition()

    def visit(self, key: str, visit: Visit) -> float:
        queue = threading.current_thread().name.rpartition("-")[0]
        with self.changed:
            self.looks[key, queue] += 1
            self.changed.notify_all()
        visit.look(Timed(self.bmcs[key], visit))
        with self.changed:
            self.looks[key, "answered"] += 1
            self.changed.notify_all()
        return POLL_SECONDS

    def wait_for(self, check: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(check, PATIENCE)

    def visited_by(self, queue: str, prefix: str) -> int:
        """How often servers of that prefix were visited by workers of that queue."""
        with self.changed:
            return sum(count for (key, name), count in self.looks.items() if name == queue and key.startswith(prefix))


@contextmanager
def running(fleet: Fleet, workers: dict[QueueName, int]) -> Iterator[BmcQueues]:
    queues = BmcQueues(fleet.visit, workers=workers, spread=lambda seconds: seconds, on_end=lambda: None)
    stop = threading.Event()
    threads = [threading.Thread(target=controller.run, args=(stop,)) for controller in queues.controllers]
    for thread in threads:
        thread.start()
    try:
        yield queues
    finally:
        stop.set()
        for thread in threads:
            thread.join(PATIENCE)


def in_queue(queues: BmcQueues, name: QueueName) -> int:
    with queues._lock:
        return sum(standing.queue == name for standing in queues._standings.values())


@pytest.fixture
def honest(tmp_path: Path) -> Iterator[dict[str, RedfishPower]]:
    with ExitStack() as stack:
        servers = [stack.enter_context(fake_server(tmp_path / f"h{number}", name=f"h{number}")) for number in range(3)]
        yield {f"honest-{number}": RedfishPower(access_to(server)) for number, server in enumerate(servers)}


def test_no_worker_of_the_living_waits_for_a_thousand_mute_bmcs(honest: dict[str, RedfishPower]) -> None:
    """As a new leader finds them, recorded by the one before: none of the workers of the living ever visits one."""
    fleet = Fleet()
    fleet.bmcs |= honest
    example = next(iter(honest.values()))._access
    with mute_port() as port:
        mute = replace(example, address=f"https://127.0.0.1:{port}")
        for number in range(MUTE):
            fleet.bmcs[f"mute-{number}"] = RedfishPower(mute, connect_seconds=1.0, read_seconds=1.0)
        with running(fleet, dict(WORKERS)) as queues:
            for number in range(MUTE):
                queues.add(f"mute-{number}", "Unreachable")
            for name in honest:
                queues.add(name)
            fleet.wait_for(lambda: all(fleet.looks[name, "answered"] >= ROUNDS for name in honest))
            fleet.wait_for(lambda: fleet.visited_by("power-unreachable", "mute") >= WORKERS["Unreachable"])
            assert in_queue(queues, "Unreachable") >= MUTE
    for queue in ("power-new", "power", "power-slow"):
        assert fleet.visited_by(queue, "mute") == 0, queue


def test_a_mute_bmc_that_nobody_knows_yet_costs_the_new_ones_one_visit(honest: dict[str, RedfishPower]) -> None:
    """A hundred are registered at once, and honest ones among them."""
    fleet = Fleet()
    fleet.bmcs |= honest
    example = next(iter(honest.values()))._access
    with mute_port() as port:
        mute = replace(example, address=f"https://127.0.0.1:{port}")
        names = [f"mute-{number}" for number in range(100)]
        fleet.bmcs |= {name: RedfishPower(mute, connect_seconds=0.5, read_seconds=0.5) for name in names}
        with running(fleet, dict(WORKERS)) as queues:
            for name in (*names, *honest):
                queues.add(name)
            fleet.wait_for(lambda: all(fleet.looks[name, "answered"] >= ROUNDS for name in honest))
            fleet.wait_for(lambda: fleet.visited_by("power-new", "mute") == 100)
    assert fleet.visited_by("power-new", "mute") == 100
    assert fleet.visited_by("power", "mute") == 0
    assert fleet.visited_by("power-slow", "mute") == 0


def test_bmcs_that_drip_just_in_time_end_among_the_slow(
    honest: dict[str, RedfishPower], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More of them than workers; each answer is complete, within the time of a call, and right."""
    for module in (bmc_queues, standing):
        monkeypatch.setattr(module, "LOOK_SECONDS", {"New": 60.0, "Prompt": 0.7})
    fleet = Fleet()
    fleet.bmcs |= honest
    workers: dict[QueueName, int] = {"New": 2, "Prompt": 2, "Slow": 1, "Unreachable": 1}
    with hostile_bmc(tmp_path / "dripping") as dripping:
        drip_from_now_on(dripping)
        names = [f"drip-{number}" for number in range(6)]
        fleet.bmcs |= {name: RedfishPower(dripping.access) for name in names}
        with running(fleet, workers) as queues:
            for name in (*names, *honest):
                queues.add(name)
            fleet.wait_for(lambda: all(fleet.looks[name, "answered"] >= 2 for name in names))  # as new, and as slow
            assert in_queue(queues, "Slow") >= len(names)
            cost = fleet.visited_by("power", "drip")
            before = {name: fleet.looks[name, "answered"] for name in honest}
            fleet.wait_for(lambda: all(fleet.looks[name, "answered"] >= before[name] + 3 for name in honest))
            assert fleet.visited_by("power", "drip") == cost, "not one more"
    assert cost <= 2 * len(names)


def drip_from_now_on(bmc: HostileBmc) -> None:
    document = b'{"Id": "1", "Name": "1", "PowerState": "On"}'

    def drip(wire: Wire) -> None:
        wire.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(document))
        for byte in document:
            wire.send(bytes([byte]))
            if bmc.stopped.wait(0.04):
                raise ConnectionAbortedError

    bmc.attacks["GET /redfish/v1/Systems/1"] = drip
