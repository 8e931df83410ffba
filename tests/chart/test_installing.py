"""The chart's life on a real API server: installed, upgraded, rolled back, uninstalled, and taken over from kubectl.

Pods stay Pending, as there is no kubelet: that the API server and the ReplicaSet controller take them is what is shown
here; that they run is shown by the journey in the cluster.
"""

from __future__ import annotations

import base64
import os
import re
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from click.testing import CliRunner

from charts.write import HERE
from lab.control_plane.plane import ControlPlane
from provisioner import __version__
from provisioner.api import Rack, Server
from provisioner.api.crd import VERSION_ANNOTATION, all_crds
from provisioner.api.machinery.errors import Refused
from provisioner.cli.main import provisioner
from provisioner.cli.service.manifests import all_manifests
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import CLUSTER_ROLES, CRDS, NAMESPACES, PODS, SECRETS, SYSTEM, ResourceType, of
from tests.api.objects import rack, server
from tests.chart.helm import MINIMAL, Helm, HelmRefused
from tests.people import POLICIES, until, wait_for_all_policies

DEPLOYMENTS: Final = ResourceType("apps", "v1", "Deployment", "deployments", namespaced=True)
SERVICE_ACCOUNTS: Final = ResourceType("", "v1", "ServiceAccount", "serviceaccounts", namespaced=True)
SECRET_LIMIT: Final = 1 << 20
"""Bytes that a Secret may have."""
FULL: Final = HERE / "ci" / "full-values.yaml"
WITHOUT_PROMETHEUS: Final = (
    "--set",
    "monitoring.podMonitors.enabled=auto,monitoring.alerts.enabled=auto,boot.tls.secretName=join",
)
INSTALLING: Final = (HERE.parents[1] / "docs" / "installing.md").read_text()
Kubectl = tuple[str, ...]


@pytest.fixture(scope="module")
def released(installing_helm: Helm) -> str:
    """What `helm install` says in an empty cluster: its first revision, which those tests meet that come first here."""
    return installing_helm.act("install", "--create-namespace", "-f", MINIMAL)


def _said(kubectl: Kubectl, *arguments: str, stdin: str = "") -> str:
    done = subprocess.run([*kubectl, *arguments], input=stdin, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _revision(record: Mapping[str, Any]) -> int:
    return int(record["metadata"]["labels"]["version"])


def _replicas(admin: Cluster) -> int:
    found: int = admin.get(DEPLOYMENTS, "provisioner-controller", namespace=SYSTEM)["spec"]["replicas"]
    return found


def test_an_empty_cluster_has_all_after_one_command(released: str, admin: Cluster) -> None:
    for crd in all_crds():
        assert admin.get(CRDS, crd["metadata"]["name"])["metadata"]["annotations"][VERSION_ANNOTATION] == __version__
    for manifest in all_manifests():
        if manifest["kind"] == "ValidatingAdmissionPolicy":
            admin.get(POLICIES, manifest["metadata"]["name"])
    wait_for_all_policies(admin)
    admin.create(of(Server), server("u1", acceptance="Pending"), dry_run=True)
    with pytest.raises(Refused):  # the kinds are served with their rules
        admin.create(of(Server), server("u1", bootMACAddress="none"), dry_run=True)
    # Admission has taken the pods: accounts, priority class, pod security.
    until(lambda: len(admin.list(PODS, namespace=SYSTEM).items) >= 2)
    assert "An image: provisioner image build" in released
    assert "Nobody is told when something goes wrong" in released


def test_notes_name_what_is_missing_and_no_more_once_it_is_there(
    released: str, installing_helm: Helm, admin: Cluster
) -> None:
    said = installing_helm.act("upgrade", "-f", FULL, *WITHOUT_PROMETHEUS)
    assert "MISSING: the join service's certificate" in said
    assert "MISSING: hosts for the boot service" in said
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "join", "namespace": SYSTEM}}
    admin.apply(secret | {"type": "Opaque", "stringData": {"tls.crt": "", "tls.key": ""}}, manager="tests")
    host = {"name": "boot-1", "labels": {"provisioner.dev/boot-host": "true"}}
    admin.apply({"apiVersion": "v1", "kind": "Node", "metadata": host}, manager="tests")
    assert "MISSING" not in installing_helm.act("upgrade", "-f", FULL, *WITHOUT_PROMETHEUS)
    record = max(admin.list(SECRETS, namespace=SYSTEM, label_selector="owner=helm").items, key=_revision)
    size = len(base64.b64decode(record["data"]["release"]))
    assert size < SECRET_LIMIT / 2, "Helm's record of a release is a Secret: there must be room for kinds to come"


def test_an_upgrade_is_rolled_back_to_what_was(released: str, installing_helm: Helm, admin: Cluster) -> None:
    installing_helm.act("upgrade", "-f", MINIMAL, "--set", "controller.replicas=3")
    assert _replicas(admin) == 3
    installing_helm.run("rollback", "provisioner", "1", "-n", SYSTEM)
    assert _replicas(admin) == 2
    installing_helm.act("upgrade", "-f", MINIMAL, "--set", "controller.apart=true")
    assert admin.find(DEPLOYMENTS, "provisioner-controller", namespace=SYSTEM) is None
    admin.get(DEPLOYMENTS, "provisioner-power", namespace=SYSTEM)
    installing_helm.run("rollback", "provisioner", "1", "-n", SYSTEM)
    assert admin.find(DEPLOYMENTS, "provisioner-power", namespace=SYSTEM) is None


def test_it_does_not_go_ahead_of_the_kinds_and_says_which_command_brings_them(
    released: str, installing_helm: Helm, admin: Cluster, kubectl: Kubectl
) -> None:
    admin.patch(CRDS, "servers.provisioner.dev", {"metadata": {"annotations": {VERSION_ANNOTATION: "0.1.0"}}})
    with pytest.raises(HelmRefused) as refused:
        installing_helm.act("upgrade", "-f", MINIMAL, "--set", "controller.replicas=3")
    assert "CustomResourceDefinition servers.provisioner.dev is of version 0.1.0" in str(refused.value)
    assert "helm show crds CHART | kubectl apply --server-side --force-conflicts -f -" in str(refused.value)
    assert _replicas(admin) == 2, "nothing was changed"
    crds = installing_helm.run("show", "crds", HERE)
    _said(kubectl, "apply", "--server-side", "--force-conflicts", "-f", "-", stdin=crds)
    installing_helm.act("upgrade", "-f", MINIMAL, "--set", "controller.replicas=3")
    assert _replicas(admin) == 3


def test_going_back_takes_no_field_of_newer_kinds_away(released: str, installing_helm: Helm, admin: Cluster) -> None:
    """Helm would: so the kinds are no part of the release. `newer` is what a coming version may have."""
    newer = admin.get(CRDS, "racks.provisioner.dev")
    newer["metadata"]["annotations"][VERSION_ANNOTATION] = "99.0.0"
    (version,) = newer["spec"]["versions"]
    version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["newer"] = {"type": "string"}
    admin.replace(CRDS, newer)

    def made() -> bool:
        body = rack("newer")
        body["spec"]["newer"] = "kept"
        with suppress(Refused):
            return "newer" in admin.apply(body, manager="tests")["spec"]
        return False

    until(made)  # served a moment after it was written
    installing_helm.act("upgrade", "-f", MINIMAL, "--set", "controller.replicas=3")
    installing_helm.run("rollback", "provisioner", "1", "-n", SYSTEM)
    assert admin.get(CRDS, "racks.provisioner.dev")["metadata"]["annotations"][VERSION_ANNOTATION] == "99.0.0"
    touched = admin.patch(of(Rack), "newer", {"metadata": {"labels": {"touched": "true"}}})
    assert touched["spec"]["newer"] == "kept"


def test_uninstalling_loses_no_server_and_no_password(released: str, installing_helm: Helm, admin: Cluster) -> None:
    admin.apply(server("kept"), manager="tests")
    admin.apply_status(Server, "kept", {"address": "10.80.0.17", "subnetName": "boot"}, manager="tests")
    password = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bmc", "namespace": "provisioner-bmcs"}}
    admin.apply(password | {"stringData": {"password": "secret"}}, manager="tests")
    before = admin.get(of(Server), "kept"), admin.get(SECRETS, "bmc", namespace="provisioner-bmcs")

    installing_helm.act("uninstall", chart=None)
    assert admin.find(DEPLOYMENTS, "provisioner-controller", namespace=SYSTEM) is None
    assert admin.find(SERVICE_ACCOUNTS, "provisioner-controller", namespace=SYSTEM) is None
    for manifest in all_manifests():
        if manifest["kind"] == "Namespace":
            assert "deletionTimestamp" not in admin.get(NAMESPACES, manifest["metadata"]["name"])["metadata"]

    installing_helm.act("install", "-f", MINIMAL, "--skip-crds")
    admin.get(SERVICE_ACCOUNTS, "provisioner-controller", namespace=SYSTEM)
    assert (admin.get(of(Server), "kept"), admin.get(SECRETS, "bmc", namespace="provisioner-bmcs")) == before


def test_it_takes_over_what_kubectl_applied_and_is_its_only_owner(
    installing_helm: Helm, admin: Cluster, kubectl: Kubectl
) -> None:
    """Of two owners of a field none can take it away: so kubectl gives up what it applied."""
    installing_helm.act("uninstall", "--ignore-not-found", chart=None)
    manifests = CliRunner().invoke(provisioner, ["manifests"], catch_exceptions=False).output
    system = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}}
    admin.apply(system, manager="tests")
    _said(kubectl, "apply", "--server-side", "--force-conflicts", "-f", "-", stdin=manifests)
    admin.apply(server("taken"), manager="tests")
    before = admin.get(of(Server), "taken")

    with pytest.raises(HelmRefused, match="exists and cannot be imported into the current release"):
        installing_helm.act("install", "-f", MINIMAL, "--force-conflicts")
    installing_helm.act("install", "-f", MINIMAL, "--force-conflicts", "--take-ownership")
    names = CliRunner().invoke(provisioner, ["manifests", "--names-only"], catch_exceptions=False).output
    _said(kubectl, "apply", "--server-side", "-f", "-", stdin=names)

    kinds = "clusterroles,clusterrolebindings,crds,validatingadmissionpolicies,validatingadmissionpolicybindings"
    listed = yaml.safe_load(_said(kubectl, "get", kinds, "-o", "yaml", "--show-managed-fields"))["items"]
    ours = {(each["kind"], each["metadata"]["name"]) for each in all_manifests()}
    checked = 0
    for each in listed:
        if (each["kind"], each["metadata"]["name"]) in ours:
            owners = {entry["manager"] for entry in each["metadata"]["managedFields"]}
            assert "kubectl" not in owners, each["metadata"]["name"]
            checked += "helm" in owners
    assert checked > 100
    for manifest in all_manifests():
        if manifest["kind"] == "ClusterRole" and "aggregationRule" not in manifest:
            assert (admin.get(CLUSTER_ROLES, manifest["metadata"]["name"])["rules"] or []) == manifest["rules"]
    assert admin.get(of(Server), "taken") == before


def test_the_manual_tells_how_to_find_out_whether_anything_can_join(
    kubectl: Kubectl, empty_plane: ControlPlane, tmp_path: Path
) -> None:
    """Its commands, as they stand there."""
    (block,) = [each for each in re.findall(r"^```\n(.*?)^```$", INSTALLING, re.S | re.M) if "whoami" in each]
    programs = {"PATH": f"{Path(kubectl[0]).parent}:{os.environ['PATH']}", "KUBECONFIG": str(empty_plane.kubeconfig)}
    done = subprocess.run(
        ["bash", "-euc", block], cwd=tmp_path, env=programs, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "system:bootstrap:abcdef" in done.stdout


def test_the_manual_names_values_that_exist() -> None:
    values = yaml.safe_load((HERE / "values.yaml").read_text())
    named = set(re.findall(r"`((?:controller|boot|web|monitoring|networkPolicy|crds)\.[\w.]+)`", INSTALLING))
    assert len(named) > 10
    for each in named:
        found = values
        for word in each.split("."):
            assert word in found, each
            found = found[word]
