"""All controllers in one process, or each group in its own: as whom they write, and which Leases they hold."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
import structlog
from click.testing import CliRunner

from lab.control_plane.plane import ControlPlane
from provisioner.api import Server
from provisioner.api.machinery.conditions import find_condition
from provisioner.api.machinery.errors import NotFound
from provisioner.cli.main import provisioner
from provisioner.cli.service import controller as service
from provisioner.cli.service import controllers
from provisioner.cli.service.controller import _groups, _lead
from provisioner.cli.service.controllers import connect_groups, run_controllers
from provisioner.cli.service.groups import GROUPS, account_of
from provisioner.cluster import patience
from provisioner.cluster.client import Cluster
from provisioner.cluster.metrics import Meters
from provisioner.cluster.resources import LEASES, SYSTEM, of
from tests.api import objects
from tests.people import kubeconfig_of, until


def test_one_process_writes_as_the_account_of_each_group(account: Callable[[str], Cluster]) -> None:
    clients = connect_groups(account("controller"), tuple(GROUPS), threading.Event())
    assert clients is not None
    assert {group: client.ask_who_i_am() for group, client in clients.items()} == {
        group: account_of(group) for group in GROUPS
    }


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_alone_needs_no_right_to_act_as_anybody(account: Callable[[str], Cluster], group: str) -> None:
    own = account(group)
    assert connect_groups(own, (group,), threading.Event()) == {group: own}


def test_who_may_not_act_as_the_accounts_is_told_how_and_begins_nothing(
    control_plane: ControlPlane, account: Callable[[str], Cluster], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controllers, "ASK_AGAIN_SECONDS", 0.05)
    monkeypatch.setattr(patience, "PATIENCE_SECONDS", 0.5)
    account("join")  # its rights are in force
    joiner = Cluster.connect(kubeconfig_of(control_plane, tmp_path, account_of("join")), patient=True)
    stop = threading.Event()
    with structlog.testing.capture_logs() as logs:
        answers: list[object] = []
        asking = threading.Thread(target=lambda: answers.append(connect_groups(joiner, ("power",), stop)))
        asking.start()
        until(lambda: any(each["event"] == "controllers may not act as their accounts" for each in logs))
        stop.set()
        asking.join(180)
    assert answers == [None]
    told = next(each for each in logs if each["event"] == "controllers may not act as their accounts")
    assert "cannot impersonate" in told["error"]
    assert "provisioner-GROUP" in told["remedy"]


def test_a_process_that_may_not_act_as_its_accounts_keeps_no_other_from_leading(
    control_plane: ControlPlane,
    account: Callable[[str], Cluster],
    cluster: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such as one of two groups with the token of the first."""
    account("join")  # its rights are in force
    stop, waits = threading.Event(), threading.Event()
    monkeypatch.setattr(patience, "PATIENCE_SECONDS", 0.5)
    monkeypatch.setattr(controllers, "ASK_AGAIN_SECONDS", 0.05)
    monkeypatch.setattr(service, "stop_on_signals", lambda: stop)
    file = kubeconfig_of(control_plane, tmp_path, account_of("join"))
    arguments = ["controller", "--boot-url=http://10.80.0.1", "--controllers=join,approver", f"--kubeconfig={file}"]
    running = threading.Thread(target=lambda: CliRunner().invoke(provisioner, arguments))
    monkeypatch.setattr(controllers.log, "warning", lambda *_, **__: waits.set())
    running.start()
    try:
        assert waits.wait(180)
        with pytest.raises(NotFound):
            cluster.get(LEASES, "provisioner-join", namespace=SYSTEM)
    finally:
        stop.set()
        running.join(180)
    assert not running.is_alive()


def test_a_group_alone_reads_and_writes_by_its_own_account(
    account: Callable[[str], Cluster], cluster: Cluster, unique: str
) -> None:
    """The inventory, which needs no other to say of a Server what it lacks."""
    stop = threading.Event()
    settings = {"boot_url": "http://10.80.0.1", "power_poll_seconds": 600.0, "clock": lambda: datetime.now(UTC)}
    working = threading.Thread(
        target=run_controllers,
        args=(account("inventory"), stop),
        kwargs=settings | {"meters": Meters(causes=(), checks=()), "groups": ("inventory",)},
    )
    working.start()
    try:
        mac = f"52:54:00:0f:{unique[1:3]}:{unique[3:5]}"
        cluster.create(of(Server), objects.server(unique, rackRef=f"{unique}-none", bootMACAddress=mac))
        until(lambda: find_condition(cluster.read(Server, unique).status.conditions, "Accepted") is not None)
    finally:
        stop.set()
        working.join(180)
        cluster.delete(of(Server), unique)
    assert not working.is_alive()


def test_a_part_works_while_it_holds_the_lease_of_each_of_its_groups(
    account: Callable[[str], Cluster], cluster: Cluster
) -> None:
    stop, held, names = threading.Event(), list[str](), ("provisioner-join", "provisioner-approver")

    def work(lost: threading.Event) -> None:
        held.extend(cluster.get(LEASES, name, namespace=SYSTEM)["spec"]["holderIdentity"] for name in names)
        lost.wait(180)

    leading = threading.Thread(
        target=_lead,
        args=(account("controller"), SYSTEM, ("provisioner-join", "provisioner-approver"), "me", stop, work),
    )
    leading.start()
    until(lambda: held == ["me", "me"])
    stop.set()
    leading.join(180)
    assert not leading.is_alive()
    for name in names:
        assert cluster.get(LEASES, name, namespace=SYSTEM)["spec"]["holderIdentity"] == ""
        cluster.delete(LEASES, name, namespace=SYSTEM)


def test_groups_are_named_in_any_order_and_taken_in_one() -> None:
    assert _groups(None) == tuple(GROUPS)
    assert _groups("power, join") == ("join", "power")
    ran = CliRunner().invoke(provisioner, ["controller", "--boot-url=http://10.80.0.1", "--controllers=join,powr"])
    assert ran.exit_code != 0
    assert "'powr' is none of inventory, orders, join, approver, health, maintenance, rollout, power" in ran.output
