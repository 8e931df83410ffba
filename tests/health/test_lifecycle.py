"""Where a server is: the table of provisioner.health.compose, row by row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest

from provisioner.api.nodes.contract import HOLD_REQUESTED, HOLD_TAINT, MAINTENANCE_TAINT, VERIFICATION_TAINT
from provisioner.api.servers.server import Discovery, Lifecycle, Server
from provisioner.health.compose import find_lifecycle
from provisioner.rules.nodes import NodeView
from tests.boot.objects import server
from tests.health.objects import OTHER_BOOT, booted, node, node_condition, situation

FREE = node(taints=())
HELD = node(None, node_condition(HOLD_REQUESTED), taints=({"key": HOLD_TAINT, "effect": "NoSchedule"},))


def spec(base: Server, **fields: Any) -> Server:
    return replace(base, spec=replace(base.spec, **fields))


def status(base: Server, **fields: Any) -> Server:
    return replace(base, status=replace(base.status, **fields))


def tainted(key: str, effect: str = "NoSchedule") -> NodeView:
    return node(taints=({"key": key, "effect": effect},))


ADOPTED = status(booted(), order=None, join=None)

ROWS: list[tuple[Lifecycle, Server, NodeView | None, bool, str | None]] = [
    ("Registered", server(acceptance="Pending"), None, False, None),
    ("Discovered", status(server(acceptance="Pending"), discovery=Discovery(address="10.0.0.1")), None, False, None),
    ("Discovered", server(acceptance="Pending", name="unknown-525400123456"), None, False, None),
    ("Retired", server(acceptance="Rejected"), FREE, True, "r01-u01-1"),
    ("Retired", spec(booted(), power_state="Off"), FREE, True, None),
    ("Maintenance", spec(booted(), power_state="Off"), FREE, True, "r01-u01-1"),
    ("Maintenance", booted(), HELD, True, "r01-u01-1"),
    ("Held", booted(), HELD, True, None),
    ("Accepted", server(), None, False, None),
    ("Booting", status(booted(), join=None), None, False, None),
    ("Booting", booted(), None, False, None),
    ("Booting", booted(), node(boot_id=OTHER_BOOT), True, None),
    ("Booted", booted(), FREE, False, None),
    ("Verified", booted(), tainted(VERIFICATION_TAINT), True, None),
    ("Verified", booted(), tainted(MAINTENANCE_TAINT), True, None),
    ("Verified", booted(), node(ready=False, taints=()), True, None),
    ("Verified", booted(), NodeView({**FREE.body, "spec": {"unschedulable": True}}), True, None),
    ("InProduction", booted(), FREE, True, None),
    ("InProduction", booted(), tainted("example.com/foreign"), True, None),
    ("InProduction", booted(), tainted(MAINTENANCE_TAINT, "PreferNoSchedule"), True, None),
    ("InProduction", ADOPTED, FREE, False, None),
    ("Booted", ADOPTED, node(ready=False, taints=()), False, None),
]


@pytest.mark.parametrize(("expected", "given", "seen", "verified", "maintenance"), ROWS)
def test_a_server_is_where_the_table_says(
    expected: Lifecycle, given: Server, seen: NodeView | None, verified: bool, maintenance: str | None
) -> None:
    assert find_lifecycle(situation(server=given, node=seen, maintenance=maintenance), verified=verified) == expected


def test_every_place_is_reached() -> None:
    assert {row[0] for row in ROWS} == set(get_args(Lifecycle))
