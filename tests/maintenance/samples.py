"""Typed Maintenances for the tests of pure decisions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from provisioner.api import Maintenance, ObjectMeta
from provisioner.api.machinery.meta import rfc3339
from provisioner.api.nodes.maintenance import MaintenanceSpec, MaintenanceStatus, Requestor

NOON = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)


def at(seconds: float) -> str:
    return rfc3339(NOON + timedelta(seconds=seconds))


def requestor(name: str = "user-alice", action: Any = "Reboot", **more: Any) -> Requestor:
    return Requestor(name=name, action=action, **more)


def maintenance(
    number: int = 1, *requestors: Requestor, server: str = "r01-u01", created: float = 0, **status: Any
) -> Maintenance:
    meta = ObjectMeta(name=f"{server}-{number}", uid=f"uid-{number}", creation_timestamp=at(created))
    return Maintenance(
        metadata=meta,
        spec=MaintenanceSpec(server_ref=server, requestors=requestors),
        status=MaintenanceStatus(**status),
    )
