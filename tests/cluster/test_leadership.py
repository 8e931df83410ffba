"""Whether controllers lead, by their Leases."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from provisioner.api.machinery.meta import rfc3339_micro
from provisioner.cluster.leadership import OF_ALL, SERVER_GROUPS, find_no_leader

NOON = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)


def lease(name: str, seconds_ago: float | None, holder: str = "host-1") -> dict[str, Any]:
    renewed = {} if seconds_ago is None else {"renewTime": rfc3339_micro(NOON - timedelta(seconds=seconds_ago))}
    return {"metadata": {"name": name}, "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, **renewed}}


def each_but(*missing: str) -> list[dict[str, Any]]:
    return [lease(f"provisioner-{group}", 3) for group in SERVER_GROUPS if group not in missing]


@pytest.mark.parametrize(
    ("leases", "words"),
    [
        ([lease(OF_ALL, 3)], None),
        ([lease(OF_ALL, 30, holder="")], None),  # handed back: another takes it in a moment
        (each_but(), None),
        ([lease(OF_ALL, 900), *each_but()], None),
        ([], "no controller leads"),
        ([lease(OF_ALL, 900)], "no controller leads"),
        ([lease(OF_ALL, None)], "no controller leads"),
        ([lease("somebody-else", 3)], "no controller leads"),
        (each_but("power", "orders"), "no controller leads group orders, power"),
        ([*each_but("power"), lease("provisioner-power", 61)], "no controller leads group power"),
    ],
)
def test_who_leads_is_whoever_renewed_a_lease_lately(leases: list[dict[str, Any]], words: str | None) -> None:
    found = find_no_leader(leases, NOON)
    assert (found.words if found is not None else None) == words
