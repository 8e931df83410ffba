"""How a new Maintenance is filed: its name is the lock of its server's next one.

People may give a name like that to the Maintenance of another server. It is passed over.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Protocol

from provisioner.api import Maintenance
from provisioner.api.machinery.codec import to_json
from provisioner.api.machinery.errors import Conflict
from provisioner.api.machinery.schema import API_VERSION
from provisioner.api.nodes.maintenance import RELEASE_FINALIZER, Requestor
from provisioner.cluster.resources import ResourceType, of
from provisioner.rules.requests import next_name

NUMBERS_TRIED: Final = 16
"""Names that are passed over before nobody tries on."""


class Maintenances(Protocol):
    """What filing needs of `provisioner.cluster.client.Cluster`."""

    def create(self, type: ResourceType, body: dict[str, Any], *, manager: str | None = None) -> dict[str, Any]: ...  # noqa: A002

    def find(self, type: ResourceType, name: str) -> dict[str, Any] | None: ...  # noqa: A002


def file_maintenance(
    cluster: Maintenances, server: str, requestor: Requestor, names: Iterable[str], *, manager: str | None = None
) -> dict[str, Any]:
    """A new Maintenance of `server`, asked for by `requestor`. `names`: those of the server's that are known.

    Raises: Conflict if somebody else made one of this server, or sixteen names are taken.
    """
    taken = list(names)
    for _ in range(NUMBERS_TRIED):
        name = next_name(server, taken)
        body = {
            "apiVersion": API_VERSION,
            "kind": "Maintenance",
            "metadata": {"name": name, "finalizers": [RELEASE_FINALIZER]},
            "spec": {"serverRef": server, "requestors": [to_json(requestor)]},
        }
        try:
            return cluster.create(of(Maintenance), body, manager=manager)
        except Conflict:
            if not is_of_another(cluster, name, server):
                raise
            taken.append(name)
    raise no_name_left(server)


def is_of_another(cluster: Maintenances, name: str, server: str) -> bool:
    """Whether there is a Maintenance of that name, of a server other than `server`."""
    found = cluster.find(of(Maintenance), name)
    return found is not None and found["spec"]["serverRef"] != server


def no_name_left(server: str) -> Conflict:
    words = f"the next {NUMBERS_TRIED} names of Server '{server}' belong to others' Maintenances"
    return Conflict(words, after_seconds=1.0)
