"""What shows that a Node lives, as a table."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from provisioner.api.meta import rfc3339_micro
from provisioner.power.node_life import LEASE_FRESH, sign_of_life

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SOON = timedelta(milliseconds=1)


def node(ready: str | None, boot_id: str | None) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": ready}] if ready else []
    return {"status": {"conditions": conditions, "nodeInfo": {"bootID": boot_id or ""}}}


def lease(age: timedelta) -> dict[str, Any]:
    return {"spec": {"renewTime": rfc3339_micro(NOW - age)}}


@pytest.mark.parametrize(
    ("found", "renewed", "joined", "said"),
    [
        (node("True", "B1"), None, "b1", "it is Ready in the boot that joined (b1)"),
        (node("True", "b2"), None, "b1", None),
        (node("True", "b2"), None, None, None),
        (node("False", "b1"), None, "b1", None),
        (node("Unknown", "b1"), LEASE_FRESH - SOON, "b2", "its kubelet renewed its Lease less than 25 s ago"),
        (node("Unknown", "b1"), LEASE_FRESH, "b1", None),
        (node("True", None), LEASE_FRESH - SOON, "b1", "its kubelet renewed its Lease less than 25 s ago"),
        (node(None, None), LEASE_FRESH - SOON, "b1", None),
        (node("Unknown", None), LEASE_FRESH - SOON, "b1", None),
        ({}, None, None, None),
    ],
)
def test_the_sign_of_life(
    found: dict[str, Any], renewed: timedelta | None, joined: str | None, said: str | None
) -> None:
    assert sign_of_life(found, lease(renewed) if renewed is not None else None, joined, NOW) == said
