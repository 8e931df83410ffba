"""What is from the past in a cluster that was restored from a snapshot, and what a person does about it. Pure.

It is looked at before the controllers run again: until then nobody acts on it. docs/backup.md has the order of it all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from provisioner.api import Maintenance, NodePool, Server
from provisioner.api.nodes.contract import MAINTENANCE_TAINT, VERIFICATION_TAINT
from provisioner.api.nodes.maintenance import FINAL_PHASES
from provisioner.cluster.source import conditions_of
from provisioner.join.certificates.request import read_request
from provisioner.join.tokens.mint import SERVER_LABEL
from provisioner.rules.boot_order import is_settled
from provisioner.rules.liveness import renewed_time
from provisioner.rules.nodes import NodeView

UNHEARD: Final = timedelta(seconds=60)
"""A kubelet that lives has renewed its Lease within that time, and told of its boot."""
OLD_CERTIFICATE: Final = "OldCertificate"
"""Reason with which the approver denies a renewal by a certificate that it has no record of."""

Body = Mapping[str, Any]


@dataclass(frozen=True)
class Past:
    """What the cluster has. `leases`: of kubelets, by name of the Node. `tokens`: bootstrap tokens of servers, by their
    metadata alone."""

    servers: Iterable[Server]
    pools: Iterable[NodePool]
    maintenances: Iterable[Maintenance]
    nodes: Mapping[str, Body]
    leases: Mapping[str, Body]
    tokens: Iterable[Body]
    requests: Iterable[Body]


@dataclass(frozen=True)
class ReviewFinding:
    """One thing that several objects have in common. `lines`: one for each of them. `remedy`: commands and words."""

    title: str
    lines: tuple[str, ...]
    remedy: str


def review(past: Past, now: datetime) -> list[ReviewFinding]:
    """What to see to, in the order in which it is done. Nothing where the snapshot is as good as the present."""
    kinds = (
        (_tokens(past), "bootstrap tokens that are valid again", _DELETE_TOKENS),
        (
            _tainted(past),
            "Nodes that were on their way at the snapshot, and whose taint ends what runs on them",
            _UNTAINT,
        ),
        (_unheard(past, now), "Nodes that have not been heard since", _WAIT),
        (_missing(past), "servers that are to be on and have no Node: each is booted anew", _MISSING),
        (_booted_since(past, now), "Nodes that run another boot than is on record", _REBOOT),
        (_denied(past), "Nodes whose certificate is not on record, and was not renewed", _TRUST),
        (_ordered(past), "boots that were under way at the snapshot", _ORDERED),
        (_open(past), "Maintenances that had not ended at the snapshot", _CANCEL),
        (_rolling(past), "rollouts that were under way at the snapshot", _PAUSE),
    )
    return [ReviewFinding(title, found, remedy) for lines, title, remedy in kinds if (found := tuple(lines))]


_DELETE_TOKENS: Final = f"kubectl -n kube-system delete secret -l {SERVER_LABEL}"
_UNTAINT: Final = (
    f"of those that were in use since: kubectl taint node NODE {VERIFICATION_TAINT}- {MAINTENANCE_TAINT}-; "
    "before kube-controller-manager runs"
)
_WAIT: Final = "wait a minute and look again; one that stays away is booted anew once the controllers run"
_MISSING: Final = (
    "one that joined since the snapshot: restart its kubelet, which makes its Node anew, or let it boot; to keep it as "
    'it is: kubectl patch server SERVER --type=merge -p \'{"spec":{"acceptance":"Pending"}}\''
)
_REBOOT: Final = (
    "their certificates are renewed only after another boot, or after `provisioner restore trust`: "
    "kubectl provision reboot NODE -m 'after a restoration', which waits for its jobs"
)
_TRUST: Final = "provisioner restore trust NODE: what runs there keeps its certificate; or reboot it"
_ORDERED: Final = "nothing, where its Node is Ready now: a Node that lives is not booted"
_CANCEL: Final = "kubectl provision why NODE; where it was done since: kubectl provision cancel NODE, or release NODE"
_PAUSE: Final = "kubectl provision rollout pause POOL; go on with resume once the rest is seen to"


def _tokens(past: Past) -> Iterator[str]:
    for token in past.tokens:
        server = (token["metadata"].get("labels") or {}).get(SERVER_LABEL)
        if server:
            yield f"{token['metadata']['name']} of server {server}"


def _tainted(past: Past) -> Iterator[str]:
    for name, node in sorted(past.nodes.items()):
        ours = [
            f"{taint['key']}:{taint.get('effect')}"
            for taint in NodeView(node).taints
            if taint.get("key") in (VERIFICATION_TAINT, MAINTENANCE_TAINT)
        ]
        if ours:
            yield f"{name}: {', '.join(ours)}"


def _unheard(past: Past, now: datetime) -> Iterator[str]:
    for server in past.servers:
        if server.name in past.nodes and not _is_heard(past, server.name, now):
            yield server.name


def _missing(past: Past) -> Iterator[str]:
    for server in past.servers:
        wanted = server.spec.acceptance == "Accepted" and server.spec.power_state == "On"
        node = past.nodes.get(server.name)
        if wanted and server.spec.node_pool_ref and (node is None or NodeView(node).boot_id is None):
            yield server.name


def _booted_since(past: Past, now: datetime) -> Iterator[str]:
    for server in past.servers:
        node = past.nodes.get(server.name)
        boot = NodeView(node).boot_id if node is not None else None
        if boot is None or server.status.order is None or not _is_heard(past, server.name, now):
            continue
        join = server.status.join
        known = {(server.status.boot_id or "").lower(), ((join.boot_id if join else None) or "").lower()}
        if boot not in known:
            yield f"{server.name}: runs {boot}, on record is {server.status.boot_id}"


def _denied(past: Past) -> Iterator[str]:
    for server, credential in denied_credentials(past.requests).items():
        yield f"{server}: {credential}"


def _ordered(past: Past) -> Iterator[str]:
    for server in past.servers:
        order = server.status.order
        if order is not None and not is_settled(server) and server.spec.acceptance == "Accepted":
            yield f"{server.name}: ordered at {order.ordered_time} ({order.reason})"


def _open(past: Past) -> Iterator[str]:
    for maintenance in past.maintenances:
        if maintenance.status.phase not in FINAL_PHASES:
            yield f"{maintenance.spec.server_ref}: {maintenance.name}, {maintenance.status.phase or 'new'}"


def _rolling(past: Past) -> Iterator[str]:
    for pool in past.pools:
        rollout = pool.status.rollout
        if rollout is not None and rollout.completed_time is None:
            yield f"{pool.name}: to {rollout.image_ref}, since {rollout.started_time}"


def denied_credentials(requests: Iterable[Body]) -> dict[str, str]:
    """By server, the certificate with which a renewal was asked for last, and denied as none is on record."""
    found: dict[str, tuple[str, str]] = {}
    for body in requests:
        if not any(each.get("reason") == OLD_CERTIFICATE for each in conditions_of(body, "Denied")):
            continue
        request = read_request(body)
        user, prefix, name = request.username.partition("system:node:")
        if request.credential and prefix and not user:
            made = str(body["metadata"].get("creationTimestamp") or "")
            found[name] = max(found.get(name, ("", "")), (made, request.credential))
    return {name: credential for name, (_, credential) in sorted(found.items())}


def _is_heard(past: Past, name: str, now: datetime) -> bool:
    renewed = renewed_time(past.leases.get(name))
    return renewed is not None and abs(now - renewed) <= UNHEARD
