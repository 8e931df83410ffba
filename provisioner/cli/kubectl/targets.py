"""Which servers a command is for: names, selectors, a pool, or all. Each is checked before anything is done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from provisioner.api import Server
from provisioner.api.machinery.codec import decode
from provisioner.api.machinery.errors import NotFound
from provisioner.cli.kubectl.failing import BadInput
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import NODES, of
from provisioner.rules.boot_order import is_settled
from provisioner.rules.bootability import find_unaccepted, find_without_pool
from provisioner.rules.pool_of_server import current_pool_name


@dataclass(frozen=True, kw_only=True)
class TargetSelection:
    """What the command line says: names, or one of the others."""

    names: tuple[str, ...] = ()
    selector: str | None = None
    pool: str | None = None
    everything: bool = False


def selection_of(options: dict[str, Any]) -> TargetSelection:
    """What the options of `target_options` say; they are taken out of `options`."""
    return TargetSelection(
        names=options.pop("nodes"),
        selector=options.pop("selector"),
        pool=options.pop("pool"),
        everything=options.pop("everything"),
    )


@dataclass(frozen=True, kw_only=True)
class ServerTarget:
    """A server and its Node, as they are now; a server that never joined, or whose Node was deleted, has no Node."""

    server: Server
    node: Mapping[str, Any] | None

    @property
    def name(self) -> str:
        return self.server.name


def find_targets(
    cluster: Cluster, wish: TargetSelection, *, for_requests: bool, boots: bool = False
) -> list[ServerTarget]:
    """The servers that are meant, by name; each once. Raises: BadInput with every one that cannot be meant.

    for_requests: whether something shall be done to them; to be looked at, a server needs no Node and no acceptance.
    boots: whether they shall boot anew, for which one that is named needs no Node if its Node was deleted.
    """
    _check(wish)
    if wish.names:
        found = [_read(cluster, name) for name in dict.fromkeys(_bare(name) for name in wish.names)]
        wrong = [words for _, words in found if words]
        targets = [target for target, _ in found if target is not None]
    else:
        targets, wrong = _select(cluster, wish, for_requests=for_requests), []
    if for_requests:
        wrong += [words for target in targets if (words := why_not(target, boots=boots))]
    if wrong:
        raise BadInput("; ".join(wrong), hint="kubectl provision status")
    return targets


def why_not(target: ServerTarget, *, boots: bool = False) -> str | None:
    """Why nothing can be asked of that server, in words; None if something can."""
    server = target.server
    obstacle = find_unaccepted(server) or (find_without_pool(server, None) if not server.spec.node_pool_ref else None)
    if obstacle is not None:
        return obstacle.words
    if target.node is None and is_settled(server):
        remedy = f"restart its kubelet, or have it booted anew: kubectl provision reboot {server.name}"
        return None if boots else f"the Node of Server {server.name} was deleted: {remedy}"
    if target.node is None:
        return f"Server {server.name} has no Node yet: kubectl provision why {server.name} says what its boot waits for"
    return None


def _check(wish: TargetSelection) -> None:
    others = [
        words for words, given in (("-l", wish.selector), ("--pool", wish.pool), ("--all", wish.everything)) if given
    ]
    if wish.names and others:
        raise BadInput(f"node names and {others[0]} were given", hint="name the nodes, or select them, not both")
    if wish.everything and len(others) > 1:
        raise BadInput(f"--all and {others[0]} were given", hint="leave --all out to select some")
    if not wish.names and not others:
        raise BadInput("no node was named", hint="name nodes, or select them by -l LABEL=VALUE, --pool NAME or --all")


def _bare(name: str) -> str:
    """kubectl's own spelling of one object: node/r01-u01."""
    kind, slash, rest = name.partition("/")
    return rest if slash and kind in ("node", "nodes", "server", "servers", "srv") else name


def _read(cluster: Cluster, name: str) -> tuple[ServerTarget | None, str | None]:
    node: Mapping[str, Any] | None
    try:
        node = cluster.get(NODES, name)
    except (NotFound, ValueError):
        node = None
    try:
        return ServerTarget(server=cluster.read(Server, name), node=node), None
    except (NotFound, ValueError):
        if node is None:
            return None, f"there is no Node and no Server {name}"
        return None, f"Node {name} is not of a Server of the provisioner, which therefore does nothing to it"


def _select(cluster: Cluster, wish: TargetSelection, *, for_requests: bool) -> list[ServerTarget]:
    nodes = {node["metadata"]["name"]: node for node in cluster.list(NODES, label_selector=wish.selector).items}
    servers = [decode(Server, body) for body in cluster.list(of(Server)).items]
    if wish.pool is not None:
        servers = [server for server in servers if current_pool_name(server) == wish.pool]
    if wish.selector is not None or for_requests:
        servers = [server for server in servers if server.name in nodes]
    if not servers and for_requests:
        where = " ".join(w for w in (wish.selector and f"-l {wish.selector}", wish.pool and f"--pool {wish.pool}") if w)
        hint = "kubectl get nodes --show-labels" if wish.selector else "kubectl provision status"
        raise BadInput(f"no node is selected by {where or '--all'}", hint=hint)
    targets = [ServerTarget(server=s, node=nodes.get(s.name)) for s in sorted(servers, key=lambda server: server.name)]
    # Whom nothing can be asked of was not named by anybody: a selection leaves it out.
    return [target for target in targets if why_not(target) is None] if for_requests else targets
