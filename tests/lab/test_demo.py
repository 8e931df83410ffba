"""What a demo remembers of itself and what it shows."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from lab.demo import show as demo_show
from lab.demo.keys import obtain_keys
from lab.demo.show import BootDisplay, follow_until, is_ready, server_line, what_is_missing
from lab.demo.state import DemoState, is_running, process_start_time, stop_daemon
from lab.demo.up import require_running, run_job
from provisioner.api.machinery.errors import NeedsHuman, Retryable
from provisioner.api.machinery.meta import Condition, ObjectMeta, rfc3339_micro
from provisioner.api.servers.server import BootOrder, JoinStatus, PowerStatus, Server, ServerSpec, ServerStatus
from provisioner.cluster.client import Cluster, ListResult

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(seconds: float) -> str:
    return rfc3339_micro(NOON + timedelta(seconds=seconds))


def a_server(*, ready: bool = False, verified: bool = True, waits: str = "") -> Server:
    status = ServerStatus()
    if waits:
        condition = Condition(
            type="Ready", status="False", reason="NoNodePool", message=waits, last_transition_time=at(0)
        )
        status = ServerStatus(conditions=(condition,))
    elif ready:
        condition = Condition(type="Ready", status="True", reason="Ready", message="", last_transition_time=at(38))
        status = ServerStatus(
            boot_stage="Ready",
            order=BootOrder(id="o", reason="FirstBoot", ordered_time=at(0), attempt=1),
            power=PowerStatus(order_id="o", order_time=at(0), state="On"),
            join=JoinStatus(order_id="o", fetched_time=at(30)),
            ready_time=at(38),
            lifecycle="InProduction" if verified else "Booted",
            conditions=(condition, replace(condition, type="Verified", status="True" if verified else "False")),
        )
    spec = ServerSpec(boot_mac_address="52:54:00:00:00:01")
    return Server(metadata=ObjectMeta(name="r01-u01"), spec=spec, status=status)


def test_a_line_tells_the_phases_of_a_boot_or_what_is_waited_for() -> None:
    line = server_line(a_server(ready=True), "UEFI", NOON)
    assert line.startswith("r01-u01  UEFI  firmware 30 s · kubelet 8 s")
    assert line.endswith("Ready 38 s")
    assert "NoNodePool: put it into one" in server_line(a_server(waits="put it into one"), "BIOS", NOON)


def test_where_no_terminal_is_a_line_is_printed_once_a_stage() -> None:
    out = io.StringIO()
    display = BootDisplay(out, {"r01-u01": "UEFI"})
    for _ in range(3):
        display.show([a_server(ready=True)], NOON)
    assert out.getvalue().count("\n") == 1


def test_an_api_server_that_is_away_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_show, "INTERVAL_SECONDS", 0.0)
    answers: list[Sequence[Server] | Exception] = [Retryable("away"), [a_server()], [a_server(ready=True)]]

    def read() -> Sequence[Server]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert not follow_until(is_ready, read, BootDisplay(io.StringIO(), {}), timeout_seconds=30)
    assert not answers


def test_a_ready_node_counts_once_its_checks_have_passed() -> None:
    assert is_ready(a_server(ready=True))
    held_out = a_server(ready=True, verified=False)
    assert not is_ready(held_out)
    assert what_is_missing(held_out) == "Ready"


def test_servers_that_do_not_come_are_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_show, "INTERVAL_SECONDS", 0.0)
    waiting = follow_until(is_ready, lambda: [a_server()], BootDisplay(io.StringIO(), {}), timeout_seconds=0)
    assert [server.name for server in waiting] == ["r01-u01"]


def test_a_reused_process_id_is_not_taken_for_the_daemon(tmp_path: Path) -> None:
    state = DemoState(cache=tmp_path, name="x")
    state.directory.mkdir(parents=True)
    assert not is_running(state)
    state.update(pid=os.getpid(), startTime="1")
    assert not is_running(state)
    stop_daemon(state)  # would end this very process, were it taken for the daemon
    with pytest.raises(NeedsHuman, match="no demo 'x' is running"):
        require_running(state)


@pytest.mark.programs
def test_a_daemon_is_ended_and_waited_for(tmp_path: Path) -> None:
    state = DemoState(cache=tmp_path, name="x")
    state.directory.mkdir(parents=True)
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    state.update(pid=sleeper.pid, startTime=process_start_time(sleeper.pid))
    assert is_running(state)
    stop_daemon(state)
    assert not is_running(state)
    assert sleeper.wait(5) == -15


def test_keys_are_kept_and_are_their_owners_alone(tmp_path: Path) -> None:
    keys = obtain_keys(tmp_path / "keys")
    assert obtain_keys(tmp_path / "keys") == keys
    assert repr(keys.bmc_password) == "***"
    assert (tmp_path / "keys").stat().st_mode & 0o777 == 0o700
    for private in (keys.join.key, tmp_path / "keys" / "bmc-password", tmp_path / "keys" / "join-ca.key"):
        assert private.stat().st_mode & 0o077 == 0, private


def test_a_job_is_said_to_run_once_its_pod_runs_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []

    class Pending:
        """Its pod runs at the third look."""

        looks = 0

        def create(self, kind: Any, job: Any) -> None:
            told.append("created")

        def list(self, kind: Any, **_: Any) -> ListResult:
            self.looks += 1
            told.append("looked")
            phase = "Running" if self.looks == 3 else "Pending"
            return ListResult(items=[{"status": {"phase": phase}}], resource_version="1")

    monkeypatch.setattr("lab.demo.up.time.sleep", lambda seconds: None)
    name = run_job(cast(Cluster, Pending()), "r01-u01", 30, told.append)
    runs = f"Job {name} runs on r01-u01 for 30 s, and is not interrupted"
    assert told == ["created", told[1], "looked", "looked", "looked", runs]
    assert "runs" not in told[1]
