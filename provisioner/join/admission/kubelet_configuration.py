"""The KubeletConfiguration of a pool's Nodes: the built-in one with the pool's fields put over it.

Source: Kubernetes, "Kubelet Configuration (v1beta1)".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

KUBELET_CA_FILE: Final = "/run/provisioner/kubelet/ca.crt"

_OURS: Final = ("apiVersion", "kind", "authentication", "authorization", "serverTLSBootstrap", "rotateCertificates")
"""What a pool may not change: who may talk to the kubelet, and where its certificates come from; as the CRD says."""


def _built_in(cluster_dns: Sequence[str]) -> dict[str, Any]:
    """What every Node gets that its pool does not change."""
    configuration: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": KUBELET_CA_FILE},
        },
        "authorization": {"mode": "Webhook"},
        "readOnlyPort": 0,
        "tlsMinVersion": "VersionTLS12",
        "serverTLSBootstrap": True,
        "rotateCertificates": True,
        "registerNode": True,
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "systemd",
        "failSwapOn": True,
        "resolvConf": "/etc/resolv.conf",
        # A Lease renewed every 10 s (a quarter of its duration) is how the boot controller sees that a Node is alive.
        "nodeLeaseDurationSeconds": 40,
        "nodeStatusUpdateFrequency": "10s",
        "nodeStatusReportFrequency": "5m0s",
        # Without this an own evictionHard of a pool would drop the defaults that it does not name.
        "mergeDefaultEvictionSettings": True,
        # What containers print lies in RAM, in a file system of its own (var-log-pods.mount): 30 MiB for each at most,
        # and what one prints within the 10 s between two looks.
        "containerLogMaxSize": "10Mi",
        "containerLogMaxFiles": 3,
        "containerLogMonitorInterval": "10s",
        # A Node that is told to shut down says NotReady within a second instead of vanishing.
        "shutdownGracePeriod": "30s",
        "shutdownGracePeriodCriticalPods": "10s",
    }
    if cluster_dns:
        configuration["clusterDNS"] = list(cluster_dns)
        configuration["clusterDomain"] = "cluster.local"
    return configuration


def kubelet_configuration(overrides: Mapping[str, Any], *, cluster_dns: Sequence[str] = ()) -> dict[str, Any]:
    """The whole configuration. Objects are merged field by field, lists are replaced, null takes a field out.

    Fields that are not the pool's to change are left as they are.
    """
    allowed = {key: value for key, value in overrides.items() if key not in _OURS}
    return _merged(_built_in(cluster_dns), allowed)


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        before = merged.get(key)
        if value is None:
            merged.pop(key, None)
        elif isinstance(before, Mapping) and isinstance(value, Mapping):
            merged[key] = _merged(before, value)
        else:
            merged[key] = value
    return merged
