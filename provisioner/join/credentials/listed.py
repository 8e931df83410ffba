"""The list of the client certificates that count, as Roles of one namespace. Pure: Servers in, rules out.

Why Roles: a ValidatingAdmissionPolicy can look up no object of its own choice, but it can ask the API server's
authorizer, which has all Roles in memory. `pin` on a server's name says that the server's certificates are held to
the list, `use` on `<server>/<credential id>` that this one is on it. Nobody may do anything by these verbs.

A Role holds the servers of one shard: one write for whatever changed of them, and small at 10,000 servers.

    the server                                         on the list
    has had no certificate approved                    not at all: a name may be that of a Node that others run
    has joined, its certificate is not signed yet      without a certificate: those of earlier boots are out
    has joined                                         with those of status.join.credentials
    has been handed a token of its next boot           with those of the boot before, until that boot's is approved
    is Rejected                                        without a certificate
    was deleted                                        as it was last, for as long as a certificate may last
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from provisioner.api.machinery.meta import read_time, rfc3339
from provisioner.api.machinery.schema import GROUP
from provisioner.cluster.resources import CREDENTIALS, ROLE_BINDINGS, ROLES
from provisioner.join.certificates.approve import MAX_EXPIRATION_SECONDS, NODE_GROUP

RESOURCE: Final = "bootcredentials"
"""Of no kind: it is there to be asked for."""
PIN: Final = "pin"
USE: Final = "use"
SHARDS: Final = 64
REMOVED_ANNOTATION: Final = f"removed.{GROUP}/"
"""Of a Role, followed by the name of a Server that is gone: since when, RFC 3339."""
REMOVED_SECONDS: Final = MAX_EXPIRATION_SECONDS + 3600
"""So long the certificates of a Server that is gone are held to the list: the longest-lived one is over by then."""

_RBAC: Final = "rbac.authorization.k8s.io"


@dataclass(frozen=True, kw_only=True)
class ListedServer:
    """What the list says of one server. removed: since when there is no Server of that name, RFC 3339."""

    credentials: tuple[str, ...] = ()
    removed: str | None = None


def shard_of(server: str) -> str:
    """Name of the Role that holds the server of that name."""
    return _shard(hashlib.sha256(server.encode()).digest()[0] % SHARDS)


def _shard(number: int) -> str:
    return f"servers-{number:02x}"


ALL_SHARDS: Final = frozenset(_shard(number) for number in range(SHARDS))
"""Other Roles of the namespace give the accounts the right to read and write these."""


def entry_of(server: Mapping[str, Any]) -> ListedServer | None:
    """What the list is to say of a Server that is there; None: nothing, its certificates are not held to it.

    Of its JSON: one Server that cannot be read in all parts must not keep the others of its shard from the list.
    """
    join: Mapping[str, Any] = (server.get("status") or {}).get("join") or {}
    if not join.get("certificateTokenID"):
        return None
    rejected = server["spec"].get("acceptance") == "Rejected"
    return ListedServer() if rejected else ListedServer(credentials=tuple(join.get("credentials") or ()))


def read_entries(role: Mapping[str, Any] | None) -> dict[str, ListedServer]:
    """What a Role of the list says, by server; nothing where there is none."""
    if role is None:
        return {}
    names = {verb: _names(role, verb) for verb in (PIN, USE)}
    credentials: dict[str, list[str]] = {server: [] for server in names[PIN]}
    for name in names[USE]:
        server, _, credential = name.partition("/")
        credentials.setdefault(server, []).append(credential)
    annotations: Mapping[str, str] = role["metadata"].get("annotations") or {}
    return {
        server: ListedServer(credentials=tuple(found), removed=annotations.get(REMOVED_ANNOTATION + server))
        for server, found in credentials.items()
    }


def settle(
    before: Mapping[str, ListedServer], servers: Iterable[Mapping[str, Any]], now: datetime
) -> dict[str, ListedServer]:
    """What the list is to say of a shard. `before`: what it says; servers: all Servers of the shard, as JSON."""
    wanted: dict[str, ListedServer] = {}
    for server in servers:
        entry = entry_of(server)
        if entry is not None:
            wanted[server["metadata"]["name"]] = entry
    for name in before.keys() - wanted.keys():
        last = before[name]
        removed = last.removed or rfc3339(now)
        if _ends(removed, now) > now:
            wanted[name] = ListedServer(credentials=last.credentials, removed=removed)
    return wanted


def next_end(entries: Mapping[str, ListedServer], now: datetime) -> float | None:
    """In how many seconds the first of the removed ones may go; None without one."""
    ends = [_ends(entry.removed, now) for entry in entries.values() if entry.removed is not None]
    return max(1.0, (min(ends) - now).total_seconds()) if ends else None


def role_of(shard: str, entries: Mapping[str, ListedServer]) -> dict[str, Any]:
    """The Role that says so. A rule without names would be one of all names: what is empty has no rule."""
    names = {
        PIN: sorted(entries),
        USE: sorted({f"{name}/{each}" for name, entry in entries.items() for each in entry.credentials}),
    }
    annotations = {REMOVED_ANNOTATION + name: entry.removed for name, entry in entries.items() if entry.removed}
    return {
        "apiVersion": ROLES.api_version,
        "kind": ROLES.kind,
        "metadata": {"name": shard, "namespace": CREDENTIALS} | ({"annotations": annotations} if annotations else {}),
        "rules": [
            {"apiGroups": [GROUP], "resources": [RESOURCE], "verbs": [verb], "resourceNames": found}
            for verb, found in names.items()
            if found
        ],
    }


def binding_of(shard: str) -> dict[str, Any]:
    """What has the API server's authorizer look at the Role when a Node asks."""
    return {
        "apiVersion": ROLE_BINDINGS.api_version,
        "kind": ROLE_BINDINGS.kind,
        "metadata": {"name": shard, "namespace": CREDENTIALS},
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": shard},
        "subjects": [{"apiGroup": _RBAC, "kind": "Group", "name": NODE_GROUP}],
    }


def says_the_same(role: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether a Role is as it is wanted, annotations of others aside."""
    ours = [
        {key: value for key, value in (body["metadata"].get("annotations") or {}).items() if _is_ours(key)}
        for body in (role, wanted)
    ]
    return (role.get("rules") or []) == wanted["rules"] and ours[0] == ours[1]


def _is_ours(annotation: str) -> bool:
    return annotation.startswith(REMOVED_ANNOTATION)


def _names(role: Mapping[str, Any], verb: str) -> list[str]:
    return [
        name
        for rule in role.get("rules") or ()
        if rule.get("verbs") == [verb] and rule.get("resources") == [RESOURCE]
        for name in rule.get("resourceNames") or ()
    ]


def _ends(removed: str, now: datetime) -> datetime:
    """When it may go; for a time that nobody of ours has written, as if it were of now."""
    since = read_time(removed) or now
    return min(since, now) + timedelta(seconds=REMOVED_SECONDS)
