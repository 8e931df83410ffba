"""No decision of the responder is without words, and which rule names Image and NodePool is told as it is decided."""

from __future__ import annotations

import ast
import inspect
from dataclasses import replace
from itertools import product

import pytest

from provisioner.api.pools.node_pool import NodePoolStatus
from provisioner.api.pools.rollout_status import ReleasedImage
from provisioner.api.servers.server import BootOrder, ServerStatus
from provisioner.boot.dhcp.responder import inventory
from provisioner.boot.dhcp.responder import respond as respond_module
from provisioner.boot.dhcp.responder.verdicts import VERDICTS
from provisioner.boot.dhcp.wire.packet import Malformed
from provisioner.rules.assigned_image import current_image, next_image
from provisioner.rules.pool_of_server import booting_pool, next_pool_name, ordered_pool_name
from tests.boot.objects import at, attempt, maintenance, pool, server


def test_every_verdict_has_words() -> None:
    source = ast.parse(inspect.getsource(respond_module))
    told = {
        node.args[0].value
        for node in ast.walk(source)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "PacketOutcome" and node.args
        if isinstance(node.args[0], ast.Constant)
    }
    told |= {"dropped-unknown-relay", "released", *respond_module._VERDICTS, *map(str, Malformed)}
    told |= set(inventory.DropReason.__args__)  # type: ignore[attr-defined]
    assert len(told) > 20
    assert told - VERDICTS.keys() == set()
    assert VERDICTS.keys() - told == {"dropped-no-subnet", "dropped-message-type"} - told
    assert all("dropped" not in name or VERDICTS[name].words for name in VERDICTS)


ORDER = BootOrder(
    id="o", reason="FirstBoot", ordered_time=at(0), attempt=1, image_ref="ordered", node_pool_ref="by-order"
)
NAMES = {"by-order": "BootOrder", "running": "Running", "assigned": "Assigned", "spec": "Spec", None: "NoNodePool"}
ORDERS = (None, ORDER, replace(ORDER, node_pool_ref=None))


@pytest.mark.parametrize(
    ("order", "ready", "running", "assigned", "spec"),
    list(product(ORDERS, (None, at(-1), at(1)), (None, "running"), (None, "assigned"), (None, "spec"))),
)
def test_the_rule_of_the_pool_names_the_pool_that_others_are_told(
    order: BootOrder | None, ready: str | None, running: str | None, assigned: str | None, spec: str | None
) -> None:
    status = ServerStatus(order=order, ready_time=ready, node_pool_ref=running, assigned_node_pool_ref=assigned)
    found = server(node_pool_ref=spec, status=status)
    unsettled = order is not None and ready != at(1)
    chosen = booting_pool(found)
    assert chosen.name == (ordered_pool_name(found) if unsettled else next_pool_name(found))
    assert chosen.rule == NAMES[chosen.name]


def test_each_rule_of_the_image_says_that_it_was_it() -> None:
    released = replace(pool(), status=NodePoolStatus(released=ReleasedImage(image_ref="released", time=at(0))))
    assigned = server(status=ServerStatus(assigned_image_ref="assigned"))
    ordered = server(status=ServerStatus(assigned_image_ref="assigned", order=ORDER))
    settled = replace(ordered, status=replace(ordered.status, ready_time=at(1)))
    held = maintenance(reboot=attempt(image_ref="maintained"))
    assert current_image(ordered, pool()) == ("ordered", "BootOrder")
    assert current_image(settled, pool()) == ("assigned", "Assigned")
    assert next_image(settled, pool(), held) == ("maintained", "Maintenance")
    assert current_image(assigned, pool()) == ("assigned", "Assigned")
    assert current_image(server(), released) == ("released", "Released")
    assert current_image(server(), pool()) == (pool().spec.image_ref, "Wanted")
    assert current_image(server(), None) == (None, "NoNodePool")
    assert current_image(ordered, pool()).name == "ordered"
