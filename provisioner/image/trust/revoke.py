"""One line more in the ConfigMap of whom the cluster believes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from provisioner.api.machinery.errors import Conflict
from provisioner.api.machinery.values import Sha256Digest
from provisioner.cluster.resources import CONFIG_MAPS, SYSTEM, ResourceType
from provisioner.image.trust.document import NAME, REVOKED, add_revoked, parse_trust

_ATTEMPTS = 5


class ConfigMaps(Protocol):
    """What revoking needs of `provisioner.cluster.client.Cluster`."""

    def find(self, type: ResourceType, name: str, *, namespace: str | None = None) -> Any: ...  # noqa: A002
    def create(
        self,
        type: ResourceType,  # noqa: A002
        body: Mapping[str, Any],
        *,
        namespace: str | None = None,
    ) -> Any: ...
    def replace(self, type: ResourceType, body: Mapping[str, Any]) -> Any: ...  # noqa: A002


def revoke_digest(cluster: ConfigMaps, digest: Sha256Digest, reason: str) -> bool:
    """Whether it was not revoked before. Keys and other lines stay, also those that somebody writes meanwhile.

    Raises: Refused for a reason that is no line, or a ConfigMap that cannot be read: nothing is written then; Conflict
    after five attempts.
    """
    for attempt in range(_ATTEMPTS):
        found = cluster.find(CONFIG_MAPS, NAME, namespace=SYSTEM)
        data = dict((found or {}).get("data") or {})
        parse_trust(data)
        before = data.get(REVOKED, "")
        begun = before if not before or before.endswith("\n") else f"{before}\n"  # as an editor may have left it
        after = add_revoked(begun, digest, reason)
        if after == begun:
            return False
        try:
            _write(cluster, found, {**data, REVOKED: after})
            return True
        except Conflict:
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("each attempt returns or raises")


def _write(cluster: ConfigMaps, found: Mapping[str, Any] | None, data: Mapping[str, str]) -> None:
    if found is None:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME, "namespace": SYSTEM}, "data": data}
        cluster.create(CONFIG_MAPS, body, namespace=SYSTEM)
    else:
        cluster.replace(CONFIG_MAPS, {**found, "data": data})  # under the resourceVersion that was read
