"""A person's request as an entry of a Maintenance: into one that can still take it, or into a new one.

Server-side apply both makes a Maintenance and merges into one, so two people who ask at the same time meet in the same
one. Each entry is owned by a field manager of its own, and is withdrawn by applying without it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from provisioner.api import Maintenance
from provisioner.api.machinery.codec import decode, to_json
from provisioner.api.machinery.errors import Forbidden, Refused, Retryable
from provisioner.api.machinery.schema import API_VERSION
from provisioner.api.nodes.maintenance import Requestor
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import of
from provisioner.rules.filing import NUMBERS_TRIED, NoNameLeft, is_of_another
from provisioner.rules.requests import is_active, is_open, place

ATTEMPTS: Final = 5
_NAME_LENGTH: Final = 63


@dataclass(frozen=True, kw_only=True)
class Filed:
    """Where a request is now. joined: others had asked for something of the same server before."""

    server: str
    maintenance: Maintenance
    requestor: Requestor
    joined: bool


def requestor_name(user: str) -> str:
    """`user-alice`. What is no part of an object's name is replaced, and a digest then tells two users apart."""
    plain = re.sub(r"[^a-z0-9-]+", "-", user.lower()).strip("-")
    if plain == user and len(user) <= _NAME_LENGTH - len("user-"):
        return f"user-{user}"
    digest = hashlib.sha256(user.encode()).hexdigest()[:8]
    return f"user-{plain[: _NAME_LENGTH - len('user-') - 9].strip('-')}-{digest}".replace("user--", "user-")


def file_request(cluster: Cluster, server: str, wanted: Requestor, *, dry_run: bool = False) -> Filed:
    """Write the request. Raises: Refused; NoNameLeft; Retryable if the server's Maintenances begin first every time."""
    begun, taken = 0, list[str]()
    while begun < ATTEMPTS and len(taken) < NUMBERS_TRIED:
        known = read_maintenances(cluster, server)
        placed, names = place(known, server, wanted, taken), [m.name for m in known]
        name, entry = placed.name, placed.entry
        try:
            applied = _apply(cluster, name, server, (entry,), manager_of=entry.name, dry_run=dry_run)
        except Refused as refused:  # a Maintenance keeps its server
            if isinstance(refused, Forbidden) or name in names or not is_of_another(cluster, name, server):
                raise
            taken.append(name)
            continue
        written = decode(Maintenance, applied)
        if dry_run or is_open(written):
            for before in placed.misplaced:  # last, so that the request is lost nowhere on the way
                withdraw(cluster, before, entry.name, dry_run=dry_run)
            return Filed(server=server, maintenance=written, requestor=entry, joined=placed.joined)
        # It ended, or began to reboot, between the look and the write: the request belongs behind it.
        withdraw(cluster, written, entry.name)
        begun += 1
    if begun < ATTEMPTS:
        raise NoNameLeft(server)
    raise Retryable(f"Maintenances of {server} begin faster than a request reaches them")


def withdraw(cluster: Cluster, maintenance: Maintenance, requestor: str, *, dry_run: bool = False) -> Maintenance:
    """Take that requestor's entry out. Raises: Conflict if the Maintenance is gone."""
    server = maintenance.spec.server_ref
    uid = maintenance.metadata.uid
    left = _apply(cluster, maintenance.name, server, (), manager_of=requestor, dry_run=dry_run, uid=uid)
    written = decode(Maintenance, left)
    if any(r.name == requestor for r in written.spec.requestors):
        # It was written in another way (kubectl create, edit): then nobody gives it up by an apply.
        others = [to_json(r) for r in written.spec.requestors if r.name != requestor]
        patch = {"metadata": {"resourceVersion": written.metadata.resource_version}, "spec": {"requestors": others}}
        if not dry_run:
            written = decode(Maintenance, cluster.patch(of(Maintenance), maintenance.name, patch))
    return written


def own_entries(maintenances: Iterable[Maintenance], user: str) -> list[tuple[Maintenance, Requestor]]:
    """Entries of `user` in Maintenances that have not ended."""
    name = requestor_name(user)
    return [
        (m, r)
        for m in maintenances
        if is_active(m)
        for r in m.spec.requestors
        if r.name == name and r.user in (user, None)
    ]


def read_maintenances(cluster: Cluster, server: str) -> list[Maintenance]:
    """Those of a server, as they are now."""
    return [
        decode(Maintenance, m) for m in cluster.list(of(Maintenance), field_selector=f"spec.serverRef={server}").items
    ]


def _apply(
    cluster: Cluster,
    name: str,
    server: str,
    entries: tuple[Requestor, ...],
    *,
    manager_of: str,
    dry_run: bool = False,
    uid: str | None = None,
) -> Mapping[str, Any]:
    spec: dict[str, Any] = {"serverRef": server}
    if entries:
        spec["requestors"] = [to_json(entry) for entry in entries]
    # With the uid an apply changes this object or none: it makes no new one of that name.
    metadata = {"name": name} | ({"uid": uid} if uid else {})
    body = {"apiVersion": API_VERSION, "kind": "Maintenance", "metadata": metadata, "spec": spec}
    return cluster.apply(body, manager=f"provisioner-requestor-{manager_of}", dry_run=dry_run)
