"""Somebody has the client certificate and key of an earlier boot. docs/threat-model.md, "Stolen certificate"."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from lab.control_plane.plane import ControlPlane
from provisioner.api import Server
from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.meta import rfc3339_micro
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import (
    CREDENTIALS,
    EVENTS,
    LEASES,
    NODE_LEASES,
    NODES,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    of,
)
from provisioner.cluster.source import Snapshot
from provisioner.join.credentials import listed
from provisioner.join.credentials.controller import CredentialLister, CredentialSources
from provisioner.join.credentials.listed import ListedServer, shard_of
from tests.join.conftest import Accounts, accounts, make_world, world
from tests.join.samples import OTHER_KEY
from tests.join.world import World, again, ask, certificate_pem
from tests.people import kubeconfig_of, until

__all__ = ["accounts", "make_world", "world"]

OUT = "writes nothing by credential X509SHA256="


def list_credentials(world: World, approver: Cluster) -> None:
    """As the lister does by its account, with all that is there at this moment."""

    def of_the_list(type_: Any) -> Snapshot:
        found = world.admin.list(type_, namespace=CREDENTIALS).items
        return Snapshot({f"{CREDENTIALS}/{each['metadata']['name']}": each for each in found})

    def reconcile() -> None:
        servers = Snapshot({each["metadata"]["name"]: each for each in world.admin.list(of(Server)).items})
        sources = CredentialSources(servers=servers, roles=of_the_list(ROLES), bindings=of_the_list(ROLE_BINDINGS))
        CredentialLister(cluster=approver, sources=sources, now=world.clock).reconcile(shard_of(world.name))

    again(reconcile)


def boot_again(world: World) -> Cluster:
    """The server's next boot, to its certificate; as in the window before it is listed."""
    world.order("order-2")
    key = ec.generate_private_key(ec.SECP256R1())
    csr = ask(world.with_token(world.joined(requestKey=OTHER_KEY)), certificate_pem(key, f"system:node:{world.name}"))
    assert world.decide(csr) == "Approved"
    certificate = world.wait_for_certificate(csr)
    again(lambda: world.approver.reconcile(csr))
    return world.as_node(key, certificate)


def tries_to_write(node: Cluster, name: str) -> dict[str, Callable[[], object]]:
    """What a kubelet writes, and a thief would, each as one request."""
    now = rfc3339_micro(datetime.now(UTC))
    lease = {
        "apiVersion": LEASES.api_version,
        "kind": LEASES.kind,
        "metadata": {"name": name, "namespace": NODE_LEASES},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now},
    }
    mirror = {
        "kubernetes.io/config.mirror": "x",
        "kubernetes.io/config.hash": "x",
        "kubernetes.io/config.source": "file",
    }
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node.get(NODES, name)["metadata"]["uid"]}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"static-{name}",
            "namespace": "default",
            "annotations": mirror,
            "ownerReferences": [owner | {"controller": True}],
        },
        "spec": {"nodeName": name, "containers": [{"name": "c", "image": "example.com/a"}]},
    }
    status = {"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]}}
    about = {"kind": "Node", "name": name}
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.{now[-7:-1]}", "namespace": "default"},
        "involvedObject": about,
        "reason": "Tried",
        "type": "Normal",
    }
    return {
        "its Node": lambda: node.patch(NODES, name, {"metadata": {"annotations": {"example.com/tried": now}}}),
        "its Node's status": lambda: node.strategic_patch(NODES, name, status, subresource="status"),
        "its Lease": lambda: node.apply(lease, manager="kubelet"),
        "a mirror pod": lambda: node.create(PODS, pod, dry_run=True),
        "a pod's status": lambda: node.patch(
            PODS, name, {"status": {"message": now}}, namespace="default", subresource="status"
        ),
        "an Event": lambda: node.create(EVENTS, event),
    }


def give_it_a_pod(world: World) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": world.name, "namespace": "default"},
        "spec": {"nodeName": world.name, "containers": [{"name": "c", "image": "example.com/a"}]},
    }

    def is_made() -> bool:
        try:
            world.admin.create(PODS, body)
        except Refused:
            return False
        return True

    until(is_made)


def refusal(write: Callable[[], object]) -> str:
    """Why it is refused; empty if it is not."""
    try:
        write()
    except Refused as error:
        return str(error)
    return ""


def is_out(node: Cluster, name: str) -> bool:
    try:
        node.patch(NODES, name, {"metadata": {"annotations": {"example.com/tried": "x"}}})
    except Refused as error:
        if OUT not in str(error):
            raise
        return True
    return False


def test_a_certificate_of_an_earlier_boot_writes_nothing_and_the_current_one_writes(
    world: World, accounts: Accounts
) -> None:
    thief = world.become_node()
    list_credentials(world, accounts.approver)
    give_it_a_pod(world)
    for what, write in tries_to_write(thief, world.name).items():
        assert write(), f"{what} of the current boot"

    current = boot_again(world)
    list_credentials(world, accounts.approver)
    until(lambda: is_out(thief, world.name))
    for what, write in tries_to_write(thief, world.name).items():
        assert OUT in refusal(write), f"{what} was written by the certificate of an earlier boot"
    for node, verdict in ((thief, "OldCertificate"), (current, "Approved")):
        request = certificate_pem(ec.generate_private_key(ec.SECP256R1()), f"system:node:{world.name}")
        assert world.decide(ask(node, request)) == verdict
    for what, write in tries_to_write(current, world.name).items():
        assert write(), f"{what} of the current boot"


def test_it_evicts_no_pod_and_gets_no_token_of_one(world: World, accounts: Accounts) -> None:
    thief = world.become_node()
    give_it_a_pod(world)
    boot_again(world)
    list_credentials(world, accounts.approver)
    until(lambda: is_out(thief, world.name))
    token = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {}, "spec": {}}
    pod = world.admin.get(PODS, world.name, namespace="default")
    token["spec"] = {
        "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": world.name, "uid": pod["metadata"]["uid"]}
    }
    path = "/api/v1/namespaces/default/serviceaccounts/default/token"
    with pytest.raises(Refused, match=OUT):
        thief._transport.request("POST", path, what="CREATE a token", body=token)
    with pytest.raises(Refused, match=OUT):
        thief.evict(world.name, "default", uid=pod["metadata"]["uid"])


def test_a_renewed_certificate_writes_and_so_does_the_one_that_asked_for_it(world: World, accounts: Accounts) -> None:
    first = world.become_node()
    list_credentials(world, accounts.approver)
    key = ec.generate_private_key(ec.SECP256R1())
    csr = ask(first, certificate_pem(key, f"system:node:{world.name}"))
    assert world.decide(csr) == "Approved"
    renewed = world.as_node(key, world.wait_for_certificate(csr))
    again(lambda: world.approver.reconcile(csr))
    list_credentials(world, accounts.approver)
    until(lambda: not is_out(renewed, world.name))
    assert not is_out(first, world.name)


def test_it_is_out_from_the_approval_on_and_the_new_one_is_in_though_the_approver_died_in_between(
    world: World, accounts: Accounts
) -> None:
    """It died before it could note what was signed: nobody is let in, and nobody is lost."""
    thief = world.become_node()
    list_credentials(world, accounts.approver)
    world.order("order-2")
    key = ec.generate_private_key(ec.SECP256R1())
    csr = ask(world.with_token(world.joined(requestKey=OTHER_KEY)), certificate_pem(key, f"system:node:{world.name}"))
    list_credentials(world, accounts.approver)
    assert not is_out(thief, world.name), "the next boot has not joined yet"
    assert world.decide(csr) == "Approved"
    current = world.as_node(key, world.wait_for_certificate(csr))
    list_credentials(world, accounts.approver)
    until(lambda: is_out(thief, world.name))
    assert is_out(current, world.name), "it is not on record yet"

    again(lambda: world.approver.reconcile(csr))  # the next approver reads all requests again
    list_credentials(world, accounts.approver)
    until(lambda: not is_out(current, world.name))
    assert is_out(thief, world.name)


def test_the_certificate_of_a_rejected_server_writes_nothing_until_it_is_accepted_again(
    world: World, accounts: Accounts
) -> None:
    node = world.become_node()
    world.change_spec(acceptance="Rejected")
    list_credentials(world, accounts.approver)
    until(lambda: is_out(node, world.name))
    world.change_spec(acceptance="Accepted")
    list_credentials(world, accounts.approver)
    until(lambda: not is_out(node, world.name))


def test_deleting_the_server_lets_no_earlier_certificate_in_again(world: World, accounts: Accounts) -> None:
    thief = world.become_node()
    current = boot_again(world)
    list_credentials(world, accounts.approver)
    until(lambda: is_out(thief, world.name))
    world.admin.delete(of(Server), world.name)
    for offset in (timedelta(), timedelta(hours=24)):
        world.clock.offset = offset
        list_credentials(world, accounts.approver)
    assert is_out(thief, world.name)
    assert not is_out(current, world.name)
    world.clock.offset = timedelta(hours=26)
    list_credentials(world, accounts.approver)
    until(lambda: not is_out(thief, world.name))  # every certificate from before has expired by then


def test_nodes_that_no_server_of_ours_has_joined_are_left_alone(
    world: World, accounts: Accounts, control_plane: ControlPlane
) -> None:
    """Also where a Server was registered under the name of a Node that others run."""
    list_credentials(world, accounts.approver)
    for name in (world.name, f"{world.name}-stranger"):
        if world.admin.find(NODES, name) is None:
            world.admin.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        stranger = Cluster.connect(
            kubeconfig_of(control_plane, world.folder, f"system:node:{name}", group="system:nodes")
        )
        assert not is_out(stranger, name)


def test_a_node_that_others_run_is_out_without_the_look_at_whether_its_server_has_joined(
    world: World, accounts: Accounts, control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry_of = listed.entry_of

    def entry(server: Mapping[str, Any]) -> ListedServer | None:
        return ListedServer() if server["metadata"]["name"] == world.name else entry_of(server)

    stranger = Cluster.connect(
        kubeconfig_of(control_plane, world.folder, f"system:node:{world.name}", group="system:nodes")
    )
    list_credentials(world, accounts.approver)
    assert not is_out(stranger, world.name)
    monkeypatch.setattr(listed, "entry_of", entry)
    list_credentials(world, accounts.approver)
    until(lambda: is_out(stranger, world.name))


def test_open_without_the_webhook_it_reads_until_it_expires(world: World, accounts: Accounts) -> None:
    """Admission sees writes alone; see test_old_certificate_reads."""
    thief = world.become_node()
    boot_again(world)
    list_credentials(world, accounts.approver)
    until(lambda: is_out(thief, world.name))
    assert thief.get(NODES, world.name)["metadata"]["name"] == world.name


def test_who_acts_as_a_node_without_its_certificate_writes_nothing(
    world: World, accounts: Accounts, control_plane: ControlPlane
) -> None:
    node = world.become_node()
    list_credentials(world, accounts.approver)
    user = f"system:node:{world.name}"
    actor = Cluster.connect(control_plane.kubeconfig, as_user=user, as_groups=("system:nodes", "system:authenticated"))

    def is_refused() -> bool:
        try:
            actor.patch(NODES, world.name, {"metadata": {"annotations": {"example.com/tried": "x"}}})
        except Refused as error:
            return "writes nothing by credential none" in str(error)
        return False

    until(is_refused)
    until(lambda: not is_out(node, world.name))


def test_the_list_gives_a_node_no_right_to_read_or_write_it(world: World, accounts: Accounts) -> None:
    node = world.become_node()
    list_credentials(world, accounts.approver)
    shard = shard_of(world.name)
    assert world.admin.get(ROLES, shard, namespace=CREDENTIALS)
    until(lambda: not is_out(node, world.name))
    with pytest.raises(Refused, match="forbidden"):
        node.get(ROLES, shard, namespace=CREDENTIALS)
    with pytest.raises(Refused, match="forbidden"):
        node.delete(ROLES, shard, namespace=CREDENTIALS)
    with pytest.raises(Refused, match="forbidden"):
        node.list(ROLES, namespace=CREDENTIALS)
