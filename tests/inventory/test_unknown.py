"""Unknown machines that nobody touched are forgotten, each for itself."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from provisioner.api.machinery.errors import Forbidden
from provisioner.cluster.source import Snapshot
from provisioner.inventory.unknown import KEY, UnknownMachines

LATER = datetime(2030, 1, 1, tzinfo=UTC)


def unknown(name: str) -> dict[str, Any]:
    metadata = {"name": name, "uid": name, "resourceVersion": "1", "generation": 1}
    created = {"creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"metadata": metadata | created, "spec": {"acceptance": "Pending"}, "status": {}}


class FakeClusterThatRefusesOne:
    def __init__(self, refused: str) -> None:
        self._refused, self.deleted = refused, list[str]()

    def delete(self, _: object, name: str, **__: Any) -> bool:
        if name == self._refused:
            raise Forbidden(f"{name} is not to be deleted", hint="look at it")
        self.deleted.append(name)
        return True


def test_one_that_may_not_be_deleted_keeps_no_other_in_place() -> None:
    names = [f"unknown-{number}" for number in range(3)]
    cluster = FakeClusterThatRefusesOne("unknown-0")
    servers = Snapshot({name: unknown(name) for name in names})
    UnknownMachines(cluster, servers, clock=lambda: LATER).reconcile(KEY)  # type: ignore[arg-type]
    assert cluster.deleted == names[1:]
