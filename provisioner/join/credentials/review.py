"""What the authorization webhook answers: a Node's request by a certificate that is not on the list is denied. Pure.

It never allows anything: who is not denied is for the authorizers after it. Nor does it deny on a list that may be old:
certificates that were issued since would be shut out, and with them all Nodes. What is left then is the policy, for
which the API server needs nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from provisioner.cluster.resources import ACCESS_REVIEWS, CREDENTIALS
from provisioner.cluster.source import Object, Source
from provisioner.join.certificates.approve import NODE_GROUP, NODE_USER_PREFIX
from provisioner.join.certificates.request import CREDENTIAL_EXTRA
from provisioner.join.credentials.listed import ListedServer, read_entries, shard_of

FRESH_SECONDS: Final = 120.0
"""So old may the copy of the list be: a watch that lives says something twice in that time."""


class MalformedReview(ValueError):
    """What was sent is no review; the words say what was expected."""


@dataclass(frozen=True, kw_only=True)
class Requester:
    """Who asks, of a SubjectAccessReview; what for does not matter. credential: None for none, or several."""

    user: str
    groups: tuple[str, ...]
    credential: str | None


@dataclass(frozen=True)
class CredentialDenied:
    """The words are for the log of the API server, and for who asked."""

    reason: str


@dataclass(frozen=True)
class NoOpinion:
    """Whoever comes next decides."""

    reason: str


Opinion = CredentialDenied | NoOpinion


class CredentialList:
    """The list as a cache of its Roles shows it. `heard_seconds`: how long ago the API server last said anything."""

    def __init__(self, roles: Source, heard_seconds: Callable[[], float]) -> None:
        self._roles = roles
        self._heard_seconds = heard_seconds
        self._shards = roles.index(lambda role: [role["metadata"]["name"]])

    def find(self, server: str) -> ListedServer | None:
        """What it says of that server; None: its certificates are not held to it."""
        return self._shards.summary(shard_of(server), _entries).get(server)

    def why_not_fresh(self) -> str | None:
        """Why nothing may be denied by it; None if it is as it should be."""
        if not self._roles.has_synced:
            return f"the Roles of namespace {CREDENTIALS} have not been read yet"
        age = self._heard_seconds()
        if age > FRESH_SECONDS:
            return f"the Roles of namespace {CREDENTIALS} were last heard of {age:.0f} s ago"
        return None


def _entries(roles: list[Object]) -> Mapping[str, ListedServer]:
    return {name: entry for role in roles for name, entry in read_entries(role).items()}


def read_review(body: object) -> Requester:
    """Of the JSON that the API server sends. Raises: MalformedReview, in words that say what was expected."""
    kind = (ACCESS_REVIEWS.api_version, ACCESS_REVIEWS.kind)
    if not isinstance(body, Mapping) or (body.get("apiVersion"), body.get("kind")) != kind:
        raise MalformedReview(f"the request is no SubjectAccessReview of {ACCESS_REVIEWS.api_version}")
    spec = body.get("spec")
    if not isinstance(spec, Mapping):
        raise MalformedReview("the SubjectAccessReview has no spec")
    user, groups, extra = spec.get("user", ""), spec.get("groups") or [], spec.get("extra") or {}
    if not isinstance(user, str) or not _are_words(groups) or not isinstance(extra, Mapping):
        raise MalformedReview("user, groups and extra of the SubjectAccessReview are not text, a list and a map")
    credentials = extra.get(CREDENTIAL_EXTRA) or []
    if not _are_words(credentials):
        raise MalformedReview(f"extra {CREDENTIAL_EXTRA} of the SubjectAccessReview is no list of text")
    return Requester(user=user, groups=tuple(groups), credential=credentials[0] if len(credentials) == 1 else None)


def judge(asked: Requester, listed: CredentialList) -> Opinion:
    """The opinion on a request, whatever it asks for."""
    server = asked.user.removeprefix(NODE_USER_PREFIX)
    if server == asked.user or NODE_GROUP not in asked.groups:
        return NoOpinion("not asked by a Node")
    stale = listed.why_not_fresh()
    if stale is not None:
        return NoOpinion(stale)
    entry = listed.find(server)
    if entry is None:
        return NoOpinion(f"Node {server} is not held to the list of credentials")
    if asked.credential in entry.credentials:
        return NoOpinion("a credential of the current boot")
    return CredentialDenied(f"credential {asked.credential or 'none'} is none of the current boot of server {server}")


def answer_of(opinion: Opinion) -> dict[str, Any]:
    """The SubjectAccessReview that says so."""
    status = {"allowed": False, "denied": isinstance(opinion, CredentialDenied), "reason": opinion.reason}
    return {"apiVersion": ACCESS_REVIEWS.api_version, "kind": ACCESS_REVIEWS.kind, "status": status}


def _are_words(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)
