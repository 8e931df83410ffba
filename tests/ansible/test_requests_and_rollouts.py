"""Modules request, rollout and image, run by ansible-playbook against a real API server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab.control_plane.plane import ControlPlane
from provisioner.api import Image, NodePool
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import of
from provisioner.image.finished.sign import SecretKey, write_keys
from tests.ansible.runs import Installed, Run
from tests.cli.rack_of_nodes import RackOfNodes
from tests.image.made_images import write_layered

pytestmark = pytest.mark.long

Task = dict[str, Any]
MOMENT = "2026-01-01T00:00:00Z"


@dataclass
class Asker:
    """Plays of one asker, against servers with Nodes; no controller runs."""

    rack: RackOfNodes
    collection: Installed
    folder: Path

    def task(self, module: str, name: str = "", **given: Any) -> Task:
        options = {"kubeconfig": str(self.rack.kubeconfig)} | given
        return {"name": name or module, f"provisioner.provisioner.{module}": options}

    def run(self, *tasks: Task, words: tuple[str, ...] = ()) -> Run:
        return self.collection.tasks(self.folder, list(tasks), *words)

    def entries(self, server: str) -> list[tuple[str, str, str | None]]:
        return [
            (m.name, requestor.action, requestor.message)
            for m in self.rack.filed(server)
            for requestor in m.spec.requestors
        ]


@pytest.fixture
def asker(
    cluster: Cluster, control_plane: ControlPlane, collection: Installed, tmp_path: Path, unique: str
) -> Iterator[Asker]:
    rack = RackOfNodes(cluster, control_plane.kubeconfig, unique)
    rack.add_pool()
    yield Asker(rack, collection, tmp_path)
    rack.remove()


def test_a_request_is_filed_once_withdrawn_once_and_only_rehearsed_in_check_mode(asker: Asker) -> None:
    server = asker.rack.add()
    reboot = asker.task("request", servers=[server], action="Reboot", reason="its fan")
    assert asker.run(reboot, words=("--check",)).changed == ["request"]
    assert asker.entries(server) == []

    first = asker.run(reboot, reboot | {"name": "again"}, words=("--diff",))
    assert first.changed == ["request"], first.output
    assert first["again"].result["requests"][0]["state"] == "unchanged"
    assert "action: Reboot" in first["request"].result["diff"][0]["after"]
    assert asker.entries(server) == [(f"{server}-1", "Reboot", "its fan")]

    by_kubectl = asker.rack.done("reboot", server, "-m", "its fan")
    assert f"Maintenance {server}-1" in by_kubectl, "kubectl provision filed it elsewhere"
    absent = asker.task("request", servers=[server], state="absent")
    assert asker.run(absent, absent | {"name": "again"}).changed == ["request"]
    assert asker.entries(server) == []


def test_what_a_key_names_is_asked_for_once_even_when_it_is_done_but_again_when_it_failed(asker: Asker) -> None:
    server = asker.rack.add()
    reboot = asker.task("request", servers=[server], action="Reboot", reason="firmware", key="CHG-4711")
    assert asker.run(reboot).changed == ["request"]
    assert asker.entries(server) == [(f"{server}-1", "Reboot", "firmware [CHG-4711]")]
    asker.rack.executor_says(f"{server}-1", phase="Completed")

    waits = asker.task("request", "waits", servers=[server], action="Reboot", key="CHG-4711", wait=True)
    other = asker.task("request", "other", servers=[server], action="Reboot", key="CHG-4712")
    done = asker.run(reboot, waits, other)
    assert done.changed == ["other"], done.output
    assert done["waits"].result["requests"][0]["outcome"] == "Completed"
    asker.rack.executor_says(f"{server}-2", phase="Failed")
    assert asker.run(other).changed == ["other"]
    assert asker.entries(server)[-1] == (f"{server}-3", "Reboot", "[CHG-4712]")


def test_a_span_counts_from_when_it_was_first_asked_and_a_wait_says_why_it_failed(asker: Asker) -> None:
    server = asker.rack.add()
    drain = asker.task("request", pool=asker.rack.prefix, action="Drain", policy="Deadline", deadline="2h")
    late = asker.task("request", "late", servers=[server], action="Drain", policy="Deadline", deadline="3h")
    sooner = asker.task("request", "sooner", servers=[server], action="Drain", policy="Deadline", deadline="1h")
    run = asker.run(drain, late, sooner)
    assert run.changed == ["request", "sooner"], run.output
    ended = {"type": "Succeeded", "status": "False", "reason": "DrainTimedOut", "lastTransitionTime": MOMENT}
    told = ended | {"message": "a job did not end"}
    wait = {"servers": [server], "action": "Drain", "policy": "Deadline", "deadline": "2h", "wait": True}
    awaited = asker.run(asker.task("request", wait_timeout=1, **wait))
    assert "the request stands" in awaited.failed[0].result["msg"]
    asker.rack.executor_says(f"{server}-1", phase="Drained", conditions=[told])
    assert asker.run(asker.task("request", **wait))["request"].result["requests"][0]["outcome"] == "Drained"


def test_what_cannot_be_asked_for_is_told_and_nothing_is_asked_of_anybody(asker: Asker) -> None:
    good, bare = asker.rack.add(), asker.rack.add(bmc=None)
    nothing = asker.task("request", "nobody", servers=[], action="Reboot")
    wrong = [
        (asker.task("request", servers=[good, bare], action="PowerCycle"), f"{bare} has no BMC"),
        (asker.task("request", servers=[good, "no-such"], action="Reboot"), "there is no Node and no Server no-such"),
        (asker.task("request", servers=[good], action="Reimage", image="no-such"), "there is no Image no-such"),
        (
            asker.task("request", servers=[good], action="Reboot", deadline="2h"),
            "a deadline with policy Deadline alone",
        ),
        (asker.task("request", servers=[good], action="Reboot", key="two words"), "key is 'two words'"),
        (asker.task("request", servers=[good]), "action"),
    ]
    tasks = [task | {"name": f"wrong {number}", "ignore_errors": True} for number, (task, _) in enumerate(wrong)]
    ran = asker.run(nothing, *tasks)
    assert ran["nobody"].state == "ok"
    for number, (_, words) in enumerate(wrong):
        assert ran[f"wrong {number}"].state == "ignored"
        assert words in ran[f"wrong {number}"].result["msg"]
    assert asker.entries(good) == asker.entries(bare) == []


KEY = SecretKey.generate()


def test_an_image_is_published_and_rolled_out_by_the_playbook_and_again_nothing_changes(
    asker: Asker, cluster: Cluster, tmp_path: Path
) -> None:
    folder = write_layered(tmp_path / "store", KEY, recipe=asker.rack.prefix)
    _, public = write_keys(tmp_path / "keys", KEY)
    digits = folder.name.removeprefix("sha256-")[:12]
    image, pool = f"{asker.rack.prefix}-{digits}", asker.rack.prefix
    publish = asker.task("image", folder=str(folder), public_key=str(public))
    assert asker.run(publish, words=("--check",)).changed == ["image"]
    assert cluster.find(of(Image), image) is None
    assert asker.run(publish, publish | {"name": "again"}).changed == ["image"]

    generation = cluster.get(of(NodePool), pool)["metadata"]["generation"] + 1
    seen = {"type": "Progressing", "status": "True", "reason": "RolloutComplete", "lastTransitionTime": MOMENT}
    rollout = {"imageRef": image, "startedTime": MOMENT, "completedTime": MOMENT, "message": "all have it"}
    status = {"conditions": [seen | {"message": "", "observedGeneration": generation}], "rollout": rollout}
    cluster.apply_status(NodePool, pool, status, manager="provisioner-rollout")
    given = [f"folder={folder}", f"public_key={public}", f"pool={pool}", f"kubeconfig={asker.rack.kubeconfig}"]
    words = [word for each in given for word in ("-e", f"provisioner_{each}")]

    assert "Move the pool" in asker.collection.play("provisioner.provisioner.roll_image", "--check", *words).changed
    assert cluster.read(NodePool, pool).spec.image_ref == "gpu-node-1"
    ran = asker.collection.play("provisioner.provisioner.roll_image", *words)
    assert (ran.code, ran.changed) == (0, ["Move the pool"]), ran.output
    assert ran["Move the pool"].result["outcome"] == "Completed"
    assert cluster.read(NodePool, pool).spec.image_ref == image
    assert asker.collection.play("provisioner.provisioner.roll_image", *words).changed == []

    stopped = {"time": MOMENT, "reason": "Failures", "message": "2 servers failed with it"}
    failing = {key: value for key, value in rollout.items() if key != "completedTime"} | {"stopped": stopped}
    cluster.apply_status(NodePool, pool, status | {"rollout": failing}, manager="provisioner-rollout")
    ran = asker.collection.play("provisioner.provisioner.roll_image", *words)
    assert "2 servers failed with it" in ran.failed[0].result["msg"]
    assert "rollout" in ran.failed[0].result["remedy"]
    cluster.delete(of(Image), image)


def test_an_image_that_is_altered_or_that_nobody_could_boot_is_refused(asker: Asker, tmp_path: Path) -> None:
    folder = write_layered(tmp_path / "store", KEY, recipe=asker.rack.prefix)
    _, public = write_keys(tmp_path / "keys", KEY)
    _, other = write_keys(tmp_path / "other", SecretKey.generate())
    altered = next(path for path in (tmp_path / "store/parts").iterdir() if path.stat().st_size == 400)
    publish = asker.task("image", "forged", folder=str(folder), public_key=str(other), state="present")
    again = asker.task("image", "altered", folder=str(folder), public_key=str(public))
    roll = asker.task("rollout", pool=asker.rack.prefix, image="no-such")
    altered.write_bytes(b"x" * 400)
    ran = asker.run(*(task | {"ignore_errors": True} for task in (publish, again, roll)))
    assert "sign" in ran["forged"].result["msg"]
    assert "is altered" in ran["altered"].result["msg"]
    assert "there is no Image no-such" in ran["rollout"].result["msg"]
