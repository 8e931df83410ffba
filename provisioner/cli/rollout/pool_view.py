"""A pool and its servers as the API server shows them now, judged as the rollout's controller judges them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from provisioner.api import Image, Maintenance, NodePool, Server
from provisioner.api.machinery.codec import decode
from provisioner.api.machinery.errors import NotFound
from provisioner.api.nodes.maintenance import holding_maintenance
from provisioner.api.pools.rollout_status import RolloutStatus
from provisioner.cli.kubectl.connection import find_named
from provisioner.cli.kubectl.failing import BadInput, hinting_at
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import NODES, of
from provisioner.join.nodes.node_object import trim_node
from provisioner.rollout.borrowed import Lending, lending_of
from provisioner.rollout.members import is_member, order_of, retried_moment
from provisioner.rollout.standing import MemberFacts, judge_standing, target_of
from provisioner.rules.assigned_image import is_observed
from provisioner.rules.nodes import read_node

VIEWER: Final = "provisioner-viewer"
EDITOR: Final = "provisioner-inventory-editor"


@dataclass(frozen=True, kw_only=True)
class PoolView:
    """standings: by name, of the servers that count, in the order in which nothing else decides. maintenances: of each
    server those that are there. nodes: by name, trimmed. image: the one that the pool wants, if it is there."""

    pool: NodePool
    image: Image | None
    standings: Mapping[str, MemberFacts]
    nodes: Mapping[str, Mapping[str, Any]]
    maintenances: Mapping[str, Sequence[Maintenance]]
    now: datetime

    @property
    def rollout(self) -> RolloutStatus | None:
        """The one that is on record for the image that the pool wants; None if there is none."""
        found = self.pool.status.rollout
        return found if found is not None and found.image_ref == self.pool.spec.image_ref else None

    @property
    def is_observed(self) -> bool:
        """Whether the controller has seen what the pool's spec says now."""
        return is_observed(self.pool)

    def maintenance_of(self, server: str) -> Maintenance | None:
        """The one that holds the server."""
        return holding_maintenance(self.maintenances.get(server, ()), server)

    def named(self, *states: str) -> list[MemberFacts]:
        """The servers that stand so."""
        return [standing for standing in self.standings.values() if standing.state in states]


def make_view(
    pool: NodePool,
    image: Image | None,
    servers: Iterable[Mapping[str, Any]],
    nodes: Mapping[str, Mapping[str, Any]],
    maintenances: Iterable[Maintenance],
    lending: Lending,
    now: datetime,
) -> PoolView:
    """servers: those of the pools of `homes_of`, as JSON, as nodes are. Pure."""
    by_server: dict[str, list[Maintenance]] = {}
    for each in maintenances:
        by_server.setdefault(each.spec.server_ref, []).append(each)
    members = [decode(Server, body) for body in servers if is_member(body, pool.name, lending)]
    bare = PoolView(pool=pool, image=image, standings={}, nodes=nodes, maintenances=by_server, now=now)
    found = _standings(bare, members)
    return replace(bare, standings={standing.server.name: standing for standing in sorted(found, key=order_of)})


def _standings(view: PoolView, servers: Iterable[Server]) -> Iterator[MemberFacts]:
    """Where `servers` stand by what the view has of the rest."""
    target, retried = target_of(view.pool, view.image), retried_moment(view.pool.spec.upgrade_strategy)
    for server in servers:
        node, maintenances = read_node(view.nodes.get(server.name)), tuple(view.maintenances.get(server.name, ()))
        yield judge_standing(server, node, maintenances, target, retried=retried, now=view.now.timestamp())


def read_view(cluster: Cluster, pool: NodePool, now: datetime) -> PoolView:
    """Raises: Refused where the caller may not read it, with the role that may."""
    with needing(VIEWER):
        homes = [cluster.list(of(Server), field_selector=f"spec.nodePoolRef={each}").items for each in homes_of(pool)]
        nodes = {node["metadata"]["name"]: node for node in cluster.list(NODES, trim=trim_node).items}
        maintenances = cluster.read_all(Maintenance)
        image, pools = find_image(cluster, pool.spec.image_ref), cluster.read_all(NodePool)
    servers = (body for bodies in homes for body in bodies)
    return make_view(pool, image, servers, nodes, maintenances, lending_of(pools, now), now)


def homes_of(pool: NodePool) -> list[str]:
    """The NodePools that the servers of that one may be of: it, and those that it borrows from."""
    return sorted({pool.name, *(each.node_pool_ref for each in pool.spec.borrows)})


def with_image(view: PoolView, name: str, image: Image | None) -> PoolView:
    """As if the pool wanted that image, and nobody had paused its rollout. Pure."""
    strategy = replace(view.pool.spec.upgrade_strategy, paused=False)
    pool = replace(view.pool, spec=replace(view.pool.spec, image_ref=name, upgrade_strategy=strategy))
    wanted = replace(view, pool=pool, image=image)
    found = _standings(wanted, [before.server for before in view.standings.values()])
    return replace(wanted, standings={standing.server.name: standing for standing in found})


def read_pool(cluster: Cluster, name: str) -> NodePool:
    """Raises: BadInput if there is none of that name."""
    return decode(NodePool, read_pool_body(cluster, name))


def read_pool_body(cluster: Cluster, name: str) -> dict[str, Any]:
    """The same as JSON."""
    bare = name.partition("/")[2] if name.partition("/")[0] in ("nodepool", "nodepools", "np") else name
    try:
        with needing(VIEWER):
            return cluster.get(of(NodePool), bare)
    except (NotFound, ValueError) as error:
        raise BadInput(f"there is no NodePool {bare}", hint="kubectl get nodepools") from error


def find_image(cluster: Cluster, name: str) -> Image | None:
    return find_named(cluster, Image, name)


def needing(role: str) -> AbstractContextManager[None]:
    """Around reads that `role` allows. Raises: Refused that names it."""
    return hinting_at(
        f"an administrator gives you the ClusterRole {role}: "
        f"kubectl create clusterrolebinding NAME --clusterrole={role} --user=YOU"
    )
