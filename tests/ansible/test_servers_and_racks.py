"""Modules rack, server and packing_list, run by ansible-playbook against a real API server."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.control_plane.plane import ControlPlane
from provisioner.api import Maintenance, Rack, Server
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import BMC_SECRETS, NODES, SECRETS, of
from tests.ansible.runs import Installed, Run

Task = dict[str, Any]


class Site:
    """One rack of a test, by names that no other test has."""

    def __init__(self, cluster: Cluster, plane: ControlPlane, collection: Installed, folder: Path, name: str) -> None:
        self.cluster, self.plane, self.collection, self.folder, self.name = cluster, plane, collection, folder, name
        self.subnet = f"10.{int(name[1:3], 16)}.{int(name[3:5], 16)}"

    def mac(self, number: int) -> str:
        return f"52:54:{self.name[1:3]}:{self.name[3:5]}:{self.name[5:7]}:{number:02x}"

    def rack(self, **more: Any) -> Task:
        subnets = [{"name": "boot", "cidr": f"{self.subnet}.0/24"}]
        return self._task("rack", {"name": self.name, "site": "fra1", "subnets": subnets} | more)

    def server(self, number: int = 1, **more: Any) -> Task:
        given = {"name": f"{self.name}-u{number:02d}", "rack": self.name, "mac": self.mac(number).upper()}
        return self._task("server", given | more)

    def of_server(self, number: int = 1, **more: Any) -> Task:
        return self._task("server", {"name": f"{self.name}-u{number:02d}"} | more)

    def _task(self, module: str, given: dict[str, Any]) -> Task:
        kubeconfig = str(self.plane.kubeconfig)
        return {"name": module, f"provisioner.provisioner.{module}": {"kubeconfig": kubeconfig} | given}

    def run(self, *tasks: Task, words: tuple[str, ...] = ()) -> Run:
        return self.collection.tasks(self.folder, list(tasks), *words)

    def read(self, number: int = 1) -> dict[str, Any]:
        return self.cluster.get(of(Server), f"{self.name}-u{number:02d}")

    def versions(self) -> dict[str, str]:
        servers = self.cluster.list(of(Server), field_selector=f"spec.rackRef={self.name}").items
        return {body["metadata"]["name"]: body["metadata"]["resourceVersion"] for body in servers}


@pytest.fixture
def site(
    cluster: Cluster, control_plane: ControlPlane, collection: Installed, tmp_path: Path, unique: str
) -> Iterator[Site]:
    site = Site(cluster, control_plane, collection, tmp_path, unique)
    yield site
    for name in site.versions():
        cluster.delete(of(Server), name)
        cluster.delete(NODES, name)
        cluster.delete(SECRETS, f"{name}-bmc", namespace=BMC_SECRETS)
    cluster.delete(of(Rack), unique)


PASSWORD = "p4ss-of-the-bmc"
BMC = {"address": "https://10.90.0.11", "username": "root", "password": PASSWORD}


def test_a_rack_and_a_server_are_registered_once_and_the_second_run_changes_nothing(site: Site) -> None:
    tasks = (site.rack(), site.server(position="u01", pool="gpu", bmc=BMC))
    rehearsed = site.run(tasks[0], words=("--check", "--diff"))
    assert rehearsed.changed == ["rack"]
    assert site.cluster.find(of(Rack), site.name) is None

    first = site.run(*tasks, words=("--diff",))
    assert (first.code, first.changed) == (0, ["rack", "server"]), first.output
    spec = site.read()["spec"]
    assert spec["bootMACAddress"] == site.mac(1)
    assert (spec["acceptance"], spec["position"], spec["nodePoolRef"]) == ("Accepted", "u01", "gpu")
    assert spec["bmc"]["credentialsName"] == f"{site.name}-u01-bmc"
    secret = site.cluster.get(SECRETS, f"{site.name}-u01-bmc", namespace=BMC_SECRETS)
    assert base64.b64decode(secret["data"]["password"]).decode() == PASSWORD
    assert PASSWORD not in first.output
    assert "NodePool gpu does not exist" in str(first["server"].result["notes"])

    before = site.versions()
    again = site.run(*tasks)
    assert (again.code, again.changed) == (0, []), again.output
    assert site.versions() == before


def test_what_a_task_does_not_name_stays_and_check_mode_tells_the_difference(site: Site) -> None:
    assert site.run(site.rack(), site.server(position="u01", serial_number=f"S-{site.name}")).code == 0
    change = site.of_server(position="u02", serial_number="", labels={"example.com/row": "7"})
    before = site.versions()
    rehearsed = site.run(change, words=("--check", "--diff"))
    assert rehearsed.changed == ["server"]
    assert site.versions() == before
    diff = rehearsed["server"].result["diff"][0]
    assert 'position: "u01"' in diff["before"]
    assert 'position: "u02"' in diff["after"]

    assert site.run(change).changed == ["server"]
    body = site.read()
    assert body["spec"]["position"] == "u02"
    assert "serialNumber" not in body["spec"]
    assert body["spec"]["rackRef"] == site.name
    assert body["metadata"]["labels"] == {"example.com/row": "7"}


def test_a_mac_address_that_another_server_has_is_refused_with_the_remedy_and_nothing_is_written(site: Site) -> None:
    assert site.run(site.rack(), site.server(1)).code == 0
    ran = site.run(site.server(2, mac=site.mac(1)))
    assert ran.code != 0
    result = ran.failed[0].result
    assert site.mac(1) in result["msg"]
    assert f"{site.name}-u01" in result["msg"]
    assert result["mistakes"][0]["remedy"]
    assert list(site.versions()) == [f"{site.name}-u01"]


def test_what_cannot_be_registered_is_told_in_words_and_nothing_is_written(site: Site) -> None:
    wrong = [
        (site.server(mac="52:54:00"), "52:54:00"),
        (site.server(rack="no-such-rack"), "no-such-rack, which does not exist"),
        (site.server(bmc={"address": "https://10.90.0.1", "username": "root"}), "expected both or neither"),
        (site.server(bmc={"address": "http://10.90.0.1"}), "the BMC's password and sessions are readable"),
        (site.of_server(position="u01"), "expected one"),
        (site.rack(impersonate_user="nobody-in-particular"), "nobody-in-particular"),
    ]
    tasks = [task | {"name": f"wrong {number}", "ignore_errors": True} for number, (task, _) in enumerate(wrong)]
    ran = site.run(site.rack(), *tasks)
    for number, (_, words) in enumerate(wrong):
        failed = ran[f"wrong {number}"]
        assert failed.state == "ignored"
        assert words in failed.result["msg"]
        assert failed.result["remedy"]
    assert site.versions() == {}


def in_use(site: Site) -> str:
    """A server with a Node, as one has that runs jobs."""
    name = f"{site.name}-u01"
    assert site.run(site.rack(), site.server(bmc={"address": "https://10.90.0.11"})).code == 0
    site.cluster.create(NODES, ready_node(name))
    return name


def ready_node(name: str, **annotations: str) -> dict[str, Any]:
    metadata = {"name": name, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"conditions": [ready("True")]}}


def ready(status: str) -> dict[str, Any]:
    return {"type": "Ready", "status": status, "reason": "AsTheTestSays", "message": ""}


def test_a_server_in_use_is_not_retired_and_a_rack_with_servers_not_deleted(site: Site) -> None:
    name = in_use(site)
    ran = site.run(site.of_server(state="absent", wait_timeout=1))
    assert f"Server {name} is in use" in ran.failed[0].result["msg"]
    assert "drain" in ran.failed[0].result["remedy"]
    assert "powerState" not in site.read()["spec"] or site.read()["spec"]["powerState"] == "On"
    assert f"has 1 server ({name})" in site.run(site.rack(state="absent")).failed[0].result["msg"]


def test_a_server_that_is_drained_is_switched_off_and_goes_with_its_node_and_the_second_run_finds_nothing(
    site: Site,
) -> None:
    name = in_use(site)
    requestors = [{"name": "user-alice", "action": "Drain", "policy": "WhenIdle"}]
    drained = {"metadata": {"name": f"{name}-1"}, "spec": {"serverRef": name, "requestors": requestors}}
    kind = {"apiVersion": "provisioner.dev/v1alpha1", "kind": "Maintenance"}
    site.cluster.create(of(Maintenance), kind | drained)
    site.cluster.apply_status(Maintenance, f"{name}-1", {"phase": "Drained"}, manager="provisioner-maintenance")
    site.cluster.apply_status(Server, name, {"power": {"state": "On"}}, manager="provisioner-power")

    awaited = site.run(site.of_server(state="absent", wait_timeout=1))
    assert "is On after 1 s, expected Off" in awaited.failed[0].result["msg"]
    assert site.read()["spec"]["powerState"] == "Off"
    site.cluster.apply_status(Server, name, {"power": {"state": "Off"}}, manager="provisioner-power")

    assert site.run(site.of_server(state="absent"), words=("--check",)).changed == ["server"]
    gone = site.run(site.of_server(state="absent"), site.rack(state="absent"))
    assert gone.changed == ["server", "rack"], gone.output
    assert site.cluster.find(of(Server), name) is None
    assert site.cluster.find(NODES, name) is None
    assert site.run(site.of_server(state="absent"), site.rack(state="absent")).changed == []
    site.cluster.delete(of(Maintenance), f"{name}-1")


def test_a_node_that_was_left_behind_is_deleted_once_its_kubelet_is_silent(site: Site) -> None:
    name, absent = f"{site.name}-u01", site.of_server(state="absent")
    site.cluster.create(NODES, ready_node(name, **{"provisioner.dev/server-uid": "of-a-server-that-is-gone"}))
    assert site.run(absent).changed == []
    assert site.cluster.find(NODES, name) is not None
    site.cluster.patch(NODES, name, {"status": {"conditions": [ready("Unknown")]}}, subresource="status")
    assert site.run(absent).changed == ["server"]
    assert site.cluster.find(NODES, name) is None


def test_a_python_without_the_package_is_told_which_one_lacks_it(site: Site) -> None:
    task = site.rack() | {"vars": {"ansible_python_interpreter": "/usr/bin/python3"}, "environment": {"PYTHONPATH": ""}}
    failed = site.run(task).failed[0].result
    assert "provisioner 0." in failed["msg"]
