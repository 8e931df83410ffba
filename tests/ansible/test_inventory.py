"""The inventory plugin: what ansible-inventory makes of a real API server's Servers."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.control_plane.plane import ControlPlane
from provisioner.api import Server
from provisioner.cluster.client import PAGE_SIZE, Cluster
from provisioner.cluster.resources import of
from tests.ansible.runs import Installed

EVIL = "{{ lookup('pipe', 'id') }}"


@pytest.fixture(scope="module")
def rack(cluster: Cluster) -> Iterator[str]:
    """More servers than a page of the API server's answers holds; the first one is in use, the last ones are not."""
    unique = f"t{uuid.uuid4().hex[:8]}"
    api = {"apiVersion": "provisioner.dev/v1alpha1", "kind": "Server"}
    names = [f"{unique}-u{number:03d}" for number in range(PAGE_SIZE + 2)]
    for number, name in enumerate(names):
        spec: dict[str, Any] = {
            "rackRef": unique,
            "bootMACAddress": f"52:54:{unique[1:3]}:{unique[3:5]}:{number // 256:02x}:{number % 256:02x}",
            "acceptance": "Pending" if name == names[-1] else "Accepted",
            "nodePoolRef": "gpu",
        }
        labels = {"example.com/generation": "h200"} if number == 0 else {}
        if number == 0:
            spec |= {"serialNumber": EVIL, "position": "u01"}
            spec["bmc"] = {"address": "https://10.90.0.11", "credentialsName": f"{name}-bmc"}
        cluster.create(of(Server), api | {"metadata": {"name": name, "labels": labels}, "spec": spec})
    ready = {"type": "Ready", "status": "True", "reason": "NodeReady", "message": "", "lastTransitionTime": MOMENT}
    status = {
        "address": "10.80.0.21",
        "lifecycle": "InProduction",
        "bootStage": "Ready",
        "imageRef": "gpu-node-9f3c01234567",
        "imageDigest": "sha256:" + "ab" * 32,
        "nodeRef": names[0],
        "nodePoolRef": "gpu",
        "conditions": [ready],
    }
    cluster.apply_status(Server, names[0], status, manager="tests")
    yield unique
    for name in names:
        cluster.delete(of(Server), name)


MOMENT = "2026-01-01T00:00:00Z"


def source(folder: Path, plane: ControlPlane, **more: Any) -> Path:
    file = folder / "rack.provisioner.yml"
    file.write_text(
        yaml.safe_dump({"plugin": "provisioner.provisioner.servers", "kubeconfig": str(plane.kubeconfig)} | more)
    )
    return file


def listed(collection: Installed, file: Path, **more: str) -> dict[str, Any]:
    ran = collection.command("ansible-inventory", "--list", "-i", file, **more)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def plain(value: Any) -> Any:
    """ansible-inventory marks what is data, and no template."""
    return value["__ansible_unsafe"] if isinstance(value, dict) and "__ansible_unsafe" in value else value


def test_all_pages_become_hosts_in_groups_by_what_they_are_and_strangers_are_left_out(
    collection: Installed, control_plane: ControlPlane, tmp_path: Path, rack: str, cluster: Cluster
) -> None:
    keyed = [{"key": "provisioner_labels['example.com/generation']", "prefix": "generation"}]
    cached = {"cache": True, "cache_plugin": "ansible.builtin.jsonfile", "cache_connection": str(tmp_path / "cache")}
    compose = {"rack_unit": "provisioner_position[1:]|int"}
    file = source(tmp_path, control_plane, rack=rack, keyed_groups=keyed, compose=compose, **cached)
    found = listed(collection, file)
    first = f"{rack}-u000"
    assert len(found[f"rack_{rack}"]["hosts"]) == PAGE_SIZE + 1
    for group in ("lifecycle_inproduction", "condition_ready_true", "image_gpu_node_9f3c01234567", "generation_h200"):
        assert found[group]["hosts"] == [first]
    variables = {key: plain(value) for key, value in found["_meta"]["hostvars"][first].items()}
    golden = {
        "ansible_host": "10.80.0.21",
        "provisioner_position": "u01",
        "provisioner_bmc_address": "https://10.90.0.11",
        "provisioner_boot_stage": "Ready",
        "provisioner_image_digest": "sha256:" + "ab" * 32,
        "provisioner_node": first,
        "provisioner_pool": "gpu",
        "provisioner_lifecycle": "InProduction",
        "provisioner_serial_number": EVIL,
        "rack_unit": 1,
    }
    assert {key: variables[key] for key in golden} == golden
    assert not [key for key in variables if "credential" in key or "password" in key]

    cluster.patch(of(Server), first, {"metadata": {"labels": {"example.com/generation": "b300"}}})
    assert listed(collection, file)["generation_h200"]["hosts"] == [first], "it did not come from the cache"
    fresh = listed(collection, source(tmp_path, control_plane, rack=rack, keyed_groups=keyed, acceptance=["Pending"]))
    assert fresh[f"rack_{rack}"]["hosts"] == [f"{rack}-u{PAGE_SIZE + 1:03d}"]


def test_what_the_cluster_says_is_never_evaluated(
    collection: Installed, control_plane: ControlPlane, tmp_path: Path, rack: str
) -> None:
    file = source(tmp_path, control_plane, rack=rack)
    shown = {"name": "shown", "ansible.builtin.debug": {"msg": "{{ provisioner_serial_number }}"}}
    play = [{"hosts": f"{rack}-u000", "connection": "local", "gather_facts": False, "tasks": [shown]}]
    (tmp_path / "play.yml").write_text(yaml.safe_dump(play))
    ran = collection.play(tmp_path / "play.yml", "-i", file)
    assert ran["shown"].result["msg"] == EVIL


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"kubeconfig": "/nonexistent/kubeconfig"}, "/nonexistent/kubeconfig"),
        ({"impersonate_user": "nobody-in-particular"}, "grant the right"),
        ({"racks": "r01"}, "has racks, expected one of"),
    ],
)
def test_an_inventory_that_cannot_be_read_says_why(
    collection: Installed, control_plane: ControlPlane, tmp_path: Path, more: dict[str, str], words: str
) -> None:
    file, strict = source(tmp_path, control_plane, **more), {"ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "1"}
    ran = collection.command("ansible-inventory", "--list", "-i", file, **strict)
    assert ran.returncode != 0
    assert words in ran.stdout + ran.stderr
