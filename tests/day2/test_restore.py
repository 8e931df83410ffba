"""etcd is put back to a snapshot: what comes back with it, what must not, and that informers see it. docs/backup.md."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric import ec

from lab.binaries.etcd_tools import EtcdTools
from lab.control_plane.plane import ControlPlane
from lab.control_plane.snapshot import restore_snapshot, save_snapshot
from provisioner.api import Rack, Server
from provisioner.api.machinery.errors import Conflict, NeedsHuman, Refused, Retryable
from provisioner.cli.restore.command import restore
from provisioner.cluster.client import Cluster
from provisioner.cluster.informer import Informer
from provisioner.cluster.resources import NODES, SECRETS, of
from provisioner.join.admission.configuration import JoinConfiguration
from provisioner.join.certificates.controller import Approver
from provisioner.join.nodes.node_controller import NodePreparer
from provisioner.join.tokens.mint import SERVER_LABEL, TOKEN_NAMESPACE
from tests.api.objects import rack, subnet
from tests.cluster.fake_events import FakeEvents
from tests.join.world import Clock, World, ask, certificate_pem, connect_as_account, register
from tests.people import until


class Snapshots:
    """The file to which the cluster can go back."""

    def __init__(self, plane: ControlPlane, tools: EtcdTools, file: Path) -> None:
        self._plane, self._tools, self._file = plane, tools, file

    def save(self) -> None:
        save_snapshot(self._plane, self._tools, self._file)

    def restore(self) -> None:
        restore_snapshot(self._plane, self._tools, self._file)


@pytest.fixture
def snapshots(own_plane: ControlPlane, etcd_tools: EtcdTools, tmp_path: Path) -> Snapshots:
    return Snapshots(own_plane, etcd_tools, tmp_path / "snapshot.db")


@pytest.fixture
def world(own_plane: ControlPlane, admin: Cluster, tmp_path: Path, unique: str) -> World:
    """A server whose first boot is ordered, and the services that let it join."""
    boot, join, approver = (
        connect_as_account(admin, own_plane, tmp_path, f"provisioner-{name}") for name in ("boot", "join", "approver")
    )
    clock, recorded, digits = Clock(), FakeEvents(), uuid.uuid4().bytes
    made = World(
        admin=admin,
        plane=own_plane,
        folder=tmp_path,
        name=unique,
        mac="52:54:" + ":".join(f"{byte:02x}" for byte in digits[:4]),
        address=f"10.{digits[5]}.{digits[6]}.{digits[7] % 250 + 1}",
        service_cluster=boot,
        approver=Approver(cluster=approver, recorder=recorded, now=clock),
        preparer=NodePreparer(cluster=join, recorder=recorded, now=clock),
        recorded=recorded,
        clock=clock,
    )
    register(made)
    made.order("order-1")
    return made


def request(world: World, requester: Cluster) -> str:
    """A certificate request for the world's Node, with a key of its own; how it was decided."""
    pem = certificate_pem(ec.generate_private_key(ec.SECP256R1()), f"system:node:{world.name}")
    return world.decide(ask(requester, pem))


def reviewed(plane: ControlPlane) -> tuple[int, str]:
    said = CliRunner().invoke(restore, ["review", "--all", "--kubeconfig", str(plane.kubeconfig)])
    assert said.exception is None or isinstance(said.exception, SystemExit), said.exception
    return said.exit_code, said.output


def settled(true: Callable[[], bool]) -> None:
    """Wait for it, while the API server begins."""

    def holds() -> bool:
        try:
            return true()
        except (Retryable, NeedsHuman):
            return False

    until(holds)


def test_an_informer_shows_the_restored_state_and_nothing_of_what_was_undone(
    admin: Cluster, snapshots: Snapshots, unique: str
) -> None:
    stays, deleted, changed, made = (f"{unique}-{name}" for name in ("stays", "deleted", "changed", "made"))
    for number, name in enumerate((stays, deleted, changed)):
        admin.apply(
            rack(name, subnets=[subnet(cidr=f"10.{number}.3.0/24", gateway=f"10.{number}.3.1")]), manager="tests"
        )
    stop, told = threading.Event(), []
    racks = Informer(admin, of(Rack), watch_seconds=30)
    racks.subscribe(lambda name, old, new: told.append((name, old is not None, new is not None)))
    racks.start(stop)
    try:
        assert racks.wait_for_sync(120)
        snapshots.save()
        admin.delete(of(Rack), deleted)
        admin.patch(of(Rack), changed, {"spec": {"site": "elsewhere"}})
        admin.apply(rack(made, subnets=[subnet(cidr="10.4.3.0/24", gateway="10.4.3.1")]), manager="tests")
        until(lambda: racks.get(made) is not None and racks.get(deleted) is None)
        undone = racks.get(changed)
        assert undone is not None
        told.clear()
        snapshots.restore()
        settled(lambda: racks.get(made) is None and racks.get(deleted) is not None)
        until(lambda: (racks.get(changed) or {})["spec"].get("site") is None)
        assert {(made, True, False), (deleted, False, True), (changed, True, True)} <= set(told)
        # Who decided on what was undone writes nothing.
        with pytest.raises(Conflict):
            admin.replace(of(Rack), {**undone, "spec": {**undone["spec"], "site": "a third"}})
        # And the watch goes on: what is written from now on is told.
        settled(lambda: bool(admin.patch(of(Rack), stays, {"spec": {"site": "here"}})))
        until(lambda: (racks.get(stays) or {})["spec"].get("site") == "here")
    finally:
        stop.set()


def test_a_used_token_that_comes_back_is_listed_and_worth_nothing_once_it_is_deleted(
    own_plane: ControlPlane, admin: Cluster, world: World, snapshots: Snapshots
) -> None:
    configuration: JoinConfiguration = world.joined()
    thief = world.with_token(configuration)
    snapshots.save()
    assert request(world, world.with_token(configuration)) == "Approved"
    assert request(world, thief) == "TokenSpent"
    snapshots.restore()
    settled(lambda: bool(world.tokens()))
    status, said = reviewed(own_plane)
    assert status == 1
    assert f"bootstrap-token-{world.tokens()[0]} of server {world.name}" in said
    assert f"kubectl -n kube-system delete secret -l {SERVER_LABEL}" in said
    assert request(world, world.with_token(configuration)) == "Approved", "as long as it is not deleted"
    for token in admin.list(SECRETS, namespace=TOKEN_NAMESPACE, label_selector=SERVER_LABEL).items:
        admin.delete(SECRETS, token["metadata"]["name"], namespace=TOKEN_NAMESPACE)

    def is_refused() -> bool:
        try:
            thief.ask_who_i_am()
        except Refused as error:
            return "Unauthorized" in str(error)
        return False

    settled(is_refused)
    assert f"of server {world.name}" not in reviewed(own_plane)[1].partition("Nodes that")[0]


def test_a_token_that_has_expired_since_does_not_come_back_to_life(world: World, snapshots: Snapshots) -> None:
    world.clock.offset = -timedelta(seconds=590)  # the join service's clock: its tokens end in seconds
    thief = world.with_token(world.joined())
    snapshots.save()
    snapshots.restore()

    def is_refused() -> bool:
        try:
            thief.ask_who_i_am()
        except Refused as error:
            return "Unauthorized" in str(error)
        return False

    settled(is_refused)


def test_a_certificate_renewed_since_is_refused_named_and_trusted_by_a_person_alone(
    own_plane: ControlPlane, admin: Cluster, world: World, snapshots: Snapshots
) -> None:
    first = world.become_node()
    snapshots.save()
    key = ec.generate_private_key(ec.SECP256R1())
    csr = ask(first, certificate_pem(key, f"system:node:{world.name}"))
    assert world.decide(csr) == "Approved"
    renewed = world.as_node(key, world.wait_for_certificate(csr))
    assert world.decide(csr) == "Approved"
    snapshots.restore()
    settled(lambda: bool(renewed.ask_who_i_am()))
    assert request(world, renewed) == "OldCertificate", "what was renewed is not on record"
    assert request(world, first) == "Approved", "what was there at the snapshot is"
    status, said = reviewed(own_plane)
    assert status == 1
    assert f"    {world.name}: X509SHA256=" in said
    trusted = CliRunner().invoke(restore, ["trust", world.name, "--kubeconfig", str(own_plane.kubeconfig)])
    assert trusted.exit_code == 0, trusted.output
    assert request(world, renewed) == "Approved"
    unknown = CliRunner().invoke(restore, ["trust", f"{world.name}-b", "--kubeconfig", str(own_plane.kubeconfig)])
    assert isinstance(unknown.exception, NeedsHuman)
    assert "has not been denied" in str(unknown.exception)
    join = admin.read(Server, world.name).status.join
    assert join is not None
    assert len(join.credentials) <= 3


def test_what_was_under_way_at_the_snapshot_is_listed(
    own_plane: ControlPlane, admin: Cluster, world: World, snapshots: Snapshots
) -> None:
    snapshots.save()
    node = world.become_node()
    snapshots.restore()
    settled(lambda: bool(admin.get(NODES, world.name)))
    _, said = reviewed(own_plane)
    assert f"    {world.name}: provisioner.dev/verification:NoExecute" in said
    assert f"    {world.name}: ordered at" in said
    assert f"    {world.name}\n" in said.partition("have no Node")[2], "no kubelet has reported"
    assert node.ask_who_i_am() == f"system:node:{world.name}", "its certificate outlives the restoration"
