"""The door opens with each of the credentials that an operator may have, against the real API server."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.config import incluster_config

from lab.control_plane.plane import ControlPlane
from provisioner.api.machinery.errors import Refused
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import NODES, ResourceType

ACCOUNTS = ResourceType("", "v1", "ServiceAccount", "serviceaccounts", namespaced=True)
SELF_REVIEWS = ResourceType("authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews")


@pytest.fixture
def token(cluster: Cluster, unique: str) -> str:
    """A token of a service account named `unique` in the namespace default."""
    cluster.create(ACCOUNTS, {"metadata": {"name": unique, "namespace": "default"}})
    requests = ResourceType("", "v1", "TokenRequest", f"serviceaccounts/{unique}/token", namespaced=True)
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {"name": unique}, "spec": {}}
    found: str = cluster.create(requests, body, namespace="default")["status"]["token"]
    return found


def who_am_i(cluster: Cluster) -> str:
    name: str = cluster.create(SELF_REVIEWS, {"metadata": {}})["status"]["userInfo"]["username"]
    return name


def kubeconfig_with(plane: ControlPlane, directory: Path, user: dict[str, Any]) -> Path:
    content = yaml.safe_load(plane.kubeconfig.read_text())
    content["users"][0]["user"] = user
    path = directory / "changed.kubeconfig"
    path.write_text(yaml.safe_dump(content))
    return path


def test_a_client_certificate(cluster: Cluster) -> None:
    assert who_am_i(cluster) == "lab-admin"


def test_the_service_account_of_a_pod(
    control_plane: ControlPlane, token: str, unique: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text(token)
    (tmp_path / "ca.crt").write_text(control_plane.ca_pem)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", control_plane.address)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(control_plane.port))
    loader = incluster_config.InClusterConfigLoader
    monkeypatch.setattr(
        incluster_config,
        "InClusterConfigLoader",
        lambda **arguments: loader(
            **{**arguments, "token_filename": str(tmp_path / "token"), "cert_filename": str(tmp_path / "ca.crt")}
        ),
    )
    assert who_am_i(Cluster.connect(None)) == f"system:serviceaccount:default:{unique}"


def test_an_exec_plugin(control_plane: ControlPlane, token: str, unique: str, tmp_path: Path) -> None:
    credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": token}}
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": ["-c", f"print({json.dumps(json.dumps(credential))})"],
        "interactiveMode": "Never",
    }
    kubeconfig = kubeconfig_with(control_plane, tmp_path, {"exec": plugin})
    assert who_am_i(Cluster.connect(kubeconfig)) == f"system:serviceaccount:default:{unique}"


def test_a_right_that_is_lacking_is_named_with_its_remedy(
    control_plane: ControlPlane, token: str, unique: str, tmp_path: Path
) -> None:
    cluster = Cluster.connect(kubeconfig_with(control_plane, tmp_path, {"token": token}))
    with pytest.raises(Refused, match=rf"{unique}\" cannot list resource \"nodes\".*grant the right with a Role"):
        cluster.list(NODES)


def test_a_token_that_is_no_longer_valid_is_named_with_its_remedy(control_plane: ControlPlane, tmp_path: Path) -> None:
    cluster = Cluster.connect(kubeconfig_with(control_plane, tmp_path, {"token": "expired"}))
    with pytest.raises(Refused, match="LIST Node: Unauthorized; renew the credentials"):
        cluster.list(NODES)
