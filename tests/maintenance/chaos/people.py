"""What people do, by kubectl, while the controllers run."""

from __future__ import annotations

import contextlib
from typing import Any

from provisioner.api import Maintenance, Server
from provisioner.api.errors import NotFound
from provisioner.api.maintenance import FINAL_PHASES
from provisioner.api.meta import rfc3339
from provisioner.api.node_contract import REQUEST_CONDITIONS
from provisioner.cluster.resources import NODES, of
from tests.maintenance.chaos.world import World

FOREIGN_TAINT = {"key": "example.com/mine", "value": "admin", "effect": "NoSchedule"}
FOREIGN_DRAIN = "broken fan, ask bob"


def ask(world: World, name: str, type_: str, policy: str, message: str = "") -> None:
    """`kubectl patch node N --subresource=status` with a request condition."""
    moment = rfc3339(world.clock.now)
    condition = {"type": type_, "status": "True", "reason": policy, "message": message, "lastTransitionTime": moment}
    with contextlib.suppress(NotFound):
        patch = {"status": {"conditions": [condition]}}
        world.cluster.strategic_patch(NODES, name, patch, subresource="status", manager="kubectl-patch")
        world.story.tell("admin", f"asks on Node {name}: {type_} {policy} {message}")


def file(world: World, name: str, number: int, requestor: dict[str, Any]) -> None:
    """What `kubectl provision` does: a Maintenance, with one's own requestor in it."""
    body = {
        "apiVersion": "provisioner.dev/v1alpha1",
        "kind": "Maintenance",
        "metadata": {"name": f"{name}-{number}"},
        "spec": {"serverRef": name, "requestors": [requestor]},
    }
    world.cluster.apply(body, manager=f"provisioner-requestor-{requestor['name']}")
    world.story.tell("admin", f"files Maintenance {name}-{number}: {requestor}")


def withdraw(world: World) -> None:
    """Everybody takes back what was asked for."""
    moment = rfc3339(world.clock.now)
    world.story.tell("admin", "withdraws every request")
    for name, node in world.nodes().items():
        asked = [c for c in (node.get("status") or {}).get("conditions") or () if c["type"] in REQUEST_CONDITIONS]
        taken = [
            {**condition, "status": "False", "reason": "Withdrawn", "lastTransitionTime": moment}
            for condition in asked
            if condition["status"] == "True"
        ]
        if taken:
            patch = {"status": {"conditions": taken}}
            world.cluster.strategic_patch(NODES, name, patch, subresource="status", manager="kubectl-patch")
    for body in world.maintenances():
        if (body.get("status") or {}).get("phase") in FINAL_PHASES:
            continue
        for requestor in body["spec"].get("requestors") or ():
            if requestor["name"].startswith("user-"):
                empty = {key: body[key] for key in ("apiVersion", "kind")}
                empty |= {
                    "metadata": {"name": body["metadata"]["name"]},
                    "spec": {"serverRef": body["spec"]["serverRef"]},
                }
                world.cluster.apply(empty, manager=f"provisioner-requestor-{requestor['name']}")


def delete_maintenances(world: World) -> None:
    """`kubectl delete maintenance --all`."""
    for body in world.maintenances():
        world.story.tell("admin", f"deletes Maintenance {body['metadata']['name']}")
        world.cluster.delete(of(Maintenance), body["metadata"]["name"])


def cordon(world: World, name: str) -> None:
    """An administrator wants the node for himself: cordon, taint, and (if it is free) Slurm drain."""
    node = world.nodes().get(name)
    if node is None:
        return
    taints = [*((node.get("spec") or {}).get("taints") or ()), FOREIGN_TAINT]
    world.cluster.patch(NODES, name, {"spec": {"unschedulable": True, "taints": taints}}, manager="kubectl-cordon")
    world.cordoned.add(name)
    if world.workloads.slurm and name not in world.workloads.drains:
        world.workloads.drains[name] = world.foreign_drains[name] = FOREIGN_DRAIN
    world.story.tell("admin", f"cordons and taints Node {name}")


def delete_node(world: World, name: str) -> None:
    """`kubectl delete node`: whoever lived there is forgotten."""
    world.story.tell("admin", f"deletes Node {name}")
    world.cordoned.discard(name)
    world.cluster.delete(NODES, name)


def vanish(world: World, name: str) -> None:
    """The machine is gone, and its Node with it."""
    world.machines[name].die()
    delete_node(world, name)


def rename(world: World, name: str) -> None:
    """Somebody registered the machine under another name: the Server and its Node are gone."""
    body = world.cluster.get(of(Server), name)
    world.story.tell("admin", f"renames Server {name} to {name}-new")
    delete_node(world, name)
    world.cluster.delete(of(Server), name)
    spec = {**body["spec"], "acceptance": "Accepted"}
    world.cluster.apply(
        {**{k: body[k] for k in ("apiVersion", "kind")}, "metadata": {"name": f"{name}-new"}, "spec": spec},
        manager="kubectl",
    )
