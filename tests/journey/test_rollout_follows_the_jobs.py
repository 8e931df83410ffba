"""An image on its way through a rack: the idle server first, the others as their jobs end, and a bad one nowhere.

Real: the servers, their kubelets and agents, kexec, the pod, Slurm. slurmd runs beside the server, not in it.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from provisioner.api import NodePool
from provisioner.api.machinery.schema import API_VERSION
from provisioner.cluster.resources import NODES, of
from tests.jobs.slurm_site import PREFIX, SlurmSite
from tests.journey.jobs import end_job, start_job
from tests.journey.slurm_beside_the_rack import settings_of, slurm_beside
from tests.journey.virtual_rack import VirtualRack, lab_command

pytestmark = pytest.mark.timeout(2400)

IDLE, WITH_POD, WITH_SLURM = SERVERS = ("r01-u01", "r01-u02", "r01-u03")
SEEN_MIB = 900
"""What checks expect of memory; a server of the rack has 1536 MiB, and 865 with the bad image."""


@pytest.fixture(scope="module")
def slurm(rack: VirtualRack) -> Iterator[SlurmSite]:
    with slurm_beside(rack) as site:
        try:
            yield site
        finally:
            # Who cannot know what runs on a server waits: the journeys after this one need no Slurm that is gone.
            configure(rack, {"jobs": None})


def another_image(rack: VirtualRack, *arguments: str) -> str:
    words = [word for argument in arguments for word in ("--argument", argument)]
    command = lab_command("another-image", "--name", rack.state.name, *words)
    made = subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    return made.stdout.split()[-1]


def configure(rack: VirtualRack, spec: dict[str, Any]) -> None:
    rack.kubectl("patch", "nodepool", "gpu", "--type=merge", "-p", json.dumps({"spec": spec}))


def pool(rack: VirtualRack) -> dict[str, Any]:
    return dict(rack.look(of(NodePool), "gpu")["status"])


def images(rack: VirtualRack) -> list[str]:
    return [str(rack.server(name).status.image_ref) for name in SERVERS]


def boots(rack: VirtualRack) -> list[str]:
    return [rack.node_boot_id(name) for name in SERVERS]


def condition(rack: VirtualRack, type_: str) -> tuple[str, str]:
    (found,) = [each for each in pool(rack)["conditions"] if each["type"] == type_]
    return found["status"], found["reason"]


def test_the_idle_server_is_the_canary_and_the_others_follow_when_their_jobs_end(
    rack: VirtualRack, slurm: SlurmSite
) -> None:
    strategy = {"canary": {"count": 1, "soakSeconds": 10}, "maxParallel": 2, "maxUnavailable": 2}
    checks = {"attempts": 1, "expected": {"memoryMib": SEEN_MIB}}
    jobs, budget = {"slurm": settings_of(slurm)}, {"maxUnavailable": 2}
    configure(rack, {"upgradeStrategy": strategy, "verification": checks, "jobs": jobs, "maintenance": budget})
    old, before = images(rack), boots(rack)
    start_job(rack, "training", WITH_POD)
    flag = slurm.folder / "may-end"
    script = f"while [ ! -e {flag} ]; do sleep 0.2; done"
    job = slurm.submit(script, "--exclusive", f"--nodelist={PREFIX}{WITH_SLURM}", "--time=60")
    slurm.wait_for_job(job, "RUNNING")

    new = another_image(rack)
    configure(rack, {"imageRef": new})
    rack.wait("the canary runs the new image", lambda: images(rack)[0] == new and pool(rack)["updated"] == 1)
    rack.wait("the others wait for their jobs alone", lambda: _waits(rack) == {"Job": 2})
    assert images(rack)[1:] == old[1:]
    assert boots(rack)[1:] == before[1:]
    assert {each["job"] for each in pool(rack)["rollout"]["blockers"]} == {
        "Pod default/" + _pod(rack),
        f"SlurmJob {job}",
    }
    why = rack.kubectl("provision", "why", WITH_SLURM)
    assert "rollout" in why, why

    end_job(rack, "training")
    rack.wait("the second one follows", lambda: pool(rack)["updating"] == 1)
    assert slurm.job(job)["job_state"] == ["RUNNING"]
    assert boots(rack)[2] == before[2]
    flag.touch()
    slurm.wait_for_job(job, "COMPLETED")
    rack.wait("the third one follows", lambda: images(rack) == [new] * 3 and pool(rack)["updated"] == 3)
    rack.wait("it is complete", lambda: "completedTime" in pool(rack)["rollout"])
    assert pool(rack)["released"]["imageRef"] == new
    assert [str(rack.server(name).status.assigned_image_ref) for name in SERVERS] == [new] * 3
    assert slurm.job(job)["restart_cnt"] == 0
    rack.wait("Slurm may use it again", lambda: "DRAIN" not in slurm.node(f"{PREFIX}{WITH_SLURM}")[0])


@pytest.mark.long
def test_a_server_with_a_job_of_slurm_moves_to_a_pool_of_pods_when_that_has_ended_and_comes_back(
    rack: VirtualRack, slurm: SlurmSite
) -> None:
    spec, before = rack.get("nodepool", "gpu")["spec"], boots(rack)
    others = {key: value for key, value in spec.items() if key != "jobs"}
    rack.create({"apiVersion": API_VERSION, "kind": "NodePool", "metadata": {"name": "pods"}, "spec": others})
    flag = slurm.folder / "may-move"
    script = f"while [ ! -e {flag} ]; do sleep 0.2; done"
    job = slurm.submit(script, "--exclusive", f"--nodelist={PREFIX}{WITH_SLURM}", "--time=60")
    slurm.wait_for_job(job, "RUNNING")
    rack.kubectl("provision", "move", WITH_SLURM, "--to", "pods")
    rack.wait("it waits for its job alone", lambda: _blockers(rack, "pods") == [f"SlurmJob {job}"])
    assert boots(rack) == before
    flag.touch()
    slurm.wait_for_job(job, "COMPLETED")
    rack.wait("it is a Node of the other pool", lambda: _pools_of(rack, WITH_SLURM) == ("pods", "pods"))
    rack.wait("that pool is complete", lambda: "completedTime" in rack.look(of(NodePool), "pods")["status"]["rollout"])
    assert slurm.job(job)["restart_cnt"] == 0
    assert boots(rack)[:2] == before[:2]
    assert "DRAIN" in slurm.node(f"{PREFIX}{WITH_SLURM}")[0], "Slurm places nothing on a server that is away"

    rack.kubectl("provision", "move", WITH_SLURM, "--to", "gpu")
    rack.wait("it is back", lambda: _pools_of(rack, WITH_SLURM) == ("gpu", "gpu"))
    rack.wait("Slurm may use it again", lambda: "DRAIN" not in slurm.node(f"{PREFIX}{WITH_SLURM}")[0])
    rack.wait("its old pool is complete again", lambda: pool(rack)["updated"] == 3)


def _blockers(rack: VirtualRack, name: str) -> list[str]:
    rollout = rack.look(of(NodePool), name).get("status", {}).get("rollout") or {}
    return [each["job"] for each in rollout.get("blockers") or ()]


def _pools_of(rack: VirtualRack, name: str) -> tuple[str | None, str]:
    """Of what runs there, by its Server and by the label of its Node."""
    return rack.server(name).status.node_pool_ref, rack.look(NODES, name)["metadata"]["labels"]["provisioner.dev/pool"]


def test_a_bad_image_stops_at_its_canary_and_is_undone(rack: VirtualRack, slurm: SlurmSite) -> None:
    good, before = images(rack)[0], boots(rack)
    bad = another_image(rack, "mem=880M")
    configure(rack, {"imageRef": bad})
    rack.wait("the rollout stops itself", lambda: condition(rack, "Paused") == ("True", "Failures"))
    assert pool(rack)["failed"] == 1
    assert pool(rack)["released"]["imageRef"] == good
    rack.wait("a server says why", lambda: _failed(rack) != [])
    failed = _failed(rack)
    assert len(failed) == 1
    same = [name for name in SERVERS if name not in failed]
    assert [rack.node_boot_id(name) for name in same] == [before[SERVERS.index(name)] for name in same]
    said = rack.kubectl("provision", "rollout", "status", "gpu")
    assert "Memory" in said, said
    rack.kubectl("provision", "rollout", "undo", "gpu")
    rack.wait("the one that failed is back", lambda: pool(rack)["updated"] == 3 and images(rack) == [good] * 3)
    assert [rack.node_boot_id(name) for name in same] == [before[SERVERS.index(name)] for name in same]
    assert condition(rack, "Paused")[0] == "False"


def _failed(rack: VirtualRack) -> list[str]:
    return [name for name in SERVERS if rack.server(name).status.upgrade_failure is not None]


def _waits(rack: VirtualRack) -> dict[str, int]:
    return {each["reason"]: each["count"] for each in pool(rack)["rollout"].get("waits", ())}


def _pod(rack: VirtualRack) -> str:
    (found,) = rack.get("pods", "-l", "job-name=training")["items"]
    return str(found["metadata"]["name"])
