"""An administrator's day: a node is asked for another image while a job runs on it, and the job does not notice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lab.demo.maintenance import find_latest, request_patch
from provisioner.api.machinery.codec import decode
from provisioner.api.nodes.contract import (
    HOLD_TAINT,
    MAINTENANCE_TAINT,
    POWER_CYCLE_REQUESTED,
    REIMAGE_REQUESTED,
    VERIFICATION_TAINT,
)
from provisioner.api.nodes.maintenance import FINAL_PHASES, Maintenance
from provisioner.cluster.resources import NODES, of
from tests.journey.virtual_rack import VirtualRack

pytestmark = pytest.mark.timeout(2400)

SHELL = "/host/usr/bin/dash"
CLOCKS_DIFFER = timedelta(seconds=5)


def test_every_server_was_verified_before_it_was_let_in(rack: VirtualRack) -> None:
    for name in ("r01-u01", "r01-u02"):
        rack.wait(f"{name} is verified", lambda name=name: _is_verified(rack, name))  # type: ignore[misc]
        assert _our_taints(rack, name) == []
        verification = rack.server(name).status.verification
        assert verification is not None
        assert {check.result for check in verification.checks} == {"Passed"}
        assert {"ImageDigest", "Clock", "Runtime"} <= {check.name for check in verification.checks}


def test_a_request_by_a_condition_of_the_node_is_carried_out(rack: VirtualRack) -> None:
    server, boot_before = "r01-u01", rack.node_boot_id("r01-u01")
    image = str(rack.server(server).status.assigned_image_ref)
    asked = datetime.now(UTC)
    patch = request_patch(POWER_CYCLE_REQUESTED, "WhenIdle", "its card hangs", asked)
    rack.kubectl("patch", "node", server, "--subresource=status", "-p", patch)
    done = _wait_for_end(rack, server, asked)
    assert done.status.phase == "Completed", done.status.timeline
    assert done.status.reboot is not None
    assert (done.status.reboot.method, done.status.reboot.outcome) == ("PowerCycle", "Booted")
    _assert_in_production(rack, server, image, boot_before)
    described = rack.kubectl("describe", "node", server)
    for reason in ("Requested", "Claimed", "RebootStarted", "BootSeen", "NodeAdmitted", "Completed"):
        assert reason in described, described


def test_now_is_refused_to_somebody_who_may_not(rack: VirtualRack) -> None:
    server = "r01-u02"
    rack.kubectl("create", "clusterrolebinding", "alice", "--clusterrole=provisioner-operator", "--user=alice")
    patch = request_patch(REIMAGE_REQUESTED, "Now", "I am in a hurry", datetime.now(UTC))
    before = rack.get("maintenances")["items"]
    for arguments in (
        ("patch", "node", server, "--subresource=status", "-p", patch),
        ("provision", "reboot", server, "--now", "-m", "I am in a hurry"),
    ):
        refused = rack.try_kubectl(*arguments, "--as=alice")
        assert refused.returncode != 0
        assert "Now" in refused.stderr
        assert "alice" in refused.stderr
    assert rack.get("maintenances")["items"] == before


def _latest(rack: VirtualRack, server: str, since: datetime) -> Maintenance | None:
    found = rack.ask(lambda cluster: cluster.list(of(Maintenance))).items
    return find_latest([decode(Maintenance, item) for item in found], server, since)


def _blockers(rack: VirtualRack, server: str, since: datetime) -> list[str]:
    found = _latest(rack, server, since)
    return [blocker.kind for blocker in found.status.blockers] if found else []


def _wait_for_end(rack: VirtualRack, server: str, since: datetime) -> Maintenance:
    def has_ended() -> bool:
        found = _latest(rack, server, since)
        return found is not None and found.status.phase in FINAL_PHASES

    rack.wait(f"the maintenance of {server} has ended", has_ended)
    found = _latest(rack, server, since)
    assert found is not None
    for entry in found.status.timeline:
        print(entry.time, entry.phase, entry.reason, entry.message)
    return found


def _assert_in_production(rack: VirtualRack, server: str, image: str, boot_before: str) -> None:
    status = rack.server(server).status
    assert status.image_ref == image
    assert rack.node_boot_id(server) == status.boot_id != boot_before
    assert _is_verified(rack, server)
    rack.wait(f"{server} is in production", lambda: rack.server(server).status.lifecycle == "InProduction")
    assert _our_taints(rack, server) == []


def _is_verified(rack: VirtualRack, server: str) -> bool:
    status = rack.server(server).status
    verified = next((c for c in status.conditions if c.type == "Verified"), None)
    return (
        verified is not None
        and verified.status == "True"
        and status.verification is not None
        and status.verification.boot_id == rack.node_boot_id(server)
    )


def _our_taints(rack: VirtualRack, server: str) -> list[str]:
    taints = rack.look(NODES, server)["spec"].get("taints") or []
    return [taint["key"] for taint in taints if taint["key"] in (MAINTENANCE_TAINT, VERIFICATION_TAINT, HOLD_TAINT)]


def _condition(rack: VirtualRack, server: str, type_: str) -> dict[str, Any]:
    return next(c for c in rack.get("node", server)["status"]["conditions"] if c["type"] == type_)
