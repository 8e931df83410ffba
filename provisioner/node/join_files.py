"""From the join service's answer to the files that the kubelet starts with. Rendering is pure."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence

from provisioner.node.alignment import align
from provisioner.node.machine.boot_facts import write_file
from provisioner.node.machine.numa import NumaNode

KUBELET_FOLDER = "/run/provisioner/kubelet"
ALIGNMENT_FILE = "numa-alignment"
"""In that folder, where the pool asks for alignment: what came of it, in words."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_TOKEN = re.compile(r"[a-z0-9]{6}\.[a-z0-9]{16}")
_ADDRESS = re.compile(r"[0-9a-fA-F.:]{2,45}")
_URL = re.compile(r"https://[^\s\"'\\]+")


class JoinConfigurationError(Exception):
    """The answer lacks something that the kubelet needs. The message never contains the token."""


def render_files(configuration: dict[str, object], nodes: Sequence[NumaNode] = ()) -> dict[str, tuple[int, str]]:
    """File name → (mode, content), in the order in which they must be written. `nodes`: the machine's NUMA nodes.

    JSON is YAML: kubelet reads both. Raises: JoinConfigurationError.
    """
    name = _checked(configuration, "nodeName", _NAME)
    address = _checked(configuration, "nodeAddress", _ADDRESS)
    server = _checked(configuration, "apiServer", _URL)
    token = _checked(configuration, "bootstrapToken", _TOKEN)
    authority = configuration.get("clusterCA")
    kubelet = configuration.get("kubeletConfiguration")
    if not isinstance(authority, str) or "-----BEGIN CERTIFICATE-----" not in authority:
        raise JoinConfigurationError("the join service's answer has no certificate in clusterCA")
    if not isinstance(kubelet, dict) or kubelet.get("kind") != "KubeletConfiguration":
        raise JoinConfigurationError("the join service's answer has no KubeletConfiguration in kubeletConfiguration")
    kubelet, words = align(kubelet, configuration.get("numaAlignment"), nodes)
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "cluster", "cluster": {"server": server, "certificate-authority": f"{KUBELET_FOLDER}/ca.crt"}}
        ],
        "users": [{"name": "bootstrap", "user": {"token": token}}],
        "contexts": [{"name": "bootstrap", "context": {"cluster": "cluster", "user": "bootstrap"}}],
        "current-context": "bootstrap",
    }
    return {
        **({ALIGNMENT_FILE: (0o644, words + "\n")} if words is not None else {}),
        "ca.crt": (0o644, authority),
        "kubelet.yaml": (0o644, json.dumps(kubelet, indent=1) + "\n"),
        "kubelet.env": (0o644, f'KUBELET_ARGS="--hostname-override={name} --node-ip={address}"\n'),
        "bootstrap.kubeconfig": (0o600, json.dumps(kubeconfig) + "\n"),
    }


def write_files(root: str, files: dict[str, tuple[int, str]]) -> None:
    """Put the files below `root`; the folder is the kubelet's alone (0700)."""
    folder = root + KUBELET_FOLDER
    os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
    for name, (mode, content) in files.items():
        write_file(f"{folder}/{name}", content, mode=mode)


def is_joined(root: str) -> bool:
    """Whether the kubelet has its certificate: it writes its kubeconfig at that moment."""
    return os.path.exists(f"{root}{KUBELET_FOLDER}/kubeconfig")  # noqa: PTH110


def remove_secrets(root: str) -> None:
    """Remove what was only needed to join: the bootstrap kubeconfig and the request key. Absent is fine."""
    for path in (f"{root}{KUBELET_FOLDER}/bootstrap.kubeconfig", f"{root}/run/provisioner/request-key"):
        try:
            os.unlink(path)  # noqa: PTH108
        except FileNotFoundError:
            continue


def _checked(configuration: dict[str, object], key: str, pattern: re.Pattern[str]) -> str:
    value = configuration.get(key)
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise JoinConfigurationError(f"the join service's answer has no usable {key}")
    return value
