"""Each alert fires on what it is for, from series as the controller serves them, and on nothing less: by promtool."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric

from provisioner.api.nodes.maintenance import MaintenanceStatus, RebootAttempt
from provisioner.cli.service.controller import NAMES
from provisioner.cluster.metrics import Meters
from provisioner.health.look import ALL_CHECKS
from provisioner.maintenance.status.measure import tell_metrics
from provisioner.maintenance.status.record import end_attempt, judge, note
from provisioner.maintenance.status.verdict import FINAL_PHASE_OF, Cause
from provisioner.outbound.bulkhead import Bulkhead, LanePolicy
from tests.cluster.test_metrics import ALERTS, FakeCache, pool, server
from tests.cluster.test_metrics import maintenance as cached_maintenance
from tests.maintenance.samples import NOON, at, maintenance
from tests.tools import installed

Act = Callable[["Controller"], None]


class Families(CollectorRegistry):
    """What was collected, to be written as Prometheus reads it."""

    def __init__(self, families: Iterable[Metric]) -> None:
        super().__init__()
        self._families = tuple(families)

    def collect(self) -> Iterable[Metric]:
        return self._families


class Controller:
    """One replica, which leads from minute 1, as Prometheus sees it."""

    def __init__(self, groups: Sequence[str] = NAMES) -> None:
        self.now = NOON
        self.meters = Meters(causes=FINAL_PHASE_OF.items(), checks=ALL_CHECKS, groups=groups, now=lambda: self.now)
        self.servers, self.maintenances, self.pools = (FakeCache(server()), FakeCache(), FakeCache())
        self.racks = FakeCache()
        self.seconds = 0.0
        self.slurm = Bulkhead("slurmrestd", LanePolicy(failures=3), clock=lambda: self.seconds)

    def lead(self) -> None:
        self.meters.follow(self.servers, self.maintenances, self.pools, self.racks)
        self.meters.lead()
        self.meters.watch(self.slurm)

    def look_at_cache(self, status: str) -> None:
        """The boot hosts said so of a rack's cache."""
        conditions = [{"type": "CacheAvailable", "status": status}]
        self.racks.put({"metadata": {"name": "r01"}, "status": {"conditions": conditions}})

    def look_at_bmc(self, reason: str) -> None:
        """The power controller said so of a server."""
        said = {"type": "PoweredOn", "status": "True" if reason == "On" else "Unknown", "reason": reason}
        self.servers.put(server(conditions=[said]) | {"spec": {"bmc": {"address": "https://10.90.0.11"}}})

    def roll_out(self, name: str = "gpu", *, begun: timedelta = timedelta(), **status: Any) -> None:
        """The rollout controller said so of a pool's rollout, which began so long ago."""
        self.pools.put(pool(name, begun=self.now - begun, **{"desired": 8, "updated": 2, "waiting": 6} | status))

    def end(self, cause: Cause) -> None:
        """A Maintenance ends, as the executor writes it."""
        status = note(MaintenanceStatus(action="Reboot", policy="Now", started_time=at(0)), NOON, "Requested", "")
        judged = judge(replace(maintenance(1), status=status), cause, "for some reason", self.now)
        after = note(judged, self.now, cause, "for some reason", phase=FINAL_PHASE_OF[cause])
        tell_metrics(self.meters.maintenance, status, after, self.now)

    def attempt(self, outcome: Any) -> None:
        """An attempt by kexec ends, as the executor writes it."""
        attempt = RebootAttempt(
            id="1", method="Kexec", image_ref="i", image_digest="d", started_time=at(0), deadline_time=at(180)
        )
        status = MaintenanceStatus(action="Reboot", policy="WhenIdle", reboot=attempt)
        before = note(replace(status, phase="Drained"), NOON, "RebootStarted", "", phase="Rebooting")
        tell_metrics(self.meters.maintenance, before, end_attempt(before, outcome, "…", self.now), self.now)

    def verify(self, check: str, result: str, name: str = "r01-u01") -> None:
        """The checks of a boot are decided, as the health controller writes it."""
        self.servers.put(server(name))
        checks = [{"name": check, "result": result}]
        self.servers.put(server(name, verification={"finishedTime": self.now.isoformat(), "checks": checks}))

    def fail(self, times: int) -> None:
        """Calls to a slurmrestd fail, one after the other."""
        for _ in range(times):
            with suppress(TimeoutError), self.slurm.call("https://slurm.example:6820/a"):
                raise TimeoutError

    def answer(self) -> None:
        """The next probe succeeds."""
        self.seconds += 3600
        with self.slurm.call("https://slurm.example:6820/a"):
            pass

    def put_maintenance(self, phase: str, **status: Any) -> None:
        timeline = [{"phase": phase, "time": self.now.isoformat().replace("+00:00", "Z")}]
        self.maintenances.put(cached_maintenance("m-1", phase, timeline=timeline, **status))

    def samples(self, of: str = "") -> dict[str, float]:
        """Of the families whose names stand in `of`; of all, if that is empty."""
        known = self.meters.registry._collector_to_names.items()
        asked = [each for each, names in known if not of or not names or any(name in of for name in names)]
        families = [family for each in asked for family in each.collect() if not of or family.name in of]
        lines = generate_latest(Families(families)).decode().splitlines()
        found = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return {name: float(value) for name, _, value in found}


def assert_fires(
    folder: Path, alert: str, acts: Mapping[int, Act], minute: int, labels: str | None, groups: Sequence[str] = NAMES
) -> None:
    """At `minute` the alert fires with these labels, or does not (None). Each act follows a scrape."""
    rules = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
    (expression,) = (rule["expr"] for rule in rules if rule["alert"] == alert)
    controller, history = Controller(groups), list[dict[str, float]]()
    step = 1 if minute < 60 else 4
    for now in range(0, minute + 1, step):
        controller.now = NOON + timedelta(minutes=now)
        history.append({n: v for n, v in controller.samples(expression).items() if n.partition("{")[0] in expression})
        if now == step:
            controller.lead()
        acts.get(now, _nothing)(controller)
    names = sorted({name for moment in history for name in moment})
    series = [{"series": n, "values": " ".join(str(moment.get(n, "_")) for moment in history)} for n in names]
    firing = f'ALERTS{{alertname="{alert}",alertstate="firing"'
    expected = [] if labels is None else [{"labels": f"{firing},{labels}}}", "value": 1}]
    question = {"expr": f"{firing}}}", "eval_time": f"{minute}m", "exp_samples": expected}
    tests = {
        "rule_files": [str(ALERTS)],
        "evaluation_interval": f"{step}m",
        "tests": [{"interval": f"{step}m", "input_series": series, "promql_expr_test": [question]}],
    }
    path = folder / "alerts.test.yaml"
    path.write_text(json.dumps(tests))
    said = promtool("test", "rules", str(path))
    assert said.returncode == 0, said.stdout + said.stderr


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([installed("promtool"), *arguments], capture_output=True, text=True, check=False)


def _nothing(_: Controller) -> None:
    return


FIRING: dict[str, tuple[dict[int, Act], int, str]] = {
    "ProvisionerNobodyLeads": ({5: lambda c: c.meters.yield_lead()}, 10, 'severity="critical"'),
    "ProvisionerMaintenanceStuckDraining": (
        {5: lambda c: c.put_maintenance("Draining")},
        42,
        'severity="warning",pool="gpu",phase="Draining"',
    ),
    "ProvisionerMaintenanceStuckBooting": (
        {8: lambda c: c.put_maintenance("Verifying")},
        80,
        'severity="warning",pool="gpu",phase="Verifying"',
    ),
    "ProvisionerMaintenancesFail": (
        {5: lambda c: c.end("RebootFailed")},
        30,
        'severity="warning",reason="RebootFailed"',
    ),
    "ProvisionerKexecFails": ({5: lambda c: c.attempt("TimedOut")}, 30, 'severity="warning"'),
    "ProvisionerChecksFail": (
        {m: lambda c: c.verify("Clock", "Failed", f"r01-u{c.now.minute:02}") for m in (5, 15, 25)},
        40,
        'severity="warning",check="Clock"',
    ),
    "ProvisionerWaitsForAPerson": (
        {8: lambda c: c.put_maintenance("Waiting", blockers=[{"kind": "Person"}])},
        256,
        'severity="info",pool="gpu"',
    ),
    "ProvisionerBackendGivenUp": ({8: lambda c: c.fail(3)}, 30, 'severity="warning",kind="slurmrestd"'),
    "ProvisionerBMCOutOfBounds": ({8: lambda c: c.look_at_bmc("BMCCutOff")}, 30, 'severity="warning"'),
    "ProvisionerCacheOut": ({8: lambda c: c.look_at_cache("False")}, 30, 'severity="warning"'),
    "ProvisionerRolloutStopped": (
        {5: lambda c: c.roll_out(), 8: lambda c: c.roll_out(stopped="Workloads")},
        20,
        'severity="warning",pool="gpu",reason="Workloads"',
    ),
    "ProvisionerRolloutStalled": (
        {8: lambda c: c.roll_out(updating=1), 60: lambda c: c.roll_out(begun=timedelta(hours=1), updated=3, waiting=5)},
        60 + 27 * 60,
        'severity="warning",pool="gpu"',
    ),
    "ProvisionerRolloutJobsFail": ({8: lambda c: c.roll_out(jobs=(40, 2, 20, 5))}, 30, 'severity="info",pool="gpu"'),
}
QUIET: dict[str, tuple[dict[int, Act], int]] = {
    "ProvisionerNobodyLeads": ({5: lambda c: c.meters.yield_lead(), 6: lambda c: c.lead()}, 10),
    "ProvisionerMaintenanceStuckDraining": (
        {5: lambda c: c.put_maintenance("Draining"), 34: lambda c: c.put_maintenance("Rebooting")},
        42,
    ),
    "ProvisionerMaintenanceStuckBooting": (
        {8: lambda c: c.put_maintenance("Rebooting"), 60: lambda c: c.put_maintenance("Verifying")},
        80,
    ),
    "ProvisionerMaintenancesFail": ({5: lambda c: c.end("Booted"), 6: lambda c: c.end("Withdrawn")}, 30),
    "ProvisionerKexecFails": (
        {5: lambda c: c.attempt("Booted"), 6: lambda c: c.attempt("TimedOut"), 7: lambda c: c.attempt("Booted")},
        30,
    ),
    "ProvisionerChecksFail": (
        {5: lambda c: c.verify("Clock", "Failed"), 15: lambda c: c.verify("Root", "Failed")}
        | {m: lambda c: c.verify("Clock", "Passed") for m in (20, 22, 24)},
        40,
    ),
    "ProvisionerWaitsForAPerson": (
        {8: lambda c: c.put_maintenance("Waiting", blockers=[{"kind": "Pod"}])},
        256,
    ),
    "ProvisionerBackendGivenUp": ({8: lambda c: c.fail(3), 20: lambda c: c.answer(), 21: lambda c: c.fail(2)}, 30),
    "ProvisionerBMCOutOfBounds": ({8: lambda c: c.look_at_bmc("ForeignLink"), 20: lambda c: c.look_at_bmc("On")}, 30),
    "ProvisionerCacheOut": ({8: lambda c: c.look_at_cache("False"), 20: lambda c: c.look_at_cache("True")}, 30),
    "ProvisionerRolloutStopped": (
        {5: lambda c: c.roll_out(stopped="Failures", failed=1), 8: lambda c: c.roll_out()},
        20,
    ),
    "ProvisionerRolloutStalled": (
        {8: lambda c: c.roll_out(updating=1), 60: lambda c: c.roll_out(begun=timedelta(hours=1), updated=3, waiting=5)},
        60 + 23 * 60,
    ),
    "ProvisionerRolloutJobsFail": ({8: lambda c: c.roll_out(jobs=(40, 2, 20, 4))}, 30),
}


@pytest.mark.parametrize("alert", FIRING)
def test_an_alert_fires_at_the_first_of_what_it_is_for(tmp_path: Path, alert: str) -> None:
    acts, minute, labels = FIRING[alert]
    assert_fires(tmp_path, alert, acts, minute, labels)


@pytest.mark.parametrize("alert", QUIET)
def test_an_alert_is_quiet_about_less(tmp_path: Path, alert: str) -> None:
    acts, minute = QUIET[alert]
    assert_fires(tmp_path, alert, acts, minute, None)


def test_one_group_of_controllers_that_nobody_leads_is_enough_for_the_alert(tmp_path: Path) -> None:
    assert_fires(tmp_path, "ProvisionerNobodyLeads", {}, 10, 'severity="critical"', NAMES[1:])


def test_a_pools_own_check_is_counted_from_its_first_failure(tmp_path: Path) -> None:
    pool = {"metadata": {"name": "gpu"}, "spec": {"verification": {"checks": [{"name": "gpu-burn"}]}}}
    acts: dict[int, Act] = {2: lambda c: c.pools.put(pool)}
    acts |= {m: lambda c: c.verify("gpu-burn", "Failed", f"r01-u{c.now.minute:02}") for m in (5, 15, 25)}
    assert_fires(tmp_path, "ProvisionerChecksFail", acts, 40, 'severity="warning",check="gpu-burn"')


def test_of_many_pools_the_one_stands_still_whose_rollout_could_go_on_and_does_not(tmp_path: Path) -> None:
    def roll_out_all(controller: Controller) -> None:
        for name in ("still", "updating", "updated", "paused", "stopped", "windowed", "complete"):
            controller.roll_out(name)

    def halfway(controller: Controller) -> None:
        begun = timedelta(hours=12)
        controller.roll_out("updating", begun=begun, updating=1, waiting=5)
        controller.roll_out("updated", begun=begun, updated=3, waiting=5)
        controller.roll_out("paused", begun=begun, paused=True)
        controller.roll_out("stopped", begun=begun, stopped="Failures")
        controller.roll_out("windowed", begun=begun, waits={"Window": 6})

    acts: dict[int, Act] = {
        8: roll_out_all,
        12 * 60: halfway,
        28 * 60: lambda c: c.roll_out("complete", begun=timedelta(hours=28), completed=True),
    }
    assert_fires(tmp_path, "ProvisionerRolloutStalled", acts, 29 * 60, 'severity="warning",pool="still"')


def test_a_rollout_stands_still_whoever_leads_meanwhile_and_in_a_window_that_has_opened(tmp_path: Path) -> None:
    acts: dict[int, Act] = {
        8: lambda c: c.roll_out(waits={"Window": 6}),
        12 * 60: lambda c: c.meters.yield_lead(),
        12 * 60 + 8: lambda c: c.lead(),
        26 * 60: lambda c: c.roll_out(begun=timedelta(hours=26)),
    }
    assert_fires(tmp_path, "ProvisionerRolloutStalled", acts, 29 * 60, 'severity="warning",pool="gpu"')


@pytest.mark.parametrize(
    ("jobs", "more"),
    [
        pytest.param((40, 10, 20, 6), {}, id="as many fail on the old image"),
        pytest.param((0, 0, 20, 6), {}, id="nothing is known of the old image"),
        pytest.param((40, 2, 20, 6), {"stopped": "Workloads"}, id="it has stopped itself for that"),
        pytest.param((40, 2, 20, 6), {"completed": True}, id="it is over"),
    ],
)
def test_jobs_that_fail_on_the_new_image_are_no_news(tmp_path: Path, jobs: Sequence[int], more: dict[str, Any]) -> None:
    acts: dict[int, Act] = {8: lambda c: c.roll_out(jobs=jobs, **more)}
    assert_fires(tmp_path, "ProvisionerRolloutJobsFail", acts, 30, None)


def test_every_alert_is_shown_firing_and_quiet_and_promtool_takes_them_all() -> None:
    alerts = [rule["alert"] for rule in yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]]
    assert (list(FIRING), list(QUIET)) == (alerts, alerts)
    said = promtool("check", "rules", str(ALERTS))
    assert said.returncode == 0, said.stdout + said.stderr


def test_no_series_of_a_counter_is_born_by_its_first_event() -> None:
    """Whatever ends, was tried or was checked: only the names of a pool's own checks are not known from the start."""
    controller = Controller()
    before = set(controller.samples())
    controller.lead()
    for cause in FINAL_PHASE_OF:
        controller.end(cause)
    for outcome in ("Booted", "TimedOut", "Failed", "WrongImage"):
        controller.attempt(outcome)
    for check in ALL_CHECKS:
        controller.verify(check, "Failed", check)
    gauges = (
        "provisioner_backend",
        "provisioner_bmcs",
        "provisioner_boots_late",
        "provisioner_servers",
        "provisioner_racks_with_cache_out",
        "provisioner_maintenances_active",
        "provisioner_maintenance_oldest",
        "provisioner_rollout_",
    )
    assert {name for name in set(controller.samples()) - before if not name.startswith(gauges)} == set()
