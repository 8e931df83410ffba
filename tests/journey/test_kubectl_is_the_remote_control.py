"""An administrator's day: a node is asked for another image while a job runs on it, and the job does not notice."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from provisioner.api.codec import decode
from provisioner.api.maintenance import FINAL_PHASES, Maintenance
from provisioner.api.meta import parse_time
from provisioner.api.node_contract import (
    HOLD_TAINT,
    MAINTENANCE_TAINT,
    POWER_CYCLE_REQUESTED,
    REIMAGE_REQUESTED,
    VERIFICATION_TAINT,
)
from provisioner.lab.demo.job import demo_job
from provisioner.lab.demo.maintenance import find_latest, request_patch
from tests.journey.virtual_rack import VirtualRack, lab_command

pytestmark = pytest.mark.timeout(2400)

SHELL = "/host/usr/bin/dash"
CLOCKS_DIFFER = timedelta(seconds=5)


@pytest.fixture(scope="module")
def another_image(rack: VirtualRack) -> str:
    """Name of an image that no node runs, and no pool names."""
    made = subprocess.run(
        lab_command("another-image", "--name", rack.state.name),
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    name = made.stdout.split()[-1]
    assert rack.get("image", name)["metadata"]["name"] == name
    return name


def test_every_server_was_verified_before_it_was_let_in(rack: VirtualRack) -> None:
    for name in ("r01-u01", "r01-u02"):
        rack.wait(f"{name} is verified", lambda name=name: _is_verified(rack, name))  # type: ignore[misc]
        assert _our_taints(rack, name) == []
        verification = rack.server(name).status.verification
        assert verification is not None
        assert {check.result for check in verification.checks} == {"Passed"}
        assert {"ImageDigest", "Clock", "Runtime"} <= {check.name for check in verification.checks}


def test_a_reimage_waits_for_the_job_and_comes_by_kexec(rack: VirtualRack, another_image: str) -> None:
    server, boot_before = "r01-u02", rack.node_boot_id("r01-u02")
    job = _start_job(rack, "training", server)
    asked = datetime.now(UTC)
    patch = request_patch(REIMAGE_REQUESTED, "WhenIdle", f"image={another_image} the new driver, please", asked)
    rack.kubectl("patch", "node", server, "--subresource=status", "-p", patch)

    rack.wait("the request waits for the job", lambda: _blockers(rack, server, asked) == ["Pod"])
    why = rack.kubectl("provision", "why", server)
    assert "training" in why
    assert "the new driver, please" in why
    assert rack.node_boot_id(server) == boot_before

    _end_job(rack, job)
    done = _wait_for_end(rack, server, asked)
    finished = _job_finished(rack, job)
    assert done.status.phase == "Completed", done.status.timeline
    assert done.status.claimed_time is not None
    assert parse_time(done.status.claimed_time) >= finished - CLOCKS_DIFFER  # the pod's end is told by the node's clock
    assert [(try_.method, try_.outcome) for try_ in (*done.status.attempts, done.status.reboot) if try_][-1] == (
        "Kexec",
        "Booted",
    )
    _assert_in_production(rack, server, another_image, boot_before)
    assert _condition(rack, server, REIMAGE_REQUESTED)["status"] == "False"


def test_a_second_one_comes_by_power_cycle(rack: VirtualRack, another_image: str) -> None:
    server, boot_before = "r01-u01", rack.node_boot_id("r01-u01")
    asked = datetime.now(UTC)
    patch = request_patch(POWER_CYCLE_REQUESTED, "WhenIdle", f"image={another_image} its card hangs", asked)
    rack.kubectl("patch", "node", server, "--subresource=status", "-p", patch)
    done = _wait_for_end(rack, server, asked)
    assert done.status.phase == "Completed", done.status.timeline
    assert done.status.reboot is not None
    assert (done.status.reboot.method, done.status.reboot.outcome) == ("PowerCycle", "Booted")
    _assert_in_production(rack, server, another_image, boot_before)
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


def _start_job(rack: VirtualRack, name: str, server: str) -> str:
    """A shell of the node's that runs until it is told to end well; an interrupted one does not."""
    job = demo_job(name, server, 1)
    container = job["spec"]["template"]["spec"]["containers"][0]
    nap = " ".join(container["command"])
    container["command"] = [*container["command"][:-2], SHELL, "-c", f"trap 'exit 0' USR1; while :; do {nap}; done"]
    rack.create(job)

    def runs() -> bool:
        pods = rack.get("pods", "-l", f"job-name={name}")["items"]
        return bool(pods) and pods[0]["status"]["phase"] == "Running"

    rack.wait(f"job {name} runs", runs)
    return name


def _end_job(rack: VirtualRack, name: str) -> None:
    loader = demo_job(name, "", 1)["spec"]["template"]["spec"]["containers"][0]["command"][:-2]

    def has_ended() -> bool:
        if _succeeded(rack, name):
            return True
        rack.try_kubectl("exec", f"job/{name}", "--", *loader, SHELL, "-c", "kill -USR1 1")  # may end with the job
        return False

    rack.wait(f"job {name} has ended well", has_ended, every_seconds=3)


def _succeeded(rack: VirtualRack, job: str) -> bool:
    status = rack.get("job", job)["status"]
    assert not status.get("failed"), f"the job was interrupted: {status}"
    return status.get("succeeded") == 1


def _job_finished(rack: VirtualRack, job: str) -> datetime:
    pods = rack.get("pods", "-l", f"job-name={job}")["items"]
    if pods:
        return parse_time(pods[0]["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"])
    return parse_time(rack.get("job", job)["status"]["completionTime"])


def _latest(rack: VirtualRack, server: str, since: datetime) -> Maintenance | None:
    return find_latest([decode(Maintenance, item) for item in rack.get("maintenances")["items"]], server, since)


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
    taints = rack.get("node", server)["spec"].get("taints") or []
    return [taint["key"] for taint in taints if taint["key"] in (MAINTENANCE_TAINT, VERIFICATION_TAINT, HOLD_TAINT)]


def _condition(rack: VirtualRack, server: str, type_: str) -> dict[str, Any]:
    return next(c for c in rack.get("node", server)["status"]["conditions"] if c["type"] == type_)
