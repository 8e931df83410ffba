"""A pool's servers as they stand, in few words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from provisioner.api import Maintenance
from provisioner.api.machinery.meta import parse_time
from provisioner.api.nodes.contract import HOLD_REQUESTED
from provisioner.api.nodes.maintenance import Requestor
from provisioner.api.servers.server_status import BootOrder, ServerStatus, Verification
from provisioner.rollout.standing import MemberFacts, RolloutTarget, judge_standing
from provisioner.rules.nodes import NodeView
from tests.boot import objects
from tests.boot.objects import at, condition

OLD, NEW = "old", "new"
TARGET = RolloutTarget(pool="gpu", name=NEW)
NOW = parse_time(at(7200)).timestamp()


def node(boot_id: str | None = "b1", *, held: bool = False) -> NodeView:
    """The Node of r01-u01."""
    conditions = [{"type": HOLD_REQUESTED, "status": "True"}] if held else []
    info = {"bootID": boot_id} if boot_id else {}
    return NodeView({"metadata": {"name": "r01-u01"}, "status": {"nodeInfo": info, "conditions": conditions}})


NODE = node()
CHECKED = Verification(boot_id="B1", attempt=1, started_time=at(0), finished_time=at(0))


def entry(turn: Any = "Granted", image: str = NEW, **changes: Any) -> Requestor:
    """What a rollout asks for."""
    return Requestor(**{"name": "rollout", "action": "Reimage", "image_ref": image, "turn": turn, **changes})


def asked(*requestors: Requestor, phase: Any = "Waiting", boots: str | None = None, **status: Any) -> Maintenance:
    """A Maintenance of r01-u01. boots: the image of the reboot that it has begun."""
    made = objects.maintenance(phase=phase, reboot=objects.attempt(image_ref=boots) if boots is not None else None)
    made = replace(made, spec=replace(made.spec, requestors=requestors or (entry(),)))
    return replace(made, status=replace(made.status, **status))


def stands(
    image: str | None = OLD,
    *maintenances: Maintenance,
    ready: str = "True",
    verified: str = "True",
    node: NodeView | None = NODE,
    retried: float | None = None,
    now: float = NOW,
    target: RolloutTarget = TARGET,
    **changes: Any,
) -> MemberFacts:
    """r01-u01, which runs `image`; Ready and Verified since noon, or not."""
    conditions = (condition("Ready", ready), condition("Verified", verified))
    given = {"image_ref": image, "conditions": conditions, "verification": CHECKED, **changes.pop("status", {})}
    status = replace(ServerStatus(), **given)
    server = objects.server(status=status, **changes)
    return judge_standing(server, node, maintenances, target, retried=retried, now=now)


def ordered_by(maintenance: str, image: str) -> dict[str, Any]:
    """Of the Server's status: its last boot was that of a Maintenance."""
    order = BootOrder(
        id="o1", reason="Requested", ordered_time=at(0), attempt=1, image_ref=image, maintenance_ref=maintenance
    )
    return {"order": order}
