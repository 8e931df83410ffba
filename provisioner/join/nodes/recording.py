"""How this package speaks of a Server in Events."""

from __future__ import annotations

from typing import Any

from provisioner.api.servers.server import Server
from provisioner.cluster.resources import of


def regarding_server(server: Server) -> dict[str, Any]:
    """The Server as Events refer to it."""
    type_ = of(Server)
    return {
        "apiVersion": type_.api_version,
        "kind": type_.kind,
        "metadata": {"name": server.name, "uid": server.metadata.uid},
    }
