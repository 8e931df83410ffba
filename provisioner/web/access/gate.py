"""Bearer tokens: the API server says whose they are (TokenReview), and whether that person may read what the pages show
(SubjectAccessReview). Both answers are kept for a moment, so that a page costs no request.

The pages are shown whole or not at all. What a viewer may list, the viewer may see here; nothing of a tenant's networks
is among it, so that it needs no other right.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from provisioner.api.machinery.errors import NeedsHuman, Retryable
from provisioner.api.machinery.schema import GROUP
from provisioner.cluster.client import Cluster
from provisioner.cluster.events import CLUSTER_SCOPED_NAMESPACE
from provisioner.cluster.resources import ACCESS_REVIEWS, TOKEN_REVIEWS
from provisioner.rules.rate import Rate, RequestLimit

SHOWN: Final[tuple[Mapping[str, str], ...]] = (
    {"group": GROUP, "resource": "servers"},
    {"group": GROUP, "resource": "racks"},
    {"group": GROUP, "resource": "nodepools"},
    {"group": GROUP, "resource": "images"},
    {"group": GROUP, "resource": "maintenances"},
    {"group": "", "resource": "nodes"},
    {"group": "", "resource": "events", "namespace": CLUSTER_SCOPED_NAMESPACE},
)
"""What the pages show, and so what a viewer must be allowed to list."""
ROLE: Final = "provisioner-viewer"
ADMITTED_SECONDS: Final = 60.0
"""For so long at most a token that was revoked, or a right that was taken away, still counts."""
REFUSED_SECONDS: Final = 10.0
ANSWERS: Final = 1024
REVIEW_SECONDS: Final = 5.0
REVIEWS_AT_ONCE: Final = 4
REVIEWS_PER_SECOND: Final = 10.0
REVIEWS_OF_A_SOURCE: Final = 50.0
"""Those of one address, which may be a proxy with all viewers behind it."""
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/=-]{8,8192}")


@dataclass(frozen=True)
class Viewer:
    """Who looks, by the name that the API server has."""

    name: str


class UnknownToken(NeedsHuman):
    """The API server does not know whose token that is."""


class NotAllowed(NeedsHuman):
    """It does, and that person may not read what the pages show."""


class Gate:
    """audience: whom tokens must be for; the API server if None. clock: monotonic. Usable from several threads."""

    def __init__(self, cluster: Cluster, audience: str | None, clock: Callable[[], float]) -> None:
        self._cluster = cluster.with_timeout(REVIEW_SECONDS)
        self._audience, self._clock = audience, clock
        self._lock = threading.Lock()
        self._answers: OrderedDict[bytes, tuple[float, Viewer | NeedsHuman]] = OrderedDict()
        self._reviews = threading.BoundedSemaphore(REVIEWS_AT_ONCE)
        self._sources = RequestLimit(Rate(REVIEWS_PER_SECOND, REVIEWS_OF_A_SOURCE), max_clients=4 * ANSWERS)

    def admit(self, token: str, source: str) -> Viewer:
        """source: address of who asks; each may have so many tokens looked at.

        Raises: UnknownToken, NotAllowed, Retryable.
        """
        if not _TOKEN.fullmatch(token):
            raise UnknownToken("that is no bearer token", hint="kubectl create token prints one")
        digest = hashlib.sha256(token.encode()).digest()
        answer = self._known(digest)
        if answer is None:
            answer = self._ask(digest, token, source)
        if isinstance(answer, NeedsHuman):
            raise answer
        return answer

    def _known(self, digest: bytes) -> Viewer | NeedsHuman | None:
        with self._lock:
            until, answer = self._answers.get(digest, (0.0, None))
            return answer if self._clock() < until else None

    def _was_admitted(self, digest: bytes) -> bool:
        with self._lock:
            return isinstance(self._answers.get(digest, (0.0, None))[1], Viewer)

    def _ask(self, digest: bytes, token: str, source: str) -> Viewer | NeedsHuman:
        # Whom it knows already is asked about whatever others send from that address, which may be a proxy's: so that
        # nobody shuts viewers out, or keeps a right that was taken away, by sending tokens of nobody.
        if not self._was_admitted(digest) and (limited := self._sources.take(source, self._clock())):
            raise Retryable("too many tokens were sent from this address", after_seconds=limited.wait_seconds)
        if not self._reviews.acquire(timeout=REVIEW_SECONDS):
            raise Retryable("the API server is asked about other tokens")
        answer: Viewer | NeedsHuman
        try:
            answer = self._review(token)
        except (UnknownToken, NotAllowed) as error:
            answer = error
        finally:
            self._reviews.release()
        seconds = ADMITTED_SECONDS if isinstance(answer, Viewer) else REFUSED_SECONDS
        with self._lock:
            self._answers[digest] = (self._clock() + seconds, answer)
            self._answers.move_to_end(digest)
            while len(self._answers) > ANSWERS:
                self._answers.popitem(last=False)
        return answer

    def _review(self, token: str) -> Viewer:
        spec: dict[str, Any] = {"token": token} | ({"audiences": [self._audience]} if self._audience else {})
        body = {"apiVersion": TOKEN_REVIEWS.api_version, "kind": TOKEN_REVIEWS.kind, "metadata": {}, "spec": spec}
        status = self._cluster.create(TOKEN_REVIEWS, body).get("status") or {}
        # An authenticator that knows no audiences names none, and then the token may be for anybody.
        is_meant = self._audience is None or self._audience in (status.get("audiences") or ())
        if not status.get("authenticated") or not is_meant:
            raise UnknownToken("the API server does not know this token, or it is over", hint="get another one")
        user = status["user"]
        if missing := [shown for shown in SHOWN if not self._may_list(user, shown)]:
            named = ", ".join(shown["resource"] for shown in missing)
            raise NotAllowed(
                f"{user['username']} may not list {named}",
                hint=f"an administrator may give you the ClusterRole {ROLE}: kubectl create clusterrolebinding NAME "
                f"--clusterrole={ROLE} --user={user['username']}",
            )
        return Viewer(user["username"])

    def _may_list(self, user: Mapping[str, Any], shown: Mapping[str, str]) -> bool:
        spec = {
            "user": user["username"],
            "uid": user.get("uid") or "",
            "groups": user.get("groups") or [],
            "extra": user.get("extra") or {},
            "resourceAttributes": {"verb": "list", **shown},
        }
        body = {"apiVersion": ACCESS_REVIEWS.api_version, "kind": ACCESS_REVIEWS.kind, "metadata": {}, "spec": spec}
        return bool((self._cluster.create(ACCESS_REVIEWS, body).get("status") or {}).get("allowed"))
