"""Which NodePool counts for whom, while a server moves from `old` to `new`."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.api.machinery.codec import encode
from provisioner.api.nodes.maintenance import MaintenancePhase
from provisioner.api.servers.server_status import BootOrder, ServerStatus
from provisioner.rules.pool_of_server import (
    booting_pool,
    current_pool_in,
    current_pool_name,
    next_pool_name,
    ordered_pool_in,
    ordered_pool_name,
    pools_in,
)
from tests.boot.objects import at, attempt, maintenance, server

OLD_BOOT: dict[str, Any] = {"node_pool_ref": "old", "assigned_node_pool_ref": "old"}


def order(pool: str | None) -> BootOrder:
    return BootOrder(id="o1", reason="Requested", ordered_time=at(100), attempt=1, node_pool_ref=pool)


def test_a_server_in_use_is_where_it_was_booted_for_whatever_is_wished() -> None:
    moving = server(node_pool_ref="new", status=ServerStatus(**OLD_BOOT))
    assert current_pool_name(moving) == current_pool_in(encode(moving)) == "old"
    assert next_pool_name(moving) == booting_pool(moving).name == "old"


@pytest.mark.parametrize("fields", [{}, {"order": order(None), "ready_time": at(200)}])
def test_one_that_was_never_said_to_be_anywhere_is_where_it_is_wished(fields: dict[str, Any]) -> None:
    new = server(node_pool_ref="new", status=ServerStatus(**fields))
    names = {current_pool_name(new), next_pool_name(new), ordered_pool_name(new), booting_pool(new).name}
    assert names == {"new"}


@pytest.mark.parametrize(("phase", "found"), [("Rebooting", "new"), ("Verifying", "new"), ("Failed", "old")])
def test_a_maintenance_that_moves_it_counts_while_it_is_under_way(phase: MaintenancePhase, found: str) -> None:
    moving = server(node_pool_ref="new", status=ServerStatus(**OLD_BOOT))
    assert next_pool_name(moving, maintenance(phase=phase, reboot=attempt(node_pool_ref="new"))) == found


def test_from_the_order_on_it_joins_for_the_other_and_what_runs_is_still_the_old_ones() -> None:
    ordered = server(node_pool_ref="new", status=ServerStatus(**OLD_BOOT, order=order("new")))
    assert ordered_pool_name(ordered) == ordered_pool_in(encode(ordered)) == booting_pool(ordered).name == "new"
    assert current_pool_name(ordered) == "old", "its jobs, until the boot has joined"
    assert pools_in(encode(ordered)) == {"old", "new"}


def test_one_that_is_taken_out_of_all_pools_is_in_none() -> None:
    out = server(node_pool_ref=None, status=ServerStatus(**OLD_BOOT, order=order("old")))
    assert {current_pool_name(out), next_pool_name(out), ordered_pool_name(out), current_pool_in(encode(out))} == {None}
