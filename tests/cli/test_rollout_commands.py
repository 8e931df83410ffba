"""`kubectl provision rollout …` against a real API server: what is written into the NodePool, and what is refused."""

from __future__ import annotations

import io
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from lab.binaries.obtain import Binaries
from lab.control_plane.plane import ControlPlane
from provisioner.api import Image, NodePool, Server
from provisioner.api.machinery.meta import parse_time, rfc3339
from provisioner.cli.kubectl.failing import BadInput
from provisioner.cli.main import kubectl
from provisioner.cli.rollout.watching import watch_rollout
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import NODES, PODS, of
from tests.api.objects import image
from tests.cli.rack_of_nodes import RackOfNodes
from tests.people import bind, kubeconfig_of, until

OLD_DIGEST, NEW_DIGEST = "sha256:" + "ab" * 32, "sha256:" + "cd" * 32
ROLLOUT = "provisioner-rollout"


class Site(RackOfNodes):
    """A pool with two images, whose servers are in use with the first one. What the controllers would write is said."""

    @property
    def old(self) -> str:
        return f"{self.prefix}-old"

    @property
    def new(self) -> str:
        return f"{self.prefix}-new"

    def add_images(self) -> None:
        for name, digest in ((self.old, OLD_DIGEST), (self.new, NEW_DIGEST)):
            self.admin.create(of(Image), image(name, digest=digest))
        self.patch({"spec": {"imageRef": self.old}})

    def add_in_use(self, runs: str | None = None, **status: Any) -> str:
        name = self.add()
        self.server_is(name, runs or self.old, **status)
        return name

    def server_is(
        self, name: str, runs: str, *, failed: str | None = None, in_use: bool = True, lives: bool = True
    ) -> None:
        moment = rfc3339(datetime.now(UTC) - timedelta(hours=1))
        digest = OLD_DIGEST if runs == self.old else NEW_DIGEST
        said = {"message": "", "lastTransitionTime": moment}
        ready = {"type": "Ready", "status": "True" if lives else "False", "reason": "Ready", **said}
        verified = {**ready, "type": "Verified", "status": "True" if in_use else "False", "reason": "Passed"}
        booted = {"imageRef": runs, "imageDigest": digest, "conditions": [ready]}
        self.admin.apply_status(Server, name, booted, manager="provisioner-boot-controller")
        checked = {"bootID": "boot-1", "attempt": 1, "startedTime": moment, "finishedTime": moment}
        told = {"conditions": [verified], "verification": checked}
        self.admin.apply_status(Server, name, told, manager="provisioner-health")
        failure = {"imageRef": failed, "time": moment, "message": "ChecksFailed: GPUs: 7 of 8"}
        assigned: dict[str, Any] = {"assignedImageRef": runs} | ({"upgradeFailure": failure} if failed else {})
        self.admin.apply_status(Server, name, assigned, manager=ROLLOUT)
        self.admin.patch(NODES, name, {"status": {"nodeInfo": {"bootID": "boot-1"}}}, subresource="status")

    def patch(self, change: dict[str, Any]) -> None:
        self.admin.patch(of(NodePool), self.prefix, change)

    @property
    def pool(self) -> NodePool:
        return self.admin.read(NodePool, self.prefix)

    def controller_says(self, *, history: tuple[dict[str, Any], ...] = (), **rollout: Any) -> None:
        """What the controller would write of the rollout to the pool's present image."""
        pool = self.pool
        moment = rfc3339(datetime.now(UTC) - timedelta(hours=1))
        progressing = {
            "type": "Progressing", "status": "True", "reason": "Rest", "message": "", "lastTransitionTime": moment,
            "observedGeneration": pool.metadata.generation,
        }  # fmt: skip
        told = {"imageRef": pool.spec.image_ref, "previousImageRef": self.old, "startedTime": moment, "stage": "Rest"}
        status = {"rollout": told | rollout, "conditions": [progressing], "history": list(history)}
        self.admin.apply_status(NodePool, self.prefix, status, manager=ROLLOUT)

    def stops(self) -> None:
        moment = rfc3339(datetime.now(UTC))
        self.controller_says(stopped={"time": moment, "reason": "Failures", "message": "1 server failed"})

    def remove(self) -> None:
        super().remove()
        for name in (self.old, self.new):
            self.admin.delete(of(Image), name)


@pytest.fixture
def site(cluster: Cluster, control_plane: ControlPlane, unique: str) -> Iterator[Site]:
    site = Site(cluster, control_plane.kubeconfig, unique)
    site.add_pool()
    site.add_images()
    yield site
    site.remove()


def test_a_rollout_is_begun_by_the_image_and_says_what_will_happen(site: Site) -> None:
    for _ in range(3):
        site.add_in_use()
    told = site.done("rollout", "start", site.prefix, "--image", site.new)
    assert site.pool.spec.image_ref == site.new
    assert told.splitlines() == [
        f"nodepool/{site.prefix} moves from Image {site.old} to {site.new}: 3 of 3 servers go there, as their jobs end",
        "  first: 1 server as canary, in use for 10 min before others follow",
        f"  see: kubectl provision rollout status {site.prefix} --watch",
    ]


def test_to_begin_takes_a_pause_off_and_touches_nothing_else(site: Site) -> None:
    site.patch({"spec": {"upgradeStrategy": {"paused": True, "maxParallel": 3, "canary": {"count": 2}}}})
    before = site.pool.spec
    told = site.done("rollout", "start", f"nodepool/{site.prefix}", "--image", site.new)
    assert "it was paused, and is not any more" in told
    strategy = site.pool.spec.upgrade_strategy
    assert (strategy.paused, strategy.max_parallel, strategy.canary) == (False, 3, before.upgrade_strategy.canary)


def test_the_same_image_again_is_said_to_be_so_and_writes_nothing(site: Site) -> None:
    before = site.pool.metadata.resource_version
    assert f"wants Image {site.old} already" in site.done("rollout", "start", site.prefix, "--image", site.old)
    assert site.pool.metadata.resource_version == before


def test_a_cap_of_nothing_is_told_when_a_rollout_is_begun(site: Site) -> None:
    site.patch({"spec": {"upgradeStrategy": {"maxUnavailable": 0}}})
    told = site.done("rollout", "start", site.prefix, "--image", site.new)
    assert "nothing moves as long as spec.upgradeStrategy.maxUnavailable is 0" in told


def available(site: Site, status: str) -> None:
    words = {"type": "Available", "status": status, "reason": "FileMissing", "message": "boot-1 lacks root.squashfs"}
    condition = words | {"lastTransitionTime": "2026-01-02T03:04:05Z"}
    site.admin.apply_status(Image, site.new, {"conditions": [condition]}, manager="provisioner-boot")


@pytest.mark.parametrize(
    ("spoil", "arguments", "code", "words"),
    [
        (None, ("start", "nothing", "--image", "{new}"), 1, "there is no NodePool nothing"),
        (None, ("start", "{pool}", "--image", "nothing"), 1, "no Image nothing, expected one that is published"),
        (None, ("start", "{pool}"), 2, "Missing option '--image'"),
        (None, ("start", "{pool}", "--image", "{new}", "--timeout", "1m"), 2, "--timeout is for --wait"),
        ("unavailable", ("start", "{pool}", "--image", "{new}"), 1, "not Available, expected it to be: FileMissing: "),
        ("unavailable", ("undo", "{pool}", "--to", "{new}"), 1, "on each boot host: provisioner image publish"),
        ("unavailable", ("plan", "{pool}", "--image", "{new}"), 1, "is not Available"),
        (None, ("undo", "{pool}"), 1, "has had no image but"),
        (None, ("status", "nothing"), 1, "there is no NodePool nothing"),
        (None, ("status", "--watch"), 2, "--watch draws one pool"),
        (None, ("plan", "{pool}", "--image", "nothing"), 1, "there is no Image nothing"),
        (None, ("history", "a/b/c"), 1, "there is no NodePool"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_before_anything_is_written(
    site: Site, spoil: str | None, arguments: tuple[str, ...], code: int, words: str
) -> None:
    if spoil is not None:
        available(site, "False")
    before = site.pool.metadata.resource_version
    result = site.run("rollout", *(each.format(pool=site.prefix, new=site.new) for each in arguments))
    assert result.exit_code == code, (result.output, result.exception)
    assert words in result.stderr
    assert "Traceback" not in result.stderr
    assert site.pool.metadata.resource_version == before


def test_an_image_that_is_available_or_of_which_nothing_is_known_is_taken(site: Site) -> None:
    available(site, "True")
    site.done("rollout", "start", site.prefix, "--image", site.new)
    assert site.pool.spec.image_ref == site.new


def test_an_image_for_another_architecture_is_refused(site: Site) -> None:
    name = site.add(architecture="arm64")
    result = site.run("rollout", "start", site.prefix, "--image", site.new)
    assert (result.exit_code, f"is for x86_64, and {name} is not" in result.stderr) == (1, True)


def test_a_pause_is_written_and_taken_off_and_said_once(site: Site) -> None:
    assert "is paused: no further server begins" in site.done("rollout", "pause", site.prefix)
    assert site.pool.spec.upgrade_strategy.paused
    assert "is paused already" in site.done("rollout", "pause", site.prefix)
    assert "goes on" in site.done("rollout", "resume", site.prefix)
    assert not site.pool.spec.upgrade_strategy.paused
    assert "is neither paused nor stopped" in site.done("rollout", "resume", site.prefix)


def test_one_that_stopped_tries_again_what_failed_only_after_a_yes(site: Site) -> None:
    site.patch({"spec": {"imageRef": site.new}})
    failed = site.add_in_use(failed=site.new)
    site.add_in_use()
    site.stops()
    refused = site.run("rollout", "resume", site.prefix)
    assert refused.exit_code == 1
    assert f"try {failed} again with Image {site.new}? nobody can be asked here" in refused.stderr
    assert site.pool.spec.upgrade_strategy.retried_time is None
    told = site.done("rollout", "resume", site.prefix, "--yes")
    assert f"{failed} is tried again in its turn" in told
    retried = site.pool.spec.upgrade_strategy.retried_time
    stopped = site.pool.status.rollout
    assert retried is not None
    assert stopped is not None
    assert stopped.stopped is not None
    assert parse_time(retried) > parse_time(stopped.stopped.time), "else the controller takes it for an old decision"


def test_what_failed_and_is_out_of_use_is_said_to_count_until_it_is_back(site: Site) -> None:
    site.patch({"spec": {"imageRef": site.new}})
    failed = site.add_in_use(site.new, failed=site.new, in_use=False)
    site.stops()
    told = site.done("rollout", "resume", site.prefix, "--yes")
    assert f"{failed} is out of use and counts until it is back: kubectl provision why {failed}" in told


def test_undo_goes_back_to_where_the_rollout_came_from_and_counts_who_never_left(site: Site) -> None:
    site.patch({"spec": {"imageRef": site.new, "upgradeStrategy": {"paused": True}}})
    site.add_in_use(site.new)
    site.add_in_use()
    site.add_in_use()
    site.add_in_use(site.new, failed=site.new, in_use=False)
    silent = site.add_in_use(site.new, lives=False)
    site.controller_says()
    told = site.done("rollout", "undo", site.prefix)
    assert (site.pool.spec.image_ref, site.pool.spec.upgrade_strategy.paused) == (site.old, False)
    assert f"goes back from Image {site.new} to {site.old}: 2 servers have to go back, 2 never left" in told
    assert f"kubectl provision reboot {silent} --now" in told
    assert "it was paused, and is not any more" in told


def test_undo_of_what_is_complete_goes_back_too_and_once_more_by_the_history(site: Site) -> None:
    moment = rfc3339(datetime.now(UTC))
    record = {"startedTime": moment, "endedTime": moment, "updated": 1, "failed": 0}
    history = (
        {**record, "imageRef": site.old, "outcome": "Completed"},
        {**record, "imageRef": "gone", "outcome": "Superseded"},
        {**record, "imageRef": site.new, "outcome": "Completed"},
    )
    site.controller_says(history=history, previousImageRef=site.old)
    site.done("rollout", "undo", site.prefix)
    assert site.pool.spec.image_ref == site.new, "the last complete one that is another than the present"


def test_a_change_by_somebody_else_in_between_is_decided_on_anew(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    from provisioner.cli.rollout import change_commands

    decided = []

    def somebody_is_faster(cluster: Cluster, pool: NodePool, now: datetime) -> Any:
        decided.append(pool.spec.image_ref)
        if len(decided) == 1:
            site.patch({"spec": {"imageRef": site.new}})
        return read_view(cluster, pool, now)

    read_view = change_commands.read_view
    monkeypatch.setattr(change_commands, "read_view", somebody_is_faster)
    told = site.done("rollout", "start", site.prefix, "--image", site.new)
    assert decided == [site.old, site.new]
    assert f"wants Image {site.new} already" in told


def test_status_tells_of_each_server_and_json_tells_the_same(site: Site) -> None:
    site.patch({"spec": {"imageRef": site.new}})
    there, waits, failed = site.add_in_use(site.new), site.add_in_use(), site.add_in_use(failed=site.new)
    site.controller_says(message="all servers may follow; 1 server waits for its jobs")
    told = site.done("rollout", "status", site.prefix)
    assert "3: 1 updated, 1 waits, 1 failed" in told
    assert [line.split()[:2] for line in told.split("WAITS-FOR\n")[1].splitlines()] == [
        [failed, "failed"],
        [waits, "waits"],
        [there, "updated"],
    ]
    report = json.loads(site.done("rollout", "status", site.prefix, "-o", "json"))
    assert {each["name"]: each["state"] for each in report["servers"]} == {
        there: "Updated",
        waits: "Outdated",
        failed: "Failed",
    }
    assert report["status"]["rollout"]["imageRef"] == site.new
    assert yaml.safe_load(site.done("rollout", "status", site.prefix, "-o", "yaml")) == report
    assert (
        site.done("rollout", "status", "-o", "name").splitlines().count(f"nodepool.provisioner.dev/{site.prefix}") == 1
    )
    nodes, _, under_way = site.done("status", "--pool", site.prefix).partition("\n\n")
    assert len(nodes.splitlines()) == 4
    assert under_way.startswith(f"{site.prefix} moves from Image {site.old} to Image {site.new}, since 1 h; ")
    assert under_way.count("\n") == 1


def test_status_without_a_name_is_a_line_for_each_pool(site: Site) -> None:
    header, *lines = site.done("rollout", "status").splitlines()
    assert header.split()[:3] == ["POOL", "IMAGE", "FROM"]
    assert [line.split()[1] for line in lines if line.split()[0] == site.prefix] == [site.old]


def test_history_shows_the_one_under_way(site: Site) -> None:
    site.patch({"spec": {"imageRef": site.new}})
    site.controller_says(message="canary")
    (row,) = site.done("rollout", "history", site.prefix).splitlines()[1:]
    assert row.split()[:2] == [site.new, site.old]
    found = json.loads(site.done("rollout", "history", site.prefix, "-o", "json"))
    assert (found["rollout"]["imageRef"], found["history"]) == (site.new, [])


def pod(name: str, node: str, *, seconds: int) -> dict[str, Any]:
    resources = {"limits": {"nvidia.com/gpu": "8"}}
    containers = [{"name": "train", "image": "registry.invalid/train:1", "resources": resources}]
    spec = {"nodeName": node, "activeDeadlineSeconds": seconds, "containers": containers}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def test_a_plan_reads_what_runs_and_writes_nothing(site: Site) -> None:
    idle, busy = site.add_in_use(), site.add_in_use()
    site.admin.create(PODS, pod(f"{site.prefix}-job", busy, seconds=7200))
    begun = {"phase": "Running", "startTime": rfc3339(datetime.now(UTC) - timedelta(hours=1))}
    site.admin.patch(PODS, f"{site.prefix}-job", {"status": begun}, namespace="default", subresource="status")
    before = site.pool.metadata.resource_version
    told = site.done("rollout", "plan", site.prefix, "--image", site.new)
    site.admin.delete(PODS, f"{site.prefix}-job", namespace="default")
    assert site.pool.metadata.resource_version == before
    first, second = told.split("WAITS-FOR\n")[1].splitlines()[:2]
    assert first.split()[:2] == ["1", idle]
    assert second.split()[:2] == ["2", busy]
    assert f"Pod default/{site.prefix}-job" in second
    assert "in 1 h" in second or "in 59 min" in second


def as_person(site: Site, control_plane: ControlPlane, directory: Path, role: str) -> None:
    """From here on the commands are somebody's who has that role."""
    bind(site.admin, role, f"{site.prefix}-{role}")
    site.kubeconfig = kubeconfig_of(control_plane, directory, f"{site.prefix}-{role}")
    until(lambda: site.run("rollout", "status", site.prefix).exit_code == 0)


def test_an_operator_sees_everything_and_an_administrator_alone_decides(
    site: Site, control_plane: ControlPlane, tmp_path: Path
) -> None:
    as_person(site, control_plane, tmp_path, "provisioner-operator")
    for command in (["start", "--image", site.new], ["pause"], ["undo", "--to", site.new]):
        refused = site.run("rollout", command[0], site.prefix, *command[1:])
        assert refused.exit_code == 3, refused.output
        assert "cannot patch resource" in refused.stderr
        assert "provisioner-inventory-editor" in refused.stderr
    site.done("rollout", "history", site.prefix)
    assert site.pool.spec.image_ref == site.old


def test_who_may_not_read_pods_is_told_which_role_may(site: Site, control_plane: ControlPlane, tmp_path: Path) -> None:
    site.add_in_use()
    as_person(site, control_plane, tmp_path, "provisioner-operator")
    refused = site.run("rollout", "plan", site.prefix)
    assert refused.exit_code == 3
    assert "pods is forbidden" in refused.stderr
    assert "--clusterrole=provisioner-job-viewer" in refused.stderr
    bind(site.admin, "provisioner-job-viewer", f"{site.prefix}-provisioner-operator")
    until(lambda: site.run("rollout", "plan", site.prefix).exit_code == 0)


def test_an_administrator_may_begin_undo_and_plan(site: Site, control_plane: ControlPlane, tmp_path: Path) -> None:
    site.add_in_use()
    as_person(site, control_plane, tmp_path, "provisioner-administrator")
    site.done("rollout", "plan", site.prefix, "--image", site.new)
    site.done("rollout", "start", site.prefix, "--image", site.new)
    site.done("rollout", "pause", site.prefix)
    site.controller_says()
    site.done("rollout", "undo", site.prefix)
    assert site.pool.spec.image_ref == site.old


def test_what_runs_in_slurm_is_said_to_be_unknown_to_who_may_not_read_the_secret_of_the_pool(
    site: Site, control_plane: ControlPlane, tmp_path: Path
) -> None:
    name = site.add_in_use()
    site.patch({"spec": {"jobs": {"slurm": {"url": "http://slurm.invalid:6820", "credentialsName": "slurm"}}}})
    as_person(site, control_plane, tmp_path, "provisioner-administrator")
    told = " ".join(site.done("rollout", "plan", site.prefix, "--image", site.new).split())
    assert "not known what runs in Slurm: GET Secret slurm" in told
    assert f"stay {name}: what runs there is not known" in told


def test_who_may_read_nothing_is_told_the_role_of_a_viewer(
    site: Site, control_plane: ControlPlane, tmp_path: Path
) -> None:
    site.kubeconfig = kubeconfig_of(control_plane, tmp_path, f"{site.prefix}-nobody")
    refused = site.run("rollout", "status", site.prefix)
    assert refused.exit_code == 3
    assert "--clusterrole=provisioner-viewer" in refused.stderr


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def watched(site: Site, stream: io.StringIO, *steps: Any) -> int:
    """Watch while the steps are taken, each once the former was seen."""
    codes: list[int] = []
    watching = threading.Thread(
        target=lambda: codes.append(watch_rollout(site.admin, site.prefix, timeout_seconds=400, stream=stream))
    )
    watching.start()
    for words, step in steps:
        deadline = time.monotonic() + 180
        while words not in stream.getvalue():
            assert time.monotonic() < deadline, (words, stream.getvalue())
            time.sleep(0.05)
        step()
    watching.join(400)
    return codes[0]


def test_who_watches_is_told_each_change_on_a_line_and_the_end(site: Site) -> None:
    site.patch({"spec": {"imageRef": site.new}})
    name = site.add_in_use()
    site.controller_says(message="canary: 0 of 1")
    out = io.StringIO()
    code = watched(
        site,
        out,
        ("1: 1 waits; canary: 0 of 1\n", lambda: site.server_is(name, site.new)),
        ("1: 1 updated; canary: 0 of 1\n", lambda: site.controller_says(completedTime=rfc3339(datetime.now(UTC)))),
    )
    assert code == 0
    assert out.getvalue().splitlines()[-1].startswith(f"{site.prefix} runs Image {site.new}: its rollout from Image")


def test_who_watches_one_that_stops_is_let_go_with_what_one_can_do(site: Site) -> None:
    site.patch({"spec": {"imageRef": site.new}})
    name = site.add_in_use(failed=site.new)
    site.controller_says(message="canary: 0 of 1")
    out = io.StringIO()
    assert watched(site, out, ("1: 1 failed; canary", site.stops)) == 4
    assert f"error: the rollout of NodePool {site.prefix} stopped (Failures): {name}" in out.getvalue()
    assert f"kubectl provision rollout undo {site.prefix}" in out.getvalue()


def test_a_terminal_shows_the_fleet_and_is_redrawn_not_scrolled(site: Site) -> None:
    site.patch({"spec": {"imageRef": site.new}})
    name = site.add_in_use()
    site.add_in_use()
    site.controller_says(message="canary: 0 of 1")
    out = Terminal()
    code = watched(
        site,
        out,
        ("r01  \x1b[34m..", lambda: site.server_is(name, site.new)),
        ("r01  \x1b[32m#", lambda: site.controller_says(completedTime=rfc3339(datetime.now(UTC)))),
    )
    assert code == 0
    assert out.getvalue().startswith("\x1b[H\x1b[2J")
    assert out.getvalue().count("\x1b[2J") == 1


class Impatient(io.StringIO):
    """Somebody presses Control-C at the first line."""

    def write(self, text: str) -> int:
        if not self.getvalue():
            super().write(text)
            raise KeyboardInterrupt
        return super().write(text)


def test_control_c_ends_the_looking_and_not_the_rollout(site: Site) -> None:
    site.add_in_use()
    site.done("rollout", "start", site.prefix, "--image", site.new)
    out = Impatient()
    assert watch_rollout(site.admin, site.prefix, timeout_seconds=400, stream=out) == 130
    assert f"the rollout goes on. Hold it up: kubectl provision rollout pause {site.prefix}" in out.getvalue()
    assert site.pool.spec.image_ref == site.new


def test_who_waits_for_a_rollout_is_let_go_when_the_time_is_over(site: Site) -> None:
    site.add_in_use()
    result = site.run("rollout", "start", site.prefix, "--image", site.new, "--wait", "--timeout", "2s")
    assert result.exit_code == 5, result.output
    assert f"not complete within the time; see: kubectl provision rollout status {site.prefix}" in result.output
    assert site.pool.spec.image_ref == site.new


def test_a_pool_that_is_deleted_while_it_is_watched_is_told(site: Site) -> None:
    site.controller_says(imageRef=site.old, message="canary")
    site.patch({"spec": {"upgradeStrategy": {"paused": True}}})
    out = io.StringIO()
    raised: list[BaseException] = []

    def watch() -> None:
        try:
            watch_rollout(site.admin, site.prefix, timeout_seconds=400, stream=out)
        except BadInput as error:
            raised.append(error)

    watching = threading.Thread(target=watch)
    watching.start()
    while not out.getvalue():
        time.sleep(0.05)
    site.admin.delete(of(NodePool), site.prefix)
    watching.join(400)
    assert "was deleted" in str(raised[0])


def test_pool_and_image_are_completed_by_kubectl_itself(site: Site, binaries: Binaries) -> None:
    root = Path(__file__).parents[2]
    path = f"{root / 'bin'}:/usr/local/bin:/usr/bin:/bin"
    environment = {"PATH": path, "KUBECONFIG": str(site.kubeconfig), "HOME": str(Path.home())}

    def completed(*words: str) -> list[str]:
        command = [str(binaries.kubectl), "__complete", "provision", "rollout", *words]
        ran = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        return ran.stdout.splitlines()[:-1]

    until(lambda: completed("start", site.prefix) == [site.prefix])
    until(lambda: completed("start", site.prefix, "--image", site.prefix) == [site.new, site.old])
    assert "undo" in " ".join(completed(""))


@pytest.mark.parametrize("command", ["start", "status", "pause", "resume", "undo", "history", "plan"])
def test_each_command_explains_itself(command: str) -> None:
    result = CliRunner().invoke(kubectl, ["rollout", command, "--help"])
    assert result.exit_code == 0
    assert "Example" in result.output
    assert "Exit codes" in result.output
