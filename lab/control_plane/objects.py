"""The objects that a cluster must hold before this project works in it, created at every start of a lab."""

from __future__ import annotations

import http.client
import json
import ssl
from urllib.parse import urlsplit

from provisioner.api.machinery.errors import NeedsHuman
from provisioner.cli.service.control_plane import CLUSTER_OBJECTS


def apply_cluster_objects(server_url: str, tls: ssl.SSLContext) -> None:
    """Create what is missing; what exists is left as it is. Raises: NeedsHuman in the API server's words."""
    host = urlsplit(server_url)
    connection = http.client.HTTPSConnection(host.hostname or "", host.port, timeout=30, context=tls)
    try:
        for path, body in CLUSTER_OBJECTS:
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = response.read().decode(errors="replace")
            if response.status not in (http.HTTPStatus.CREATED, http.HTTPStatus.CONFLICT):
                name = f"{body['kind']} {body['metadata']['name']}"
                raise NeedsHuman(f"{name} not created: {response.status} {answer}", hint="see the API server's log")
    finally:
        connection.close()
