"""Break-glass: who opens a shell on a node is on record, whatever they say; and who may not, does not.

A real API server with its audit log; a fake kubectl attaches, and a test says in the kubelet's place that a pod runs.
"""

from __future__ import annotations

import copy
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from lab.control_plane.plane import ControlPlane
from provisioner.api.machinery.errors import NotFound, ProvisionerError, Refused
from provisioner.cli.kubectl.shell_command import shell as kubectl_shell
from provisioner.cli.kubectl.shell_pod import NAMESPACE, REASON_ANNOTATION, USER_ANNOTATION, shell_event, shell_pod
from provisioner.cli.main import kubectl
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import EVENTS, NODES, PODS, ResourceType
from tests.people import bind, bind_in, kubeconfig_of, until

ROLES = ResourceType("rbac.authorization.k8s.io", "v1", "Role", "roles", namespaced=True)
REASON = "GPU 3 fell off the bus, looking for XIDs"


@pytest.fixture(scope="module")
def kubeconfig(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """oncall's, who may open shells, and nothing else."""
    admin = Cluster.connect(control_plane.kubeconfig)
    bind_in(admin, NAMESPACE, "provisioner-break-glass", "oncall")
    bind_in(admin, "default", "provisioner-break-glass-events", "oncall")
    path = kubeconfig_of(control_plane, tmp_path_factory.mktemp("oncall"), "oncall")
    somebody = Cluster.connect(path)

    def may() -> bool:
        try:
            somebody.create(PODS, shell_pod("n", user="oncall", reason=REASON, minutes=1, suffix="x"), dry_run=True)
        except Refused as error:
            return "is not one" in str(error)
        return True

    until(may)
    return path


@pytest.fixture
def oncall(kubeconfig: Path) -> Cluster:
    return Cluster.connect(kubeconfig)


@pytest.fixture
def node(cluster: Cluster, unique: str) -> Iterator[str]:
    cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": unique}}, manager="test")
    yield unique
    for pod in cluster.list(PODS, namespace=NAMESPACE).items:
        if pod["spec"].get("nodeName") == unique:
            cluster.delete(PODS, pod["metadata"]["name"], namespace=NAMESPACE)
    cluster.delete(NODES, unique)


def pod_of(node: str, **changed: Any) -> dict[str, Any]:
    said = {"user": "oncall", "reason": REASON, "minutes": 30, "suffix": "abcd1234"}
    return shell_pod(node, **{**said, **changed})


def audited(plane: ControlPlane, text: str) -> list[dict[str, Any]]:
    """Entries of the audit log with `text` in them."""
    return [json.loads(line) for line in plane.audit_log.read_text().splitlines() if text in line]


def test_a_shell_is_on_record_before_it_opens(oncall: Cluster, control_plane: ControlPlane, node: str) -> None:
    created = oncall.create(PODS, pod_of(node))
    assert created["spec"]["nodeName"] == node
    said = f"oncall opens a shell on node {node} for 1800 s: {REASON}"
    until(lambda: bool(audited(control_plane, said)))
    (entry,) = audited(control_plane, said)
    assert entry["user"]["username"] == "oncall"
    assert entry["annotations"]["provisioner-break-glass/shell"] == said
    assert entry["responseStatus"]["code"] == 201


def with_user(pod: dict[str, Any], user: str | None) -> dict[str, Any]:
    pod["metadata"]["annotations"].pop(USER_ANNOTATION)
    if user is not None:
        pod["metadata"]["annotations"][USER_ANNOTATION] = user
    return pod


def with_reason(pod: dict[str, Any], reason: str) -> dict[str, Any]:
    pod["metadata"]["annotations"][REASON_ANNOTATION] = reason
    return pod


def with_spec(pod: dict[str, Any], **changed: Any) -> dict[str, Any]:
    pod["spec"].update(changed)
    return pod


def with_container(pod: dict[str, Any], **changed: Any) -> dict[str, Any]:
    pod["spec"]["containers"][0].update(changed)
    return pod


def with_metadata(pod: dict[str, Any], **changed: Any) -> dict[str, Any]:
    pod["metadata"].update(changed)
    return pod


def with_mounts(pod: dict[str, Any], change: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """The last one changed."""
    *others, last = pod["spec"]["containers"][0]["volumeMounts"]
    return with_container(pod, volumeMounts=[*others, change(last)])


LIES: dict[str, tuple[Callable[[dict[str, Any]], dict[str, Any]], str]] = {
    "in somebody else's name": (lambda pod: with_user(pod, "ann"), r"user is 'ann', and this is oncall"),
    "in nobody's name": (lambda pod: with_user(pod, None), r"user is '', and this is oncall"),
    "without a reason": (lambda pod: with_reason(pod, ""), r"reason has 0 characters; write 8 to 512"),
    "for a word": (lambda pod: with_reason(pod, "debug"), r"reason has 5 characters"),
    "with a reason that forges a line of the record": (
        lambda pod: with_reason(pod, "looking at it\nann opens a shell on node x"),
        r"on one line",
    ),
    "for ever": (lambda pod: with_spec(pod, activeDeadlineSeconds=None), r"activeDeadlineSeconds is 0"),
    "for a day": (lambda pod: with_spec(pod, activeDeadlineSeconds=86400), r"activeDeadlineSeconds is 86400"),
    "on any node": (lambda pod: with_spec(pod, nodeName=None), r"set spec\.nodeName"),
    "with a program of one's own": (lambda pod: with_container(pod, image="evil.example/x:1"), r"not one \(image\)"),
    "with an image from a registry": (
        lambda pod: with_container(pod, imagePullPolicy="Always"),
        r"not one \(imagePullPolicy\)",
    ),
    "with a command that nobody sees": (
        lambda pod: with_container(pod, command=["/usr/bin/nsenter", "--target", "1", "--", "/bin/sh", "-c", "curl"]),
        r"not one \(command\)",
    ),
    "with arguments that nobody sees": (lambda pod: with_container(pod, args=["-c", "x"]), r"not one \(args\)"),
    "that goes on when nobody is attached": (lambda pod: with_container(pod, stdinOnce=False), r"\(stdinOnce\)"),
    "with a hook": (
        lambda pod: with_container(pod, lifecycle={"postStart": {"exec": {"command": ["/usr/bin/id"]}}}),
        r"not one \(lifecycle\)",
    ),
    "with a second container": (
        lambda pod: with_spec(pod, containers=[*pod["spec"]["containers"], {"name": "more", "image": "x"}]),
        r"not one \(containers\)",
    ),
    "with a container before it": (
        lambda pod: with_spec(pod, initContainers=[{"name": "more", "image": "x"}]),
        r"not one \(initContainers\)",
    ),
    "with a Secret": (
        lambda pod: with_spec(
            pod, volumes=[*pod["spec"]["volumes"], {"name": "secret", "secret": {"secretName": "x"}}]
        ),
        r"not one \(volumes\)",
    ),
    "with a token": (
        lambda pod: with_spec(pod, automountServiceAccountToken=True),
        r"not one \(automountServiceAccountToken",
    ),
    "that outlives its end": (
        lambda pod: with_spec(pod, terminationGracePeriodSeconds=86400),
        r"not one \(terminationGracePeriodSeconds\)",
    ),
    "that starts again": (lambda pod: with_spec(pod, restartPolicy="Always"), r"not one \(restartPolicy\)"),
    "with another part of /usr under the name of a library": (
        lambda pod: with_mounts(pod, lambda mount: mount | {"subPath": "local"}),
        r"not one \(volumeMounts\)",
    ),
    "with a /usr that it may write": (
        lambda pod: with_mounts(pod, lambda mount: mount | {"readOnly": False}),
        r"not one \(volumeMounts\)",
    ),
    "with mounts that others see": (
        lambda pod: with_mounts(pod, lambda mount: mount | {"mountPropagation": "Bidirectional"}),
        r"not one \(volumeMounts\)",
    ),
    "with another folder in the place of the libraries": (
        lambda pod: with_spec(pod, volumes=[{**v, "hostPath": {"path": "/usr"}} for v in pod["spec"]["volumes"]]),
        r"not one \(volumes\)",
    ),
    "for which other pods are ended": (
        lambda pod: with_spec(pod, priorityClassName="system-node-critical"),
        r"not one \(priority\)",
    ),
    "with a finalizer": (
        lambda pod: with_metadata(pod, finalizers=["example.com/stays"]),
        r"no finalizers and no owners: example\.com/stays",
    ),
    "that goes with an owner": (
        lambda pod: with_metadata(
            pod, ownerReferences=[{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "y"}]
        ),
        r"no finalizers and no owners: owner x",
    ),
    "with a label that a Service selects": (
        lambda pod: with_metadata(pod, labels={"app": "x"}),
        r"not one \(labels\)",
    ),
    "with an annotation that a program obeys": (
        lambda pod: with_metadata(pod, annotations=pod["metadata"]["annotations"] | {"example.com/x": "y"}),
        r"not one \(annotations\)",
    ),
    "whose output goes into its status": (
        lambda pod: with_container(pod, terminationMessagePath="/etc/shadow"),
        r"not one \(terminationMessagePath\)",
    ),
    "with other rights": (
        lambda pod: with_container(pod, securityContext={"privileged": True, "runAsUser": 1000}),
        r"not one \(securityContext\)",
    ),
    "with more memory": (
        lambda pod: with_container(pod, resources={"limits": {"memory": "64Gi"}}),
        r"not one \(resources\)",
    ),
    "in the processes of other pods": (lambda pod: with_spec(pod, hostIPC=True), r"not one \(hostIPC\)"),
    **{
        f"whose container {sentence}": (
            lambda pod, changed=changed: with_container(pod, **changed),
            r"not one \(restartPolicy",
        )
        for sentence, changed in {
            "starts again": {"restartPolicy": "Always"},
            "starts again by a rule": {
                "restartPolicy": "Never",
                "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}],
            },
        }.items()
    },
    **{
        f"with {name} in its reason": (
            lambda pod, character=character: with_reason(pod, f"looking{character} at it"),
            r"that all show themselves",
        )
        for name, character in {
            "CSI": "\u009b",
            "the end of a line (NEL)": "\u0085",
            "another direction of letters": "\u202e",
            "the end of a line (LS)": "\u2028",
            "the end of a paragraph": "\u2029",
            "a letter of no width": "\u200b",
            "ESC": "\x1b[2J",
        }.items()
    },
}


@pytest.mark.parametrize("lie", LIES)
def test_a_shell_that_would_not_be_what_the_record_says_is_refused(lie: str, oncall: Cluster, node: str) -> None:
    change, words = LIES[lie]
    honest = pod_of(node)
    assert oncall.create(PODS, honest, dry_run=True), "the honest twin"
    with pytest.raises(Refused, match=words):
        oncall.create(PODS, change(copy.deepcopy(honest)), dry_run=True)


def test_what_a_shell_was_opened_for_is_not_rewritten(oncall: Cluster, cluster: Cluster, node: str) -> None:
    created = oncall.create(PODS, pod_of(node))
    name, patch = created["metadata"]["name"], {"metadata": {"annotations": {REASON_ANNOTATION: "nothing at all"}}}
    with pytest.raises(Refused, match="cannot patch resource"):
        oncall.patch(PODS, name, patch, namespace=NAMESPACE)
    with pytest.raises(Refused, match="in one's own name"):
        cluster.patch(PODS, name, patch, namespace=NAMESPACE)  # not by an administrator either
    assert cluster.patch(PODS, name, {"metadata": {"labels": {"seen": "yes"}}}, namespace=NAMESPACE)


def test_the_right_to_open_shells_is_no_right_to_anything_else(oncall: Cluster, node: str) -> None:
    elsewhere = pod_of(node)
    elsewhere["metadata"]["namespace"] = "default"
    with pytest.raises(Refused, match="cannot create resource"):
        oncall.create(PODS, elsewhere, dry_run=True)
    with pytest.raises(Refused, match="cannot list resource"):
        oncall.list(PODS, namespace="default")


@pytest.mark.parametrize("role", ["operator", "administrator"])
def test_other_roles_do_not_have_it(role: str, request: pytest.FixtureRequest, node: str) -> None:
    somebody: Cluster = request.getfixturevalue(role)
    user = somebody.ask_who_i_am()
    with pytest.raises(Refused, match="cannot create resource"):
        somebody.create(PODS, pod_of(node, user=user), dry_run=True)


def test_a_node_opens_no_shell_in_a_persons_name(
    control_plane: ControlPlane, cluster: Cluster, node: str, tmp_path: Path
) -> None:
    """A kubelet may make mirror pods of its own static pods: one of these would be on record as the person's."""
    kubelet = Cluster.connect(kubeconfig_of(control_plane, tmp_path, f"system:node:{node}", group="system:nodes"))
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": cluster.get(NODES, node)["metadata"]["uid"]}
    pod = pod_of(node)
    pod["metadata"]["annotations"]["kubernetes.io/config.mirror"] = "abc"
    pod["metadata"]["ownerReferences"] = [owner | {"controller": True}]
    with pytest.raises(Refused, match=f"is 'oncall', and this is system:node:{node}"):
        kubelet.create(PODS, pod, dry_run=True)


def test_who_attaches_is_on_record_whatever_comes_of_it(
    oncall: Cluster, control_plane: ControlPlane, node: str
) -> None:
    """Also by GET, as kubectl does it over a WebSocket, of which the audit log otherwise tells nothing."""
    name = oncall.create(PODS, pod_of(node))["metadata"]["name"]
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/attach"
    with pytest.raises(ProvisionerError):  # there is no kubelet behind it
        oncall._request("GET", path, what="ATTACH")
    until(lambda: bool(audited(control_plane, path)))
    assert {(entry["user"]["username"], entry["verb"]) for entry in audited(control_plane, path)} == {("oncall", "get")}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"reason": "Rebooted"}, "the Events of shells on Nodes and no others"),
        ({"message": "ann opens a shell: not I"}, "a message of one line that begins with that name"),
        ({"type": "Normal"}, "type Warning"),
        ({"message": "oncall opens a shell\u202e: x"}, "a message of one line"),
        ({"message": "oncall opens a shell\nann opens a shell"}, "a message of one line"),
        ({"action": "Drained"}, "the Events of shells on Nodes and no others"),
        ({"related": {"kind": "Node", "name": "x"}}, "the Events of shells on Nodes and no others"),
        (
            {"involvedObject": {"apiVersion": "provisioner.dev/v1alpha1", "kind": "Server", "name": "x"}},
            "the Events of shells on Nodes",
        ),
        (
            {"involvedObject": {"kind": "Server", "name": "x"}, "reason": "AttestationForgotten"},
            "the Events of shells on Nodes",
        ),
        (
            {"metadata": {"name": "x", "namespace": "default", "finalizers": ["example.com/stays"]}},
            "the Events of shells on Nodes",
        ),
        (
            {"metadata": {"name": "x", "namespace": "default", "labels": {"example.com/mine": "x"}}},
            "the Events of shells on Nodes",
        ),
    ],
)
def test_who_tells_of_shells_tells_of_nothing_else(
    changed: dict[str, Any], words: str, oncall: Cluster, cluster: Cluster, node: str, unique: str
) -> None:
    node_object = dict(cluster.get(NODES, node))
    event = shell_event(node_object, "BreakGlassOpened", f"oncall opens a shell: {REASON}", datetime.now(UTC), unique)
    assert oncall.create(EVENTS, event, dry_run=True), "the honest twin"
    with pytest.raises(Refused, match=words):
        oncall.create(EVENTS, event | changed, dry_run=True)
    assert cluster.create(EVENTS, event | changed, dry_run=True), "those who write Events in earnest are not concerned"


FAKE_KUBECTL = """#!/bin/sh
echo "$@" >{said}
exit {status}
"""


class Plugin:
    """The plugin, with a fake kubectl on its PATH; `run` plays the kubelet meanwhile."""

    def __init__(self, admin: Cluster, kubeconfig: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.admin, self.kubeconfig, self.attached = admin, kubeconfig, folder / "said"
        program = folder / "kubectl"
        program.write_text(FAKE_KUBECTL.format(said=self.attached, status=7))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)

    def run(self, *arguments: str, phase: str | None = None) -> Result:
        done = threading.Event()
        kubelet = threading.Thread(target=self._kubelet, args=(phase, done))
        kubelet.start()
        try:
            return CliRunner().invoke(kubectl, ["shell", f"--kubeconfig={self.kubeconfig}", *arguments])
        finally:
            done.set()
            kubelet.join()

    def _kubelet(self, phase: str | None, done: threading.Event) -> None:
        while phase is not None and not done.wait(0.1):
            for pod in self.admin.list(PODS, namespace=NAMESPACE).items:
                if (pod.get("status") or {}).get("phase") == "Pending":
                    status = {"status": {"phase": phase, "message": "no such image"}}
                    try:
                        self.admin.patch(
                            PODS, pod["metadata"]["name"], status, namespace=NAMESPACE, subresource="status"
                        )
                    except NotFound:
                        continue


@pytest.fixture
def plugin(cluster: Cluster, kubeconfig: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plugin:
    bind(cluster, "provisioner-viewer", "oncall")
    return Plugin(cluster, kubeconfig, tmp_path, monkeypatch)


def events_of(cluster: Cluster, node: str) -> list[tuple[str, str]]:
    """Those of shells: the control plane tells of a new Node, too."""
    found = [e for e in cluster.list(EVENTS, namespace="default").items if e["involvedObject"]["name"] == node]
    return sorted((event["reason"], event["message"]) for event in found if event["reason"].startswith("BreakGlass"))


def test_the_plugin_opens_attaches_closes_and_tells_of_it(plugin: Plugin, cluster: Cluster, node: str) -> None:
    result = plugin.run(node, "-m", REASON, "--minutes", "5", phase="Running")
    assert result.exit_code == 7, result.output
    attached = plugin.attached.read_text()
    assert re.search(rf"--namespace={NAMESPACE} attach {node}-[0-9a-f]{{8}} --container=shell --stdin --tty", attached)
    assert f"--kubeconfig={plugin.kubeconfig}" in attached, "as the same person"
    closed, opened = events_of(cluster, node)
    assert opened == ("BreakGlassOpened", f"oncall opens a shell for 5 min at the most: {REASON}")
    assert closed[0] == "BreakGlassClosed"
    assert re.fullmatch(rf"oncall closes the shell after \d+ s: {REASON}", closed[1])
    deadline = time.monotonic() + 60
    while any(pod["spec"].get("nodeName") == node and "deletionTimestamp" not in pod["metadata"]
              for pod in cluster.list(PODS, namespace=NAMESPACE).items):  # fmt: skip
        assert time.monotonic() < deadline, "the shell is left open"


def test_a_shell_that_does_not_start_is_closed_and_says_why(plugin: Plugin, cluster: Cluster, node: str) -> None:
    result = plugin.run(node, "-m", REASON, phase="Failed")
    assert result.exit_code == 1
    assert "the shell did not start on the node: no such image" in result.stderr
    assert not plugin.attached.exists()
    assert [reason for reason, _ in events_of(cluster, node)] == ["BreakGlassClosed", "BreakGlassOpened"]


def test_a_reason_that_says_nothing_opens_nothing(plugin: Plugin, cluster: Cluster, node: str) -> None:
    result = plugin.run(node, "-m", "debug")
    assert result.exit_code == 3
    assert "a shell needs a reason" in result.stderr
    assert events_of(cluster, node) == []
    assert not plugin.attached.exists()


def test_a_node_that_does_not_exist_is_named(plugin: Plugin) -> None:
    result = plugin.run("r99-u99", "-m", REASON)
    assert (result.exit_code, "there is no Node r99-u99" in result.stderr) == (1, True)


def test_who_has_not_got_the_right_is_told_which_one(
    operator_kubeconfig: Path, plugin: Plugin, cluster: Cluster, node: str
) -> None:
    plugin.kubeconfig = operator_kubeconfig
    result = plugin.run(node, "-m", REASON)
    assert result.exit_code == 3
    assert "--role=provisioner-break-glass --user=USER" in result.stderr
    assert events_of(cluster, node) == []


def test_the_pod_can_be_looked_at_before(plugin: Plugin, cluster: Cluster, node: str) -> None:
    result = plugin.run(f"node/{node}", "-m", REASON, "--dry-run")
    assert result.exit_code == 0
    printed = yaml.safe_load(result.stdout)
    assert printed["spec"]["nodeName"] == node
    assert printed["spec"]["containers"][0]["image"] == "provisioner.local/pause:1"
    assert events_of(cluster, node) == []


def test_the_document_names_tests_options_and_roles_that_exist(cluster: Cluster) -> None:
    text = (Path(__file__).parents[2] / "docs/break-glass.md").read_text()
    named = re.findall(r"`tests/attacks/test_break_glass\.py::(\w+)`", text)
    assert len(named) >= 5
    assert [name for name in named if name not in globals()] == []
    options = {option for parameter in kubectl_shell.params for option in parameter.opts}
    assert set(re.findall(r"`(--(?:minutes|dry-run|reason))", text)) <= options
    for namespace, role in re.findall(r"kubectl -n (\S+) create rolebinding \S+ --role=(\S+)", text):
        assert cluster.get(ROLES, role, namespace=namespace)
