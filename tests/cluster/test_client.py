"""Reading and writing through the door, against the real API server."""

from __future__ import annotations

import socket

import pytest

from lab.control_plane.plane import ControlPlane
from provisioner.api import Server
from provisioner.api.machinery.errors import Conflict, NeedsHuman, NotFound, Refused
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import CONFIG_MAPS, NODES, SECRETS, ResourceType, of


def config_map(name: str, **data: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": data}


def test_what_was_created_is_read_back(cluster: Cluster, unique: str) -> None:
    created = cluster.create(CONFIG_MAPS, config_map(unique, colour="red"))
    read = cluster.get(CONFIG_MAPS, unique, namespace="default")
    assert read["data"] == {"colour": "red"}
    assert read["metadata"]["uid"] == created["metadata"]["uid"]


def test_an_absent_object_is_named_in_the_servers_words(cluster: Cluster, unique: str) -> None:
    with pytest.raises(NotFound, match=f'GET Node {unique}: nodes "{unique}" not found'):
        cluster.get(NODES, unique)


def test_creating_twice_is_a_conflict(cluster: Cluster, unique: str) -> None:
    cluster.create(CONFIG_MAPS, config_map(unique))
    with pytest.raises(Conflict, match="already exists"):
        cluster.create(CONFIG_MAPS, config_map(unique))


def test_replacing_what_somebody_else_wrote_since_is_a_conflict(cluster: Cluster, unique: str) -> None:
    mine = cluster.create(CONFIG_MAPS, config_map(unique, colour="red"))
    cluster.replace(CONFIG_MAPS, {**mine, "data": {"colour": "blue"}})
    with pytest.raises(Conflict, match="the object has been modified"):
        cluster.replace(CONFIG_MAPS, {**mine, "data": {"colour": "green"}})
    assert cluster.get(CONFIG_MAPS, unique, namespace="default")["data"] == {"colour": "blue"}


def test_a_stale_resource_version_stops_an_apply_and_a_patch(cluster: Cluster, unique: str) -> None:
    stale = cluster.apply(config_map(unique, colour="red"), manager="one")["metadata"]["resourceVersion"]
    cluster.apply(config_map(unique, colour="blue"), manager="one")
    body = config_map(unique, colour="green")
    body["metadata"] = {"name": unique, "namespace": "default", "resourceVersion": stale}
    with pytest.raises(Conflict):
        cluster.apply(body, manager="one")
    with pytest.raises(Conflict):
        cluster.patch(CONFIG_MAPS, unique, {"metadata": {"resourceVersion": stale}}, namespace="default")


def test_a_change_hangs_on_what_it_changes_and_on_what_it_relies_on_alone(cluster: Cluster, unique: str) -> None:
    read = cluster.create(CONFIG_MAPS, config_map(unique, a="1", b="1", c="1"))
    cluster.patch(CONFIG_MAPS, unique, {"data": {"c": "2"}}, namespace="default")
    assert cluster.patch_seen(CONFIG_MAPS, read, {"/data/a": "2"}, relies_on=["/data/b"])["data"]["a"] == "2"
    with pytest.raises(Conflict, match="one of /data/a is not as it was read"):
        cluster.patch_seen(CONFIG_MAPS, read, {"/data/a": None})
    with pytest.raises(Conflict, match="one of /data/b, /data/c is not as it was read"):
        cluster.patch_seen(CONFIG_MAPS, read, {"/data/b": "2"}, relies_on=["/data/c"])
    with pytest.raises(Refused, match=r"ConfigMap .* is invalid"):
        cluster.patch_seen(CONFIG_MAPS, read, {"/data/not a key": "2"})
    cluster.delete(CONFIG_MAPS, unique, namespace="default")
    cluster.create(CONFIG_MAPS, config_map(unique, b="1"))
    with pytest.raises(Conflict):
        cluster.patch_seen(CONFIG_MAPS, read, {"/data/b": "2"})


def test_a_strategic_patch_sets_one_condition_of_a_node_and_keeps_the_others(cluster: Cluster, unique: str) -> None:
    node = cluster.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": unique}})
    stale = node["metadata"]["resourceVersion"]
    for type_, status in (("One", "True"), ("Two", "True"), ("One", "False")):
        patch = {"status": {"conditions": [{"type": type_, "status": status}]}}
        cluster.strategic_patch(NODES, unique, patch, subresource="status", manager="tests")
    conditions = cluster.get(NODES, unique)["status"]["conditions"]
    assert sorted((c["type"], c["status"]) for c in conditions) == [("One", "False"), ("Two", "True")]
    with pytest.raises(Conflict):
        cluster.strategic_patch(
            NODES, unique, {"metadata": {"resourceVersion": stale}, "status": {}}, subresource="status"
        )
    cluster.delete(NODES, unique)


def test_each_manager_owns_its_fields_and_gives_up_what_it_no_longer_says(cluster: Cluster, unique: str) -> None:
    cluster.apply(config_map(unique, colour="red", size="small"), manager="one")
    cluster.apply(config_map(unique, shape="round"), manager="two")
    applied = cluster.apply(config_map(unique, colour="red"), manager="one")
    assert applied["data"] == {"colour": "red", "shape": "round"}


def test_without_force_another_managers_field_is_not_taken(cluster: Cluster, unique: str) -> None:
    cluster.apply(config_map(unique, colour="red"), manager="one")
    with pytest.raises(Conflict, match='conflict with "one"'):
        cluster.apply(config_map(unique, colour="blue"), manager="two", force=False)
    assert cluster.apply(config_map(unique, colour="blue"), manager="two")["data"] == {"colour": "blue"}


def test_a_dry_run_changes_nothing(cluster: Cluster, unique: str) -> None:
    cluster.apply(config_map(unique), manager="one", dry_run=True)
    with pytest.raises(NotFound):
        cluster.get(CONFIG_MAPS, unique, namespace="default")


def test_a_kind_that_the_program_does_not_know_is_asked_of_the_server(cluster: Cluster, unique: str) -> None:
    body = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": unique, "namespace": "default"},
        "rules": [],
    }
    assert cluster.apply(body, manager="one")["metadata"]["name"] == unique
    with pytest.raises(Refused, match="no kind Rule in rbac"):
        cluster.apply({**body, "kind": "Rule"}, manager="one")


def test_deleting_what_is_gone_is_fine_but_another_incarnation_is_not_deleted(cluster: Cluster, unique: str) -> None:
    cluster.delete(CONFIG_MAPS, unique, namespace="default")
    cluster.create(CONFIG_MAPS, config_map(unique))
    with pytest.raises(Conflict, match="does not match the UID"):
        cluster.delete(CONFIG_MAPS, unique, namespace="default", uid="another")
    cluster.delete(CONFIG_MAPS, unique, namespace="default")
    with pytest.raises(NotFound):
        cluster.get(CONFIG_MAPS, unique, namespace="default")


def test_a_list_of_several_pages_is_whole_and_its_items_say_their_kind(
    cluster: Cluster, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(5):
        body = config_map(f"{unique}-{i}")
        body["metadata"] = {"name": f"{unique}-{i}", "labels": {"set": unique}}
        cluster.create(CONFIG_MAPS, body, namespace="default")
    monkeypatch.setattr("provisioner.cluster.client.PAGE_SIZE", 2)
    listed = cluster.list(CONFIG_MAPS, label_selector=f"set={unique}")
    assert [item["metadata"]["name"] for item in listed.items] == [f"{unique}-{i}" for i in range(5)]
    assert {(item["apiVersion"], item["kind"]) for item in listed.items} == {("v1", "ConfigMap")}
    only = cluster.list(CONFIG_MAPS, namespace="default", field_selector=f"metadata.name={unique}-3")
    assert [item["metadata"]["name"] for item in only.items] == [f"{unique}-3"]


def test_an_invalid_object_is_refused_in_the_servers_words(cluster: Cluster, unique: str) -> None:
    with pytest.raises(Refused, match="a lowercase RFC 1123 subdomain"):
        cluster.create(CONFIG_MAPS, config_map(f"{unique}_"))


def test_a_name_can_not_reach_into_another_path(cluster: Cluster) -> None:
    with pytest.raises(ValueError, match="is not a name"):
        cluster.get(NODES, "a/../../secrets")
    with pytest.raises(ValueError, match="without its namespace"):
        cluster.get(SECRETS, "a")


def test_paths_of_core_and_group_kinds() -> None:
    assert NODES.path == "/api/v1/nodes"
    assert SECRETS.item("a", "b") == "/api/v1/namespaces/b/secrets/a"
    lease = ResourceType("coordination.k8s.io", "v1", "Lease", "leases", namespaced=True)
    assert lease.item("a", "b", "status") == "/apis/coordination.k8s.io/v1/namespaces/b/leases/a/status"


def test_a_host_that_vanished_is_noticed_by_tcp_itself(cluster: Cluster) -> None:
    with cluster.watch(NODES, "0", timeout_seconds=5, silence_seconds=30) as stream:
        connection = stream._response.connection  # type: ignore[attr-defined]
        assert connection.sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert connection.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 10


def test_typed_objects_and_the_status_of_one_manager(cluster: Cluster, unique: str) -> None:
    mac = "52:54:00:" + ":".join(unique[1:7][i : i + 2] for i in (0, 2, 4))
    metadata = {"name": unique, "labels": {"set": unique}}
    body = {"apiVersion": "provisioner.dev/v1alpha1", "kind": "Server", "metadata": metadata}
    created = cluster.create(of(Server), {**body, "spec": {"bootMACAddress": mac}})
    cluster.apply_status(Server, unique, {"power": {"state": "Off"}}, manager="provisioner-power")
    cluster.apply_status(Server, unique, {"bootStage": "Ordered"}, manager="provisioner-boot-controller")
    read = cluster.read(Server, unique)
    assert read.spec.boot_mac_address == mac
    assert read.status.power is not None
    assert (read.status.power.state, read.status.boot_stage) == ("Off", "Ordered")
    assert cluster.read_all(Server, label_selector=f"set={unique}") == [read]
    stale = created["metadata"]["resourceVersion"]
    with pytest.raises(Conflict):
        cluster.apply_status(
            Server, unique, {"bootStage": "IPXE"}, manager="provisioner-boot-controller", resource_version=stale
        )
    with pytest.raises(NotFound):
        cluster.apply_status(Server, f"{unique}-absent", {}, manager="provisioner-power")
    cluster.delete(of(Server), unique)


def test_a_dry_run_of_a_strategic_patch_is_answered_and_not_written(cluster: Cluster, unique: str) -> None:
    cluster.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": unique}})
    patch = {"status": {"conditions": [{"type": "One", "status": "True"}]}}
    answered = cluster.strategic_patch(NODES, unique, patch, subresource="status", dry_run=True)
    assert [c["type"] for c in answered["status"]["conditions"]] == ["One"]
    assert "conditions" not in cluster.get(NODES, unique).get("status", {})
    cluster.delete(NODES, unique)


def test_the_api_server_tells_who_asks_also_when_somebody_asks_as_another(
    cluster: Cluster, control_plane: ControlPlane
) -> None:
    assert cluster.ask_who_i_am() == "lab-admin"
    as_alice = Cluster.connect(control_plane.kubeconfig, as_user="alice", as_groups=("ops", "system:authenticated"))
    assert as_alice.ask_who_i_am() == "alice"
    assert cluster.acting_as("bob").ask_who_i_am() == "bob"
    assert cluster.ask_who_i_am() == "lab-admin"


def test_a_context_that_is_not_in_the_kubeconfig_is_named(control_plane: ControlPlane) -> None:
    with pytest.raises(NeedsHuman, match="elsewhere"):
        Cluster.connect(control_plane.kubeconfig, context="elsewhere")
