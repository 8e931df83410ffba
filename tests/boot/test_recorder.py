"""Reports become status: coalesced, none lost while the API server is away, and never the reporter's problem."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from provisioner.api import Server
from provisioner.api.machinery.codec import decode
from provisioner.api.machinery.errors import NotFound, Refused, Retryable
from provisioner.api.machinery.values import MacAddress
from provisioner.boot.observe.progress import ProgressReport
from provisioner.boot.observe.recorder import LEFT_SECONDS, MAX_REPORTS_PER_SERVER, ProgressRecorder
from provisioner.boot.observe.server_index import ServerIndex
from tests.boot.fake_source import FakeSource
from tests.boot.objects import server
from tests.cluster.fake_events import FakeEvents
from tests.people import until

MAC = MacAddress("52:54:00:12:34:56")
BOOT = "11111111-1111-4111-8111-111111111111"


@dataclass
class FakeCluster:
    """Keeps one Server; `trouble` are the errors of the next writes."""

    body: dict[str, Any]
    trouble: list[Exception] = field(default_factory=list)
    writes: list[dict[str, Any]] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.gate.set()

    def apply_status(
        self, kind: Any, name: str, status: Mapping[str, Any], *, manager: str, resource_version: str | None = None
    ) -> dict[str, Any]:
        assert self.gate.wait(120)
        assert manager == "provisioner-boot"
        if self.trouble:
            raise self.trouble.pop(0)
        assert resource_version is None, "whatever else was written meanwhile is no reason to write again"
        self.body = {**self.body, "status": {**self.body.get("status", {}), **status}}
        self.body["metadata"] = {**self.body["metadata"], "resourceVersion": f"{len(self.writes) + 2}"}
        self.writes.append(dict(status))
        return self.body

    def read(self, kind: type[Server], name: str) -> Server:
        return decode(Server, self.body)


class FakeClock:
    """Goes by itself, and may be set forward."""

    ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


@dataclass
class World:
    cluster: FakeCluster
    recorder: ProgressRecorder
    events: FakeEvents
    stop: threading.Event
    threads: list[threading.Thread]
    source: FakeSource
    clock: FakeClock

    def report(self, stage: Any, message: str | None = None) -> None:
        boot_id = None if stage in ("Firmware", "IPXE") else BOOT
        assert self.recorder.observe(ProgressReport(mac=MAC, stage=stage, boot_id=boot_id, message=message))

    def drain(self) -> None:
        with self.recorder._changed:
            assert self.recorder._changed.wait_for(lambda: not self.recorder.pending, 120)

    @property
    def stages(self) -> list[str]:
        return [entry["stage"] for entry in self.cluster.body["status"]["progress"]["stageTimes"]]


@pytest.fixture
def world() -> Iterator[World]:
    source = FakeSource(server())
    source.objects["r01-u01"]["metadata"]["resourceVersion"] = "1"
    cluster, events = FakeCluster(source.objects["r01-u01"]), FakeEvents()

    index = ServerIndex(source)
    index.attach()
    clock = FakeClock()
    recorder = ProgressRecorder(cluster, index, events, monotonic=clock)  # type: ignore[arg-type]
    stop = threading.Event()
    threads = [threading.Thread(target=recorder.run, args=(stop,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    yield World(cluster, recorder, events, stop, threads, source, clock)
    stop.set()
    recorder.wake()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()


def test_a_report_is_written_with_its_event(world: World) -> None:
    world.report("IPXE")
    world.drain()
    assert world.stages == ["IPXE"]
    assert world.events.reasons() == ["BootStageIPXE"]


def test_many_reports_of_one_server_become_few_writes_and_lose_no_stage(world: World) -> None:
    world.cluster.gate.clear()
    world.report("IPXE")
    for stage in ("Stage1", "Root", "System", "Token"):
        world.report(stage)
    world.cluster.gate.set()
    world.drain()
    assert world.stages == ["IPXE", "Stage1", "Root", "System", "Token"]
    assert len(world.cluster.writes) <= 3
    assert world.events.reasons() == [f"BootStage{stage}" for stage in ("IPXE", "Stage1", "Root")]


def test_reports_of_a_join_that_never_comes_put_off_nothing_that_waits(world: World) -> None:
    world.cluster.gate.clear()
    world.report("IPXE")
    until(lambda: bool(world.recorder._writing))  # so that the next ones wait, and go with none of these
    world.report("Stage1")
    puts_off = dict(world.recorder._not_before)
    for number in range(20):
        world.report("Token", f"attempt {number}")
    assert world.recorder._not_before == puts_off
    world.cluster.gate.set()
    world.drain()


def test_what_a_machine_said_while_it_waited_to_join_is_gone_once_it_has_joined(world: World) -> None:
    world.report("Token", "FirmwareNotApproved: approve it")
    world.drain()
    assert world.cluster.body["status"]["progress"]["message"] == "FirmwareNotApproved: approve it"
    joined = {**world.cluster.body["status"], "join": {"orderID": "o1", "bootID": BOOT}}
    world.cluster.body = world.source.objects["r01-u01"] = {**world.cluster.body, "status": joined}
    for _ in range(3):
        world.recorder.server_changed("r01-u01", None, world.cluster.body)
    world.drain()
    assert "message" not in world.cluster.body["status"]["progress"]
    assert world.stages == ["Token"]
    assert len(world.cluster.writes) == 2
    world.recorder.server_changed("r01-u01", None, world.cluster.body)
    world.drain()
    assert len(world.cluster.writes) == 2, "there is nothing to take back"


def joins_unheard(world: World) -> None:
    """Another boot host, or this one before it was restarted, has heard the machine, which has joined since."""
    said = {"stage": "Token", "bootID": BOOT, "stageTimes": [], "message": "OrderExpired"}
    joined = {"join": {"orderID": "o1", "bootID": BOOT}, "progress": said}
    world.cluster.body = world.source.objects["r01-u01"] = {**world.cluster.body, "status": joined}
    for _ in range(100):
        world.recorder.server_changed("r01-u01", None, world.cluster.body)


def wait_long(world: World) -> None:
    world.clock.ahead += LEFT_SECONDS
    world.recorder.wake()
    until(lambda: not world.recorder._left)
    world.drain()


def test_a_boot_host_that_did_not_hear_the_machine_writes_nothing_if_another_one_does(world: World) -> None:
    joins_unheard(world)
    assert world.recorder._left["r01-u01"] - world.clock() > LEFT_SECONDS / 2
    assert world.recorder.pending == 0
    status = {**world.cluster.body["status"], "progress": {"stage": "Token", "bootID": BOOT, "stageTimes": []}}
    world.cluster.body = world.source.objects["r01-u01"] = {**world.cluster.body, "status": status}
    wait_long(world)
    assert world.cluster.writes == []


def test_what_no_boot_host_remembers_to_have_heard_is_gone_some_time_after_the_join(world: World) -> None:
    joins_unheard(world)
    wait_long(world)
    assert "message" not in world.cluster.body["status"]["progress"]
    assert len(world.cluster.writes) == 1
    world.source.objects["r01-u01"] = world.cluster.body
    world.recorder.server_changed("r01-u01", None, world.cluster.body)
    assert world.recorder._left == {}, "nor does a start write of whoever has joined and says nothing"


def test_a_machine_that_boots_again_meanwhile_keeps_what_it_says_then(world: World) -> None:
    joins_unheard(world)
    said = {"stage": "Root", "bootID": "another", "stageTimes": [], "message": "a layer is missing"}
    world.cluster.body = world.source.objects["r01-u01"] = {**world.cluster.body, "status": {"progress": said}}
    wait_long(world)
    assert world.cluster.writes == []


def test_what_the_boot_after_that_says_stays(world: World) -> None:
    world.report("Token", "OrderExpired: a new order is needed")
    world.drain()
    other = {**world.cluster.body["status"], "join": {"orderID": "o1", "bootID": "another"}}
    world.recorder.server_changed("r01-u01", None, {**world.cluster.body, "status": other})
    world.drain()
    assert world.cluster.body["status"]["progress"]["message"] == "OrderExpired: a new order is needed"


def test_repeated_requests_cost_no_write(world: World) -> None:
    for _ in range(50):
        world.report("IPXE")
    world.drain()
    writes = len(world.cluster.writes)
    assert writes == 1
    assert world.events.reasons() == ["BootStageIPXE"]


def test_while_the_api_server_is_away_everything_is_kept(world: World) -> None:
    world.cluster.trouble = [Retryable("connection refused", after_seconds=0.01)] * 4
    world.report("IPXE")
    world.report("Stage1")
    world.drain()
    assert world.stages == ["IPXE", "Stage1"]
    times = world.cluster.body["status"]["progress"]["stageTimes"]
    assert times[0]["time"] < times[1]["time"], "times are those of the reports, not of the writing"


def test_another_writer_in_between_is_no_loss(world: World) -> None:
    world.cluster.body["metadata"] = {**world.cluster.body["metadata"], "resourceVersion": "9"}
    world.report("IPXE")
    world.drain()
    assert world.stages == ["IPXE"]


@pytest.mark.parametrize("error", [NotFound("gone", hint=""), Refused("no", hint="")])
def test_what_can_never_be_written_is_dropped_and_the_next_goes_on(world: World, error: Exception) -> None:
    world.cluster.trouble = [error]
    world.report("IPXE")
    world.drain()
    assert world.cluster.writes == []
    world.report("Stage1")
    world.drain()
    assert world.stages == ["Stage1"]


def test_a_stranger_is_not_remembered(world: World) -> None:
    assert not world.recorder.observe(ProgressReport(mac=MacAddress("52:54:00:99:99:99"), stage="IPXE"))
    world.drain()
    assert world.cluster.writes == []


def test_what_waits_is_bounded(world: World) -> None:
    """Somebody alternates two messages without end while the API server is away."""
    world.cluster.gate.clear()
    world.report("IPXE")
    for i in range(10 * MAX_REPORTS_PER_SERVER):
        world.report("Root", message=f"message {i}")
    assert len(world.recorder._pending["r01-u01"]) <= MAX_REPORTS_PER_SERVER
    world.cluster.gate.set()
    world.drain()
    assert world.stages == ["IPXE", "Root"]
    assert world.cluster.body["status"]["progress"]["message"] == f"message {10 * MAX_REPORTS_PER_SERVER - 1}"
