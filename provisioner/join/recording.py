"""How this package speaks of a Server in Events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from provisioner.api.server import Server
from provisioner.cluster.events import EventType
from provisioner.cluster.resources import of


class Recorder(Protocol):
    """Where Events go (provisioner.cluster.events.EventRecorder)."""

    def record(self, regarding: Mapping[str, Any], type: EventType, reason: str, message: str) -> None: ...  # noqa: A002


def regarding_server(server: Server) -> dict[str, Any]:
    """The Server as Events refer to it."""
    type_ = of(Server)
    return {
        "apiVersion": type_.api_version,
        "kind": type_.kind,
        "metadata": {"name": server.name, "uid": server.metadata.uid},
    }
