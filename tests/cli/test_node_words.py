"""`kubectl provision hold|release|retry|cancel`: a person's word about a node, and what takes it back."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from provisioner.api import Server
from provisioner.api.machinery.meta import parse_time
from provisioner.api.nodes.contract import (
    DRAIN_REQUESTED,
    HOLD_REQUESTED,
    REBOOT_REQUESTED,
    VERIFICATION_RELEASE_REQUESTED,
    VERIFICATION_RETRY_REQUESTED,
)
from provisioner.cli.kubectl.node_requests import write_condition
from tests.cli.rack_of_nodes import RackOfNodes

ADA = ("--as", "ada", "--as-group", "system:masters")


def ask(rack: RackOfNodes, node: str, type_: str) -> None:
    write_condition(rack.admin, node, type_, "True", "WhenIdle", "somebody", datetime.now(UTC), dry_run=False)


def verified(rack: RackOfNodes, server: str, status: str) -> None:
    condition = {
        "type": "Verified",
        "status": status,
        "reason": "Nics",
        "message": "one is missing",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    rack.admin.apply_status(Server, server, {"conditions": [condition]}, manager="provisioner-health")


def test_a_hold_says_who_holds_and_why_and_ends_by_a_release(rack: RackOfNodes) -> None:
    name = rack.add()
    assert rack.done("hold", name, "-m", "its fan") == f"node/{name} held\n"
    held = rack.condition(name, HOLD_REQUESTED)
    assert held is not None
    assert (held["status"], held["reason"], held["message"]) == ("True", "Held", "lab-admin: its fan")
    assert abs(datetime.now(UTC) - parse_time(held["lastTransitionTime"])) < timedelta(minutes=1)
    assert rack.done("release", name) == f"node/{name} condition HoldRequested withdrawn\n"
    released = rack.condition(name, HOLD_REQUESTED)
    assert released is not None
    assert (released["status"], released["message"]) == ("False", "withdrawn by lab-admin")


def test_a_release_withdraws_the_drain_and_leaves_a_reboot(rack: RackOfNodes) -> None:
    name = rack.add()
    rack.done("drain", name)
    rack.done("reboot", name, *ADA)
    ask(rack, name, DRAIN_REQUESTED)
    ask(rack, name, REBOOT_REQUESTED)
    said = rack.done("release", name)
    assert f"Drain withdrawn from Maintenance {name}-1" in said
    assert [r.user for r in rack.filed(name)[0].spec.requestors] == ["ada"]
    drain, reboot = rack.condition(name, DRAIN_REQUESTED), rack.condition(name, REBOOT_REQUESTED)
    assert drain is not None
    assert reboot is not None
    assert (drain["status"], reboot["status"]) == ("False", "True")


def test_a_cancel_withdraws_all_of_ones_own_and_tells_whose_the_rest_is(rack: RackOfNodes) -> None:
    name = rack.add()
    rack.done("reboot", name)
    rack.done("reboot", name, *ADA)
    ask(rack, name, REBOOT_REQUESTED)
    assert "Reboot withdrawn" in rack.done("cancel", name)
    assert [r.user for r in rack.filed(name)[0].spec.requestors] == ["ada"]
    nothing = rack.run("cancel", name)
    assert nothing.exit_code == 1
    assert "ada asked for something, which is theirs to withdraw; an administrator ends it by" in nothing.stderr


def test_an_entry_that_was_written_by_other_means_is_withdrawn_as_well(rack: RackOfNodes) -> None:
    from provisioner.api import Maintenance
    from provisioner.cluster.resources import of
    from tests.api.objects import maintenance, requestor

    name = rack.add()
    entries = [requestor(name="user-lab-admin", user="lab-admin"), requestor(name="rollout")]
    rack.admin.create(of(Maintenance), maintenance(f"{name}-1", serverRef=name, requestors=entries))
    rack.done("cancel", name)
    assert [r.name for r in rack.filed(name)[0].spec.requestors] == ["rollout"]


def test_nothing_to_release_is_an_error_and_one_such_node_stops_all(rack: RackOfNodes) -> None:
    held, free = rack.add(), rack.add()
    rack.done("hold", held)
    result = rack.run("release", held, free)
    assert result.exit_code == 1
    assert f"node {free} is neither held nor drained by lab-admin" in result.stderr
    condition = rack.condition(held, HOLD_REQUESTED)
    assert condition is not None
    assert condition["status"] == "True"


@pytest.mark.parametrize(
    ("arguments", "type_"),
    [
        (["retry", "-m", "the cable is in"], VERIFICATION_RETRY_REQUESTED),
        (["release", "--verification", "-m", "the cable is in"], VERIFICATION_RELEASE_REQUESTED),
    ],
)
def test_a_failed_check_is_retried_or_released_in_words(rack: RackOfNodes, arguments: list[str], type_: str) -> None:
    name = rack.add()
    verified(rack, name, "False")
    rack.done(*arguments, name)
    condition = rack.condition(name, type_)
    assert condition is not None
    assert (condition["status"], condition["message"]) == ("True", "lab-admin: the cable is in")
    verified(rack, name, "True")
    result = rack.run(*arguments, name)
    assert result.exit_code == 1
    assert "has passed its checks" in result.stderr


def test_a_release_of_checks_needs_words(rack: RackOfNodes) -> None:
    result = rack.run("release", rack.add(), "--verification")
    assert (result.exit_code, "needs --reason" in result.stderr) == (2, True)


def test_a_dry_run_of_a_hold_writes_nothing(rack: RackOfNodes) -> None:
    name = rack.add()
    assert rack.done("hold", name, "--dry-run") == f"node/{name} held (server dry run)\n"
    assert rack.condition(name, HOLD_REQUESTED) is None


def test_status_shows_every_node_of_a_pool_and_what_it_waits_for(rack: RackOfNodes) -> None:
    idle, busy, unborn = rack.add(), rack.add(), rack.add(node=False)
    rack.admin.apply_status(Server, idle, {"lifecycle": "InProduction"}, manager="provisioner-health")
    rack.done("reboot", busy)
    blocker = {"kind": "Pod", "name": "ml/train", "message": "is a job", "sinceTime": "2026-01-01T12:00:00Z"}
    rack.executor_says(f"{busy}-1", phase="Waiting", action="Reboot", blockers=[blocker, blocker | {"name": "ml/b"}])
    header, *rows = rack.done("status", "--pool", rack.prefix).splitlines()
    assert header.split() == ["NODE", "LIFECYCLE", "READY", "IMAGE", "BOOT", "MAINTENANCE", "WAITS-FOR"]
    assert [row.split()[0] for row in rows] == [idle, busy, unborn]
    assert rows[0].split()[1] == "InProduction"
    assert "Reboot/Waiting   no controller leads; Pod ml/train: is a job (+1)" in rows[1]
    assert f"node/{idle}\n" in rack.done("status", idle, "-o", "name")
    assert "POLICY" in rack.done("status", busy, "-o", "wide")


def test_why_reads_everything_from_the_cluster(rack: RackOfNodes) -> None:
    name = rack.add()
    rack.done("reimage", name, "-m", "driver 590")
    told = rack.done("why", name)
    assert told.startswith(f"{name} waits, and no controller leads: it is to be reimaged")
    asked = r'lab-admin asked for Reimage, when idle, \d+ s ago \(user-lab-admin\): "driver 590"'
    assert re.search(asked, " ".join(told.split()))
    unknown = rack.run("why", "nobody")
    assert (unknown.exit_code, "there is no Node and no Server nobody" in unknown.stderr) == (1, True)
