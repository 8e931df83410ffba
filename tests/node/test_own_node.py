"""The daemon as a process of its own, against a real API server with Node authorization and NodeRestriction."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from lab.control_plane.kubelet_files import join_as
from lab.control_plane.plane import ControlPlane
from provisioner.api.machinery.codec import from_json, to_json
from provisioner.api.nodes.facts import BootIntent, BootReport, IntentAction, NodeFacts
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import NODES
from provisioner.node.api_server import ApiError, NotJoinedError, OwnNode, read_access
from provisioner.node.intent import FACTS_ANNOTATION, INTENT_ANNOTATION, REPORT_ANNOTATION
from tests.node.fake_image_store import FakeImageStore
from tests.node.machine import BOOT_ID, boot_machine, install_agent, start_agent
from tests.node.made_machine import make_machine, write
from tests.node.staged import IMAGE, KEY, in_store

SECONDS = 180.0
T = TypeVar("T")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_agent(tmp_path_factory.mktemp("image"))


@pytest.fixture
def store() -> Iterator[FakeImageStore]:
    with FakeImageStore({}) as running:
        yield running


@pytest.fixture
def node(cluster: Cluster, unique: str) -> Iterator[str]:
    """A Node as the join controller makes it: there before its kubelet."""
    cluster.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": unique}})
    yield unique
    cluster.delete(NODES, unique)


@pytest.fixture
def root(tmp_path: Path, control_plane: ControlPlane, node: str, store: FakeImageStore) -> Path:
    """A machine whose kubelet has joined as that Node."""
    machine = boot_machine(tmp_path / "root", join_port=1, boot_port=1, ca="")
    make_machine(machine)
    write(
        machine,
        "proc/cmdline",
        f"initrd=stage1.img provisioner.server={node} provisioner.url={store.url} "
        f"provisioner.image=sha256-{'9f' * 32} console=ttyS0\n",
    )
    write(machine, "etc/provisioner/image.pub", KEY.public.encode())
    join_as(machine, control_plane, node, node)
    return machine


@pytest.fixture
def agent(python: Path, root: Path) -> Iterator[subprocess.Popen[str]]:
    process = start_agent(python, "run", "--root", str(root))
    yield process
    process.kill()
    process.communicate(timeout=SECONDS)


def wait(what: str, found: Callable[[], T | None]) -> T:
    deadline = time.monotonic() + SECONDS
    while (result := found()) is None:
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
    return result


def annotation(cluster: Cluster, node: str, name: str) -> dict[str, Any] | None:
    text = cluster.get(NODES, node)["metadata"].get("annotations", {}).get(name)
    return json.loads(text) if text else None


def intend(cluster: Cluster, node: str, action: IntentAction, name: str, digest: str) -> None:
    intent = BootIntent(id=name, action=action, boot_id_before=BOOT_ID, image="gpu-2", image_digest=digest)
    text = json.dumps(to_json(intent))
    cluster.patch(NODES, node, {"metadata": {"annotations": {INTENT_ANNOTATION: text}}})


def report(cluster: Cluster, node: str, name: str, state: str) -> BootReport | None:
    told = annotation(cluster, node, REPORT_ANNOTATION)
    return from_json(BootReport, told) if told and (told["id"], told["state"]) == (name, state) else None


@pytest.mark.usefixtures("agent")
def test_a_node_tells_what_it_is_and_stages_what_it_is_told_to(
    cluster: Cluster, node: str, store: FakeImageStore
) -> None:
    told = wait("the facts are written", lambda: annotation(cluster, node, FACTS_ANNOTATION))
    facts = from_json(NodeFacts, told)
    assert (facts.boot_id, facts.image_digest, facts.product) == (BOOT_ID, "sha256:" + "9f" * 32, "SYS-821GE-TNHR")

    digest, store.files = IMAGE.digest, in_store(IMAGE)
    intend(cluster, node, "Stage", "stage-1", digest)
    staged = wait("the image is staged", lambda: report(cluster, node, "stage-1", "Staged"))
    assert staged.boot_id == BOOT_ID
    assert "verified and loaded" in staged.message

    intend(cluster, node, "Kexec", "try-1", digest)
    failed = wait("this folder says that it does not reboot", lambda: report(cluster, node, "try-1", "Failed"))
    assert "is a folder, not a machine" in failed.message


@pytest.mark.usefixtures("agent")
def test_an_image_that_cannot_be_had_is_reported_with_its_fault(cluster: Cluster, node: str) -> None:
    intend(cluster, node, "Stage", "stage-1", "sha256:" + "0b" * 32)
    failed = wait("the staging failed", lambda: report(cluster, node, "stage-1", "Failed"))
    assert "HTTP 404" in failed.message


@pytest.mark.usefixtures("agent")
def test_a_node_that_is_made_anew_gets_its_facts_again(cluster: Cluster, node: str) -> None:
    wait("the facts are written", lambda: annotation(cluster, node, FACTS_ANNOTATION))
    cluster.delete(NODES, node)
    cluster.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})
    wait("the facts are written again", lambda: annotation(cluster, node, FACTS_ANNOTATION))


def test_the_certificate_is_read_anew_because_the_kubelet_rotates_it(
    cluster: Cluster, control_plane: ControlPlane, node: str, root: Path, python: Path, tmp_path: Path
) -> None:
    """The first certificate is one of another node, which may not read this one."""
    join_as(root, control_plane, node, "another-node")
    process = start_agent(python, "run", "--root", str(root))
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "403" in line
        assert annotation(cluster, node, FACTS_ANNOTATION) is None
        join_as(root, control_plane, node, node)
        wait("the facts are written", lambda: annotation(cluster, node, FACTS_ANNOTATION))
    finally:
        process.kill()
        process.communicate(timeout=SECONDS)


def test_the_daemon_waits_for_a_kubelet_that_has_not_joined(
    cluster: Cluster, control_plane: ControlPlane, node: str, root: Path, python: Path, tmp_path: Path
) -> None:
    (root / "run/provisioner/kubelet/kubeconfig").unlink()
    process = start_agent(python, "run", "--root", str(root))
    try:
        assert process.stdout is not None
        assert "has not joined yet" in process.stdout.readline()
        join_as(root, control_plane, node, node)
        wait("the facts are written", lambda: annotation(cluster, node, FACTS_ANNOTATION))
    finally:
        process.kill()
        process.communicate(timeout=SECONDS)


def test_a_nodes_certificate_changes_its_own_annotations_and_nothing_more(
    cluster: Cluster, root: Path, node: str, unique: str
) -> None:
    own = OwnNode(read_access(str(root)))
    own.annotate({FACTS_ANNOTATION: "{}"})
    assert own.read()["metadata"]["annotations"][FACTS_ANNOTATION] == "{}"
    neighbour = f"{unique}-neighbour"
    cluster.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": neighbour}})
    access = read_access(str(root))._replace(node=neighbour)
    for forbidden in (lambda: OwnNode(access).read(), lambda: OwnNode(access).annotate({FACTS_ANNOTATION: "{}"})):
        with pytest.raises(ApiError) as caught:
            forbidden()
        assert caught.value.status == 403
    cluster.delete(NODES, neighbour)


def test_a_node_says_itself_that_its_kubelet_has_ended(cluster: Cluster, root: Path, node: str) -> None:
    """Among the other conditions that the kubelet has set, and those that people have."""
    pressure = {"type": "MemoryPressure", "status": "False", "reason": "KubeletHasSufficientMemory"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    cluster.strategic_patch(NODES, node, {"status": {"conditions": [pressure, ready]}}, subresource="status")
    OwnNode(read_access(str(root))).tell_not_ready("the next system is started", "2026-03-01T12:00:00Z")
    conditions = {c["type"]: c for c in cluster.get(NODES, node)["status"]["conditions"]}
    assert conditions.keys() == {"MemoryPressure", "Ready"}
    assert conditions["Ready"] == {
        "type": "Ready",
        "status": "False",
        "reason": "Rebooting",
        "message": "the next system is started",
        "lastHeartbeatTime": "2026-03-01T12:00:00Z",
        "lastTransitionTime": "2026-03-01T12:00:00Z",
    }


def test_a_watch_sees_what_changes_on_the_own_node_only_and_ends_in_time(
    cluster: Cluster, root: Path, node: str
) -> None:
    own = OwnNode(read_access(str(root)))
    version = own.read()["metadata"]["resourceVersion"]
    cluster.patch(NODES, node, {"metadata": {"annotations": {"example.com/a": "1"}}})
    began = time.monotonic()
    seen = [event["metadata"]["annotations"]["example.com/a"] for event in own.watch(version, 2)]
    assert seen == ["1"]
    assert time.monotonic() - began < 120


def test_a_machine_without_kubelet_files_says_which_are_missing(tmp_path: Path) -> None:
    with pytest.raises(NotJoinedError, match="has not joined yet"):
        read_access(str(tmp_path))
