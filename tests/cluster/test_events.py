"""Events as an operator sees them, on the real API server."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

from structlog.testing import capture_logs

from lab.binaries.obtain import Binaries
from lab.control_plane.plane import ControlPlane
from provisioner.api import Server
from provisioner.cluster.client import Cluster
from provisioner.cluster.events import MAX_MESSAGE_LENGTH, EventRecorder, EventType
from provisioner.cluster.resources import EVENTS, NODES, of
from tests.cluster.fault_injecting_proxy import FaultInjectingProxy, Injected, status_body
from tests.people import until

GENEROUS_SECONDS = 180


def create_node(cluster: Cluster, name: str) -> dict[str, Any]:
    return cluster.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})


def events_of(cluster: Cluster, name: str) -> list[dict[str, Any]]:
    """Those of the recorders here: Kubernetes' own controllers speak of a Node, too."""
    ours = f"involvedObject.name={name},reportingComponent=test-recorder"
    return cluster.list(EVENTS, namespace="default", field_selector=ours).items


def said(events: list[dict[str, Any]]) -> list[tuple[str, str, int]]:
    return sorted((event["reason"], event["message"], event["count"]) for event in events)


def test_describe_shows_what_was_recorded_and_how_often(
    cluster: Cluster, control_plane: ControlPlane, binaries: Binaries, unique: str
) -> None:
    node = create_node(cluster, unique)
    recorder = EventRecorder(cluster, "test-recorder")
    for _ in range(3):
        recorder.record(node, "Warning", "BootHung", "stage Root took more than 600 s")
    recorder.record(node, "Normal", "Booted", "kernel runs")
    assert recorder.flush(GENEROUS_SECONDS)
    command = [binaries.kubectl, f"--kubeconfig={control_plane.kubeconfig}", "describe", "node", unique]
    described = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = [" ".join(line.split()) for line in described.splitlines()]
    assert any(line.startswith("Warning BootHung") and "(x3 over" in line for line in lines), described
    assert any(line.startswith("Normal Booted") and line.endswith("test-recorder kernel runs") for line in lines), lines


def test_an_event_is_written_by_the_rights_of_the_part_that_records_it(
    account: Callable[[str], Cluster], cluster: Cluster, unique: str
) -> None:
    """The account of the process writes none; that of a group of controllers does."""
    node, dropped = create_node(cluster, unique), list[EventType]()
    recorder = EventRecorder(account("controller"), "test-recorder", dropped=dropped.append)
    recorder.record(node, "Normal", "Process", "by the process")
    recorder.written_by(account("orders")).record(node, "Normal", "Part", "by a part")
    recorder.written_by(account("orders")).record(node, "Normal", "Part", "by a part")
    assert recorder.flush(GENEROUS_SECONDS)
    recorder.close()
    until(lambda: dropped == ["Normal"])
    assert {reason for reason, _, _ in said(events_of(cluster, unique))} == {"Part"}


def test_describe_shows_the_events_of_the_projects_own_kinds(
    cluster: Cluster, control_plane: ControlPlane, binaries: Binaries, unique: str
) -> None:
    spec = {"bootMACAddress": "52:54:00:" + ":".join(unique[1:7][i : i + 2] for i in (0, 2, 4))}
    body = {"apiVersion": "provisioner.dev/v1alpha1", "kind": "Server", "metadata": {"name": unique}, "spec": spec}
    server = cluster.create(of(Server), body)
    recorder = EventRecorder(cluster, "test-recorder")
    recorder.record(server, "Normal", "Ordered", "boot ordered: FirstBoot")
    assert recorder.flush(GENEROUS_SECONDS)
    command = [binaries.kubectl, f"--kubeconfig={control_plane.kubeconfig}", "describe", "server", unique]
    described = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "boot ordered: FirstBoot" in described
    cluster.delete(of(Server), unique)


def test_a_second_replica_and_a_later_start_count_on(cluster: Cluster, unique: str) -> None:
    node = create_node(cluster, unique)
    for _ in range(3):
        recorder = EventRecorder(cluster, "test-recorder")
        recorder.record(node, "Normal", "Booted", "kernel runs")
        assert recorder.flush(GENEROUS_SECONDS)
        recorder.close()
    assert said(events_of(cluster, unique)) == [("Booted", "kernel runs", 3)]


def test_an_event_costs_one_request_the_first_time_and_each_time_it_is_counted(
    proxy: FaultInjectingProxy, faulty: Cluster, cluster: Cluster, unique: str
) -> None:
    node = create_node(cluster, unique)
    recorder = EventRecorder(faulty, "test-recorder")
    for _ in range(3):
        recorder.record(node, "Normal", "Booted", "kernel runs")
        assert recorder.flush(GENEROUS_SECONDS)
    assert [each.method for each in proxy.seen() if "/events" in each.path] == ["POST", "PATCH", "PATCH"]
    assert said(events_of(cluster, unique)) == [("Booted", "kernel runs", 3)]


def test_another_word_is_another_event(cluster: Cluster, unique: str) -> None:
    node = create_node(cluster, unique)
    recorder = EventRecorder(cluster, "test-recorder")
    recorder.record(node, "Normal", "Booted", "kernel runs")
    recorder.record(node, "Normal", "Booted", "kernel runs again")
    assert recorder.flush(GENEROUS_SECONDS)
    assert len(events_of(cluster, unique)) == 2


def test_a_long_message_is_cut_not_lost(cluster: Cluster, unique: str) -> None:
    node = create_node(cluster, unique)
    recorder = EventRecorder(cluster, "test-recorder")
    recorder.record(node, "Normal", "Talkative", "x" * 5000)
    assert recorder.flush(GENEROUS_SECONDS)
    (event,) = events_of(cluster, unique)
    assert len(event["message"]) == MAX_MESSAGE_LENGTH


def test_errors_of_the_server_and_a_counting_neighbour_are_overcome(
    proxy: FaultInjectingProxy, faulty: Cluster, cluster: Cluster, unique: str
) -> None:
    node = create_node(cluster, unique)
    recorder = EventRecorder(faulty, "test-recorder")
    answers = [
        Injected(503, status_body(503, "overloaded"), {"Retry-After": "0"}),
        Injected(409, status_body(409, "the object has been modified")),
    ]
    proxy.inject(lambda request: answers.pop() if request.method == "POST" and answers else None)
    recorder.record(node, "Normal", "Booted", "kernel runs")
    assert recorder.flush(GENEROUS_SECONDS)
    assert said(events_of(cluster, unique)) == [("Booted", "kernel runs", 1)]


def test_nobody_waits_while_the_api_server_hangs_and_not_everything_is_kept(
    proxy: FaultInjectingProxy, faulty: Cluster, unique: str
) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": unique}}
    recorder = EventRecorder(faulty, "test-recorder", max_pending=10)
    with proxy.hanging():
        began = time.monotonic()
        for number in range(500):
            recorder.record(node, "Normal", "Booted", f"boot {number}")
        # One request alone hangs for 5 s: who recorded did not wait for any.
        assert time.monotonic() - began < 5
        assert len(recorder._pending) <= 10
        recorder.close(timeout_seconds=0)


def test_a_warning_is_kept_where_nothing_else_is_and_goes_first(
    proxy: FaultInjectingProxy, faulty: Cluster, cluster: Cluster, unique: str
) -> None:
    node = create_node(cluster, unique)
    recorder = EventRecorder(faulty, "test-recorder", max_pending=3)
    with proxy.hanging():
        for number in range(10):
            recorder.record(node, "Normal", "Booted", f"boot {number}")
        recorder.record(node, "Warning", "BootHung", "stage Root took more than 600 s")
    assert recorder.flush(GENEROUS_SECONDS)
    reasons = [reason for reason, _, _ in said(events_of(cluster, unique))]
    assert "BootHung" in reasons
    assert reasons.count("Booted") <= 4


class Flood:
    """A recorder whose API server hangs; what it would write, in order."""

    def __init__(self, faulty: Cluster, limit: int) -> None:
        self.dropped: list[str] = []
        self.recorder = EventRecorder(faulty, "test-recorder", max_pending=limit, dropped=self.dropped.append)
        self.recorder._thread = threading.current_thread()  # nothing is written

    def record(self, name: str, type_: EventType, reason: str) -> None:
        self.recorder.record({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}, type_, reason, "words")

    def waiting(self) -> list[tuple[str, str]]:
        pending = self.recorder._pending
        popped = [pending.pop()[0] for _ in range(len(pending))]
        return [(each.reason, each.name) for each in popped]


def test_a_registration_of_thousands_does_not_hide_what_one_server_says(faulty: Cluster) -> None:
    flood = Flood(faulty, 100)
    for number in range(1000):
        flood.record(f"n{number}", "Normal", "AddressAllocated")
    flood.record("r01-u01", "Normal", "Completed")
    flood.record("r01-u02", "Warning", "JoinRefused")
    assert flood.dropped == ["Normal"] * 902
    waiting = flood.waiting()
    assert len(waiting) == 100
    assert waiting[0] == ("JoinRefused", "r01-u02")
    assert ("Completed", "r01-u01") in waiting[1:3], "reasons take turns"
    assert ("AddressAllocated", "n0") in waiting[1:3], "who said it first is heard first"


def test_a_warning_is_never_dropped_while_anything_normal_waits(faulty: Cluster) -> None:
    flood = Flood(faulty, 10)
    for number in range(10):
        flood.record(f"n{number}", "Normal", f"Reason{number}")
    for number in range(10):
        flood.record(f"w{number}", "Warning", "BootHung")
    assert flood.dropped == ["Normal"] * 10
    flood.record("n", "Normal", "Booted")
    flood.record("w10", "Warning", "BootHung")
    flood.record("w", "Warning", "JoinRefused")
    assert flood.dropped[10:] == ["Normal", "Warning", "Warning"]
    assert flood.waiting() == [("BootHung", "w0"), ("JoinRefused", "w"), *(("BootHung", f"w{n}") for n in range(1, 9))]


def test_what_waits_already_is_counted_and_not_dropped(faulty: Cluster) -> None:
    flood = Flood(faulty, 1)
    for _ in range(3):
        flood.record("n", "Normal", "Booted")
    assert flood.dropped == []
    ((_, tally),) = [flood.recorder._pending.pop()]
    assert tally.count == 3


def test_drops_are_logged_once_and_counted(faulty: Cluster) -> None:
    flood = Flood(faulty, 1)
    with capture_logs() as logs:
        for number in range(50):
            flood.record(f"n{number}", "Normal", "Booted")
    assert [(entry["event"], entry["count"]) for entry in logs] == [("events dropped", 1)]
    assert len(flood.dropped) == 49


def test_a_record_about_nonsense_does_not_raise(cluster: Cluster) -> None:
    with capture_logs() as logs:
        EventRecorder(cluster, "test-recorder").record({}, "Normal", "Booted", "kernel runs")
    assert [entry["event"] for entry in logs] == ["event not recorded"]
