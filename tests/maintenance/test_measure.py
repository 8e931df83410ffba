"""What a written status tells the metrics."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from provisioner.api.nodes.maintenance import MaintenanceStatus
from provisioner.maintenance.status.measure import tell_events, tell_metrics
from provisioner.maintenance.status.record import end_attempt, judge, note, set_blockers
from tests.cluster.fake_events import FakeEvents
from tests.maintenance.samples import NOON, at, maintenance


@dataclass
class FakeMetrics:
    """Keeps what it is told."""

    told: list[tuple[Any, ...]] = field(default_factory=list)

    def phase_ended(self, *what: Any) -> None:
        self.told.append(("phase", *what))

    def wait_ended(self, *what: Any) -> None:
        self.told.append(("wait", *what))

    def attempt_ended(self, *what: Any) -> None:
        self.told.append(("attempt", *what))

    def finished(self, *what: Any) -> None:
        self.told.append(("finished", *what))


def told(before: MaintenanceStatus, after: MaintenanceStatus, seconds: float) -> list[tuple[Any, ...]]:
    metrics = FakeMetrics()
    tell_metrics(metrics, before, after, NOON + timedelta(seconds=seconds))
    return metrics.told


def test_a_phase_and_what_was_waited_for_in_it_are_measured_once() -> None:
    status = note(MaintenanceStatus(action="Reboot", policy="Now"), NOON, "Requested", "", phase="Waiting")
    waiting = set_blockers(status, [("Pod", "ml/x", "runs")], NOON)
    still = set_blockers(waiting, [("Pod", "ml/x", "still runs")], NOON + timedelta(seconds=50))
    assert told(waiting, still, 50) == []
    claimed = note(set_blockers(still, [], NOON), NOON + timedelta(seconds=60), "Claimed", "", phase="Claiming")
    assert told(still, claimed, 60) == [("phase", "Waiting", "Reboot", 60.0), ("wait", "Pod", 60.0)]


def test_a_try_is_measured_with_its_outcome_and_the_whole_with_its_reason() -> None:
    from provisioner.api.nodes.maintenance import RebootAttempt

    attempt = RebootAttempt(
        id="1", method="Kexec", image_ref="i", image_digest="d", started_time=at(0), deadline_time=at(180)
    )
    status = MaintenanceStatus(
        phase="Drained", action="Reboot", policy="WhenIdle", reboot=attempt, started_time=at(-100)
    )
    before = note(status, NOON, "RebootStarted", "", phase="Rebooting")
    after = end_attempt(before, "TimedOut", "nothing seen", NOON + timedelta(seconds=180))
    assert told(before, after, 180) == [("attempt", "Kexec", "TimedOut", 180.0)]
    judged = judge(replace(maintenance(1), status=after), "RebootFailed", "no path", NOON + timedelta(seconds=180))
    ended = note(judged, NOON + timedelta(seconds=200), "Failed", "", phase="Failed")
    assert told(judged, ended, 200) == [
        ("phase", "Rebooting", "Reboot", 200.0),
        ("finished", "Failed", "RebootFailed", "Reboot", "WhenIdle", 300.0),
    ]


def test_a_nodes_event_names_the_maintenance_once() -> None:
    events = FakeEvents()
    before = MaintenanceStatus(phase="Waiting")
    after = note(before, NOON, "Claimed", "Maintenance r01-u01-1: Reboot, WhenIdle: the server is claimed")
    after = note(after, NOON, "Drained", "nothing runs there any more")
    body = {"kind": "Maintenance", "metadata": {"name": "r01-u01-1"}}
    tell_events(events, body, {"kind": "Node", "metadata": {"name": "r01-u01"}}, before, after)
    messages = [each.message for each in events.told]
    assert [words for words in messages if words.count("Maintenance r01-u01-1") > 1] == []
    assert "Maintenance r01-u01-1: nothing runs there any more" in messages
