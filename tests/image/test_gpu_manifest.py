"""docs/gpu-device-plugin.yaml: the API server takes it, and it fits what the image has."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.api.machinery.errors import Refused
from provisioner.api.pools.node_pool import NodePool
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import NAMESPACES, of
from provisioner.image.toolkit.build import PROGRAMS
from tests.image.samples import NODE

DOCUMENT = Path(__file__).parents[2] / "docs/gpu-device-plugin.yaml"


def manifests() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(DOCUMENT.read_text()))


def daemon() -> dict[str, Any]:
    (found,) = [each for each in manifests() if each["kind"] == "DaemonSet"]
    return dict(found["spec"]["template"]["spec"])


def test_the_api_server_takes_it_as_it_stands(cluster: Cluster) -> None:
    """Applied, not only parsed: an unknown field or a wrong type is refused."""
    kinds = []
    for manifest in manifests():
        kinds.append(cluster.apply(manifest, manager="tests")["kind"])
        misspelt = {**manifest, "spec": {**manifest.get("spec", {}), "colour": "red"}}
        with pytest.raises(Refused, match="colour"):
            cluster.apply(misspelt, manager="others")
    assert kinds == ["Namespace", "DaemonSet"]
    cluster.delete(NAMESPACES, manifests()[0]["metadata"]["name"])


def test_the_api_server_takes_the_pool_of_the_guide(cluster: Cluster, unique: str) -> None:
    """docs/node-contents.md: alignment and huge pages."""
    guide = (DOCUMENT.parent / "node-contents.md").read_text()
    (sample,) = re.findall(r"```yaml\n(.*?)```", guide, re.DOTALL)
    (arguments,) = re.findall(r"`(kernelArguments: \[.*?\])`", guide)
    spec = yaml.safe_load(sample) | yaml.safe_load(arguments) | {"imageRef": "gpu-node-1", "attestation": "Optional"}
    pool = {"apiVersion": "provisioner.dev/v1alpha1", "kind": "NodePool", "metadata": {"name": unique}, "spec": spec}
    taken = cluster.apply(pool, manager="tests")["spec"]
    assert taken["kernelArguments"] == ["hugepagesz=1G", "hugepages=64"]
    cluster.delete(of(NodePool), unique)
    bare = cluster.apply({**pool, "spec": spec | {"kubelet": {"numaAlignment": {}}}}, manager="tests")["spec"]
    assert bare["kubelet"]["numaAlignment"] == taken["kubelet"]["numaAlignment"], "{} takes the defaults that it shows"
    cluster.delete(of(NodePool), unique)


def test_its_image_is_pinned_by_a_digest_that_nobody_has() -> None:
    (container,) = daemon()["containers"]
    assert re.fullmatch(r"registry\.example/nvidia/k8s-device-plugin@sha256:0{64}", container["image"])


def test_it_goes_by_the_cdi_of_the_image_and_by_no_runtime() -> None:
    (container,) = daemon()["containers"]
    settings = {each["name"]: each["value"] for each in container["env"]}
    assert settings["DEVICE_LIST_STRATEGY"] == "cdi-cri"
    assert Path(settings["NVIDIA_CDI_HOOK_PATH"]).name in PROGRAMS
    assert "runtimeClassName" not in daemon()
    cri = tomllib.loads((NODE / "tree/etc/containerd/config.toml").read_text())["plugins"]["io.containerd.grpc.v1.cri"]
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in daemon()["volumes"]}
    assert cri["enable_cdi"]
    assert paths["cdi"] in cri["cdi_spec_dirs"]
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    assert mounts["driver-root"]["mountPath"] == settings["CONTAINER_DRIVER_ROOT"]
    assert mounts["driver-root"]["readOnly"], "the plugin changes nothing of the node"


def test_it_is_there_for_the_checks_of_a_node_and_has_no_token() -> None:
    assert daemon()["tolerations"] == [{"operator": "Exists"}]
    assert daemon()["automountServiceAccountToken"] is False
