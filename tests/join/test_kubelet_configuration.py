"""The KubeletConfiguration, whole."""

from __future__ import annotations

import yaml

from provisioner.join.admission.kubelet_configuration import kubelet_configuration
from tests.golden_files import assert_golden


def test_the_built_in_configuration() -> None:
    assert_golden("join/kubelet-built-in.yaml", yaml.safe_dump(kubelet_configuration({})))


def test_a_pools_fields_are_put_over_the_built_in_ones() -> None:
    overrides = {
        "maxPods": 64,
        "evictionHard": {"memory.available": "512Mi"},
        "tlsMinVersion": None,
        "nodeStatusUpdateFrequency": "5s",
    }
    text = yaml.safe_dump(kubelet_configuration(overrides, cluster_dns=["10.96.0.10"]))
    assert_golden("join/kubelet-overridden.yaml", text)


def test_a_pool_cannot_open_the_kubelet() -> None:
    """The CRD refuses these too; an older object may be in the cluster."""
    overrides = {
        "authentication": {"anonymous": {"enabled": True}},
        "authorization": {"mode": "AlwaysAllow"},
        "serverTLSBootstrap": False,
        "rotateCertificates": False,
        "kind": "Pod",
        "apiVersion": "v1",
    }
    assert kubelet_configuration(overrides) == kubelet_configuration({})


def test_objects_are_merged_field_by_field() -> None:
    merged = kubelet_configuration({"logging": {"format": "json"}, "memorySwap": {}})
    assert merged["logging"] == {"format": "json"}
    assert merged["memorySwap"] == {}
