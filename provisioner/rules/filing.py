"""How a new Maintenance is filed: its name is the lock of its server's next one.

Administrators may give a name like that to the Maintenance of another server (cli/data/requests.yaml). It is skipped.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Protocol

from provisioner.api import Maintenance
from provisioner.api.machinery.codec import to_json
from provisioner.api.machinery.errors import Conflict, NeedsHuman
from provisioner.api.machinery.schema import API_VERSION
from provisioner.api.nodes.maintenance import RELEASE_FINALIZER, Requestor
from provisioner.cluster.resources import ResourceType, of
from provisioner.rules.requests import next_name

NUMBERS_TRIED: Final = 16
"""How many taken names are skipped before filing fails."""


class NoNameLeft(NeedsHuman):
    """The next names of a server belong to Maintenances of other servers."""

    def __init__(self, server: str) -> None:
        words = (
            f"the next {NUMBERS_TRIED} names for a Maintenance of Server '{server}' belong to Maintenances of others"
        )
        super().__init__(words, hint=f"delete those: kubectl get maintenances | grep '^{server}-'")


class Maintenances(Protocol):
    """What filing needs of `provisioner.cluster.client.Cluster`."""

    def create(self, type: ResourceType, body: dict[str, Any], *, manager: str | None = None) -> dict[str, Any]: ...  # noqa: A002

    def find(self, type: ResourceType, name: str) -> dict[str, Any] | None: ...  # noqa: A002


def file_maintenance(
    cluster: Maintenances, server: str, requestor: Requestor, names: Iterable[str], *, manager: str | None = None
) -> dict[str, Any]:
    """A new Maintenance of `server`, asked for by `requestor`. `names`: those of the server's that are known.

    Raises: Conflict if somebody else made one of this server; NoNameLeft.
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
    raise NoNameLeft(server)


def is_of_another(cluster: Maintenances, name: str, server: str) -> bool:
    """Whether there is a Maintenance of that name, of a server other than `server`."""
    found = cluster.find(of(Maintenance), name)
    return found is not None and found["spec"]["serverRef"] != server
