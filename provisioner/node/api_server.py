"""One object of the API server, read, watched and written with the kubelet's certificate: the node's own Node.

The Node authorizer lets a kubelet see and annotate its own Node, and nothing else of what is asked for here. What else
a machine may follow is one object of its own name, too.
"""

from __future__ import annotations

import http.client
import json
import re
import socket
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from provisioner.node.http.post import split_url
from provisioner.node.join_files import KUBELET_FOLDER

MAX_OBJECT_BYTES = 4 << 20
"""A Node lists its images and can be large, but never larger than what etcd takes (1.5 MiB), escaped."""
CONNECT_SECONDS = 15.0
_SILENT_SECONDS = 120.0
"""Bookmarks come every minute: a watch that says nothing for longer is dead."""


class NotJoinedError(Exception):
    """The kubelet has no certificate (yet), or its files are not what it writes."""


class ApiError(OSError):
    """The API server answered with an error. `status`: HTTP's; 410 says that a watch must begin anew.

    object_is_gone: it said that there is no object of the name; a 404 may also say that its kind is not known (yet).
    """

    def __init__(self, status: int, message: str, *, object_is_gone: bool = False) -> None:
        super().__init__(f"HTTP {status}: {message}")
        self.status = status
        self.object_is_gone = object_is_gone


class ApiServerAccess(NamedTuple):
    """Where the API server is and who we are to it."""

    host: str
    port: int
    node: str
    ca_file: str
    key_file: str


def read_access(root: str) -> ApiServerAccess:
    """From the kubelet's files below `root`. Raises: NotJoinedError."""
    folder = Path(root + KUBELET_FOLDER)
    try:
        kubeconfig = (folder / "kubeconfig").read_text(encoding="utf-8")
        arguments = (folder / "kubelet.env").read_text(encoding="utf-8")
    except OSError as error:
        raise NotJoinedError(f"the kubelet has not joined yet: {error}") from error
    url = re.search(r"""["']?server["']?:\s*["']?(https://[^\s"',}]+)""", kubeconfig)
    name = re.search(r"--hostname-override=([a-z0-9.-]+)", arguments)
    key_file = folder / "pki/kubelet-client-current.pem"
    if url is None or name is None or not key_file.exists():
        raise NotJoinedError(f"{folder} has no API server, node name or certificate in it")
    _, host, port, _ = split_url(url[1])
    return ApiServerAccess(host=host, port=port, node=name[1], ca_file=str(folder / "ca.crt"), key_file=str(key_file))


class OwnObject:
    """An object. Each call makes a connection of its own, with the certificate as it is then: the kubelet rotates it.

    `collection`: path of its kind, such as /api/v1/nodes.
    """

    def __init__(self, access: ApiServerAccess, collection: str, name: str) -> None:
        self._access = access
        self._collection = collection
        self._name = name

    def read(self) -> dict[str, Any]:
        """The object. Raises: OSError (ApiError among them)."""
        return self._exchange("GET", "", None, "")

    def patch(
        self, change: Mapping[str, Any], *, subresource: str = "", kind: str = "merge-patch", query: str = ""
    ) -> dict[str, Any]:
        """Change it; `kind`: of patch. Returns: the object. Raises: OSError."""
        below = (f"/{subresource}" if subresource else "") + query
        return self._exchange("PATCH", below, json.dumps(change).encode(), f"application/{kind}+json")

    def watch(self, resource_version: str, seconds: int) -> Iterator[dict[str, Any]]:
        """The object each time that it changes after `resource_version`, for `seconds`.

        Raises: OSError; ApiError that says that the object is gone once it is deleted: who asks anew may not see that,
        as the right to read it may have gone with it.
        """
        query = (
            f"?watch=true&allowWatchBookmarks=true&fieldSelector=metadata.name%3D{self._name}"
            f"&resourceVersion={resource_version}&timeoutSeconds={seconds}"
        )
        connection = self._connect(_SILENT_SECONDS)
        try:
            answer = self._ask(connection, "GET", self._collection + query, None, "")
            while line := answer.readline(MAX_OBJECT_BYTES + 1):
                event = _object(line)
                if event.get("type") == "ERROR":
                    status = event.get("object") or {}
                    raise ApiError(int(status.get("code") or 500), str(status.get("message"))[:300])
                if event.get("type") == "DELETED":
                    raise ApiError(404, f"{self._name} was deleted", object_is_gone=True)
                if event.get("type") in ("ADDED", "MODIFIED"):
                    yield event["object"]
        except (ValueError, KeyError, http.client.HTTPException) as error:
            raise ApiError(502, f"the watch is not one of Kubernetes ({type(error).__name__}: {error})") from error
        finally:
            connection.close()

    def _exchange(self, method: str, below: str, body: bytes | None, content_type: str) -> dict[str, Any]:
        path = f"{self._collection}/{self._name}{below}"
        connection = self._connect(CONNECT_SECONDS)
        try:
            return _object(self._ask(connection, method, path, body, content_type).read(MAX_OBJECT_BYTES + 1))
        except (ValueError, http.client.HTTPException) as error:
            raise ApiError(502, f"the answer is not Kubernetes' ({type(error).__name__}: {error})") from error
        finally:
            connection.close()

    def _connect(self, timeout_seconds: float) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cafile=self._access.ca_file)
        context.load_cert_chain(self._access.key_file)
        connection = http.client.HTTPSConnection(
            self._access.host, self._access.port, timeout=CONNECT_SECONDS, context=context
        )
        connection.connect()
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.sock.settimeout(timeout_seconds)
        return connection

    def _ask(
        self, connection: http.client.HTTPSConnection, method: str, path: str, body: bytes | None, content_type: str
    ) -> http.client.HTTPResponse:
        headers = {"User-Agent": "provisioner-node", "Accept": "application/json"}
        if content_type:
            headers["Content-Type"] = content_type
        connection.request(method, path, body=body, headers=headers)
        answer = connection.getresponse()
        if answer.status != 200:
            body = answer.read(4096)
            words = body.decode(errors="replace").strip()[:300]
            raise ApiError(answer.status, words, object_is_gone=answer.status == 404 and self._is_named_in(body))
        return answer

    def _is_named_in(self, body: bytes) -> bool:
        """Whether a Status of Kubernetes is about this object."""
        try:
            details = _object(body).get("details")
        except ValueError:
            return False
        return isinstance(details, dict) and details.get("name") == self._name


class OwnNode(OwnObject):
    """The Node of this machine."""

    def __init__(self, access: ApiServerAccess) -> None:
        super().__init__(access, "/api/v1/nodes", access.node)

    def annotate(self, annotations: Mapping[str, str | None]) -> dict[str, Any]:
        """Set annotations (None removes one), and leave all else as it is. Raises: OSError."""
        return self.patch({"metadata": {"annotations": dict(annotations)}})

    def tell_not_ready(self, message: str, now: str) -> dict[str, Any]:
        """Set condition Ready to False with reason Rebooting. `now`: RFC 3339. Raises: OSError."""
        ready = {"type": "Ready", "status": "False", "reason": "Rebooting", "message": message}
        ready |= {"lastHeartbeatTime": now, "lastTransitionTime": now}
        return self.patch({"status": {"conditions": [ready]}}, subresource="status", kind="strategic-merge-patch")


def _object(raw: bytes) -> dict[str, Any]:
    if len(raw) > MAX_OBJECT_BYTES:
        raise ValueError(f"longer than {MAX_OBJECT_BYTES} bytes")
    value = json.loads(raw)
    if not isinstance(value, dict):
        raise ValueError("no object")
    return value
