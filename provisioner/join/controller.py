"""The controllers of the join stage, wired to the informers of their process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from provisioner.api import NodePool, Rack, Server
from provisioner.api.machinery.errors import NotFound
from provisioner.api.nodes.contract import PREPARED_ORDER_ANNOTATION
from provisioner.cluster.client import Cluster
from provisioner.cluster.controller import Controller
from provisioner.cluster.events import Events
from provisioner.cluster.informer import Informer
from provisioner.cluster.reconciler import when_synced
from provisioner.cluster.resources import CSRS, NODES, of
from provisioner.cluster.source import Object, Source, Watcher, when_changed
from provisioner.join.certificates.controller import Approver, concerns_us
from provisioner.join.challenge_keys import SECRET_NAME, KeyRotator
from provisioner.join.credentials.controller import CredentialSources, build_credential_controller
from provisioner.join.nodes.node_controller import NodePreparer
from provisioner.join.nodes.node_object import SERVER_UID_ANNOTATION
from provisioner.join.tokens.stale_tokens import SETTLE_SECONDS, TokenCleaner, left_over
from provisioner.rules.pool_of_server import ordered_pool_in

PREPARERS: Final = 8


@dataclass(frozen=True, kw_only=True)
class NodeInformers:
    """What the preparer of Nodes follows."""

    servers: Informer
    node_pools: Informer
    racks: Informer
    nodes: Informer


@dataclass(frozen=True, kw_only=True)
class CertificateInformers:
    """What the approver follows, and who lists what came of it: Roles and RoleBindings are those of the list."""

    servers: Informer
    nodes: Informer
    csrs: Source
    roles: Informer
    bindings: Informer


def build_node_controllers(
    cluster: Cluster,
    informers: NodeInformers,
    recorder: Events,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> list[Controller]:
    """Two controllers: the servers' Nodes, the keys of challenges. The caller runs and stops them."""
    caches = {of(Server): informers.servers, of(NodePool): informers.node_pools, of(Rack): informers.racks}
    caches[NODES] = informers.nodes
    preparer = NodePreparer(cluster=cluster, recorder=recorder, now=now, sources=caches)

    def prepare(name: str) -> float | None:
        try:
            return preparer.reconcile(name)
        except NotFound:
            return None  # Server or Node went away meanwhile; where there is something to do then, a change says so

    nodes = Controller("join-nodes", when_synced(caches.values(), prepare), workers=PREPARERS)

    def server_changed(name: str, old: Object | None, new: Object | None) -> None:
        if new is not None and (old is None or _of_interest(old) != _of_interest(new)):
            nodes.queue.add(name)

    def node_changed(name: str, old: Object | None, new: Object | None) -> None:
        if new is None:
            nodes.queue.add(name)
        elif old is None or _marks(old) != _marks(new):  # by us, or by a kubelet that should not
            nodes.queue.add_after(name, 1.0)

    def of_all_servers(refers_to: Callable[[Object], str | None]) -> Watcher:
        """Those that refer to it, when it appears or what is asked of it changes; not its counts."""
        servers = informers.servers.index(lambda server: [refers_to(server)])

        def add(name: str) -> None:
            for server in servers.get(name):
                nodes.queue.add(server["metadata"]["name"])

        return when_changed(lambda body: body and body["spec"], add)

    informers.servers.subscribe(server_changed)
    informers.nodes.subscribe(node_changed)
    informers.node_pools.subscribe(of_all_servers(ordered_pool_in))
    informers.racks.subscribe(of_all_servers(lambda server: server["spec"].get("rackRef")))
    keys = Controller("join-challenge-keys", KeyRotator(cluster=cluster, now=now).reconcile)
    keys.queue.add(SECRET_NAME)
    return [nodes, keys]


def build_certificate_controllers(
    cluster: Cluster,
    informers: CertificateInformers,
    recorder: Events,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    *,
    settle_seconds: float = SETTLE_SECONDS,
) -> list[Controller]:
    """Three controllers: certificates, their list, left-over tokens. The caller runs and stops them."""
    caches = {of(Server): informers.servers, NODES: informers.nodes, CSRS: informers.csrs}
    approver = Approver(cluster=cluster, recorder=recorder, now=now, sources=caches)
    certificates = Controller("join-certificates", approver.reconcile, workers=2)
    tokens = Controller("join-tokens", TokenCleaner(cluster=cluster).reconcile)

    def server_changed(name: str, old: Object | None, new: Object | None) -> None:
        token_id = left_over(old, new)
        if token_id is not None:
            tokens.queue.add_after(token_id, settle_seconds)

    def csr_changed(name: str, old: Object | None, new: Object | None) -> None:
        if new is not None and concerns_us(new):
            certificates.queue.add(name)

    informers.servers.subscribe(server_changed)
    informers.csrs.subscribe(csr_changed)
    listed = CredentialSources(servers=informers.servers, roles=informers.roles, bindings=informers.bindings)
    return [certificates, build_credential_controller(cluster, listed, now), tokens]


def _of_interest(server: Object) -> tuple[Any, Any]:
    """Spec and order: progress reports change a Server often and mean nothing to its Node."""
    return server["metadata"].get("generation"), ((server.get("status") or {}).get("order") or {}).get("id")


def _marks(node: Object) -> list[Any]:
    annotations = node["metadata"].get("annotations") or {}
    return [annotations.get(SERVER_UID_ANNOTATION), annotations.get(PREPARED_ORDER_ANNOTATION)]
