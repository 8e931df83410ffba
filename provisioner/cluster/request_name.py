"""What a request to the API server is called when it is counted: `patch`, `servers/status`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

VERBS: Final = ("get", "list", "watch", "create", "update", "patch", "apply", "delete")

_OF_METHOD: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class RequestObserver(Protocol):
    """Is told of each request when it is over."""

    def seen(self, verb: str, resource: str, status: int | None, seconds: float) -> None:
        """`status`: of HTTP; None if there was no answer."""


def verb_and_resource(
    method: str, path: str, query: Mapping[str, Any] | None = None, content_type: str | None = None
) -> tuple[str, str]:
    """What RBAC would call it: `patch`, `servers/status`. `apply` is told apart; of what is no object: `discovery`."""
    parts = path.strip("/").split("/")
    below = parts[{"api": 2, "apis": 3}.get(parts[0], len(parts)) :]
    if len(below) > 2 and below[0] == "namespaces":
        below = below[2:]
    resource = "/".join((below[0], *below[2:3])) if below else "discovery"
    if method == "GET":
        if query is not None and query.get("watch"):
            return "watch", resource
        return ("list" if len(below) == 1 else "get"), resource
    if content_type == "application/apply-patch+yaml":
        return "apply", resource
    return _OF_METHOD.get(method, "get"), resource
