"""What people do, by kubectl, while the controllers run."""

from __future__ import annotations

import contextlib
from typing import Any

from provisioner.api import Maintenance, Server
from provisioner.api.machinery.errors import NotFound
from provisioner.api.machinery.meta import rfc3339
from provisioner.api.nodes.contract import REQUEST_CONDITIONS
from provisioner.api.nodes.maintenance import FINAL_PHASES
from provisioner.cluster.resources import NODES, of
from provisioner.maintenance.requests.request import ACTION_OF, REQUESTOR_OF
from tests.maintenance.chaos.accounts import PERSON
from tests.maintenance.chaos.invariants import observe
from tests.maintenance.chaos.world import World, renamed

FOREIGN_TAINT = {"key": "example.com/mine", "value": "admin", "effect": "NoSchedule"}
FOREIGN_DRAIN = "broken fan, ask bob"


def ask(world: World, name: str, type_: str, policy: str, message: str = "") -> None:
    """`kubectl patch node N --subresource=status` with a request condition."""
    moment = rfc3339(world.clock.now)
    condition = {"type": type_, "status": "True", "reason": policy, "message": message, "lastTransitionTime": moment}
    with contextlib.suppress(NotFound):
        found = (world.cluster.get(NODES, name).get("status") or {}).get("conditions") or ()
        patch = {"status": {"conditions": [condition]}}
        world.accounts.person.strategic_patch(NODES, name, patch, subresource="status", manager="kubectl-patch")
        again = any(c["type"] == type_ and c["status"] == "True" for c in found)
        image = next((word.removeprefix("image=") for word in message.split() if word.startswith("image=")), None)
        world.history.ask(name, REQUESTOR_OF[type_], ACTION_OF[type_], image, again=again)
        world.story.tell("admin", f"asks on Node {name}: {type_} {policy} {message}")


def file(world: World, name: str, number: int, requestor: dict[str, Any]) -> None:
    """What `kubectl provision` does: a Maintenance, with one's own requestor in it."""
    body = {
        "apiVersion": "provisioner.dev/v1alpha1",
        "kind": "Maintenance",
        "metadata": {"name": f"{name}-{number}"},
        "spec": {"serverRef": name, "requestors": [{**requestor, "user": PERSON}]},
    }
    world.history.ask(name, requestor["name"], requestor["action"], requestor.get("imageRef"))
    world.accounts.person.apply(body, manager=f"provisioner-requestor-{requestor['name']}")
    world.story.tell("admin", f"files Maintenance {name}-{number}: {requestor}")


def withdraw(world: World, *names: str) -> None:
    """Everybody takes back what was asked for, of these servers or of all."""
    for name in [name for name in world.nodes() if name in (names or world.names)]:
        withdraw_conditions(world, name, *REQUEST_CONDITIONS)
    for body in world.maintenances():
        others = bool(names) and body["spec"]["serverRef"] not in names
        if others or (body.get("status") or {}).get("phase") in FINAL_PHASES:
            continue
        for requestor in body["spec"].get("requestors") or ():
            if requestor["name"].startswith("user-"):
                world.history.withdraw(body["spec"]["serverRef"], requestor["name"])
                world.story.tell("admin", f"takes {requestor['name']} out of {body['metadata']['name']}")
                empty = {key: body[key] for key in ("apiVersion", "kind")}
                empty |= {
                    "metadata": {"name": body["metadata"]["name"]},
                    "spec": {"serverRef": body["spec"]["serverRef"]},
                }
                world.accounts.person.apply(empty, manager=f"provisioner-requestor-{requestor['name']}")


def withdraw_conditions(world: World, name: str, *types: str) -> None:
    """The conditions of these types on a Node are set False."""
    moment = rfc3339(world.clock.now)
    asked = (world.nodes()[name].get("status") or {}).get("conditions") or ()
    taken = [
        {**condition, "status": "False", "reason": "Withdrawn", "lastTransitionTime": moment}
        for condition in asked
        if condition["type"] in types and condition["status"] == "True"
    ]
    if not taken:
        return
    world.story.tell("admin", f"withdraws from Node {name}: {', '.join(c['type'] for c in taken)}")
    patch = {"status": {"conditions": taken}}
    world.accounts.person.strategic_patch(NODES, name, patch, subresource="status", manager="kubectl-patch")
    for condition in taken:
        world.history.withdraw(name, REQUESTOR_OF[condition["type"]])


def delete_maintenances(world: World) -> None:
    """`kubectl delete maintenance --all`; also one that was filed in this second, and that nobody has looked at."""
    observe(world)
    for body in world.maintenances():
        world.story.tell("admin", f"deletes Maintenance {body['metadata']['name']}")
        if (body.get("status") or {}).get("phase") not in FINAL_PHASES:
            world.history.maintenances_deleted.add(body["metadata"]["uid"])
        world.accounts.person.delete(of(Maintenance), body["metadata"]["name"])


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
    world.history.delete_node(name)
    world.cluster.delete(NODES, name)


def vanish(world: World, name: str) -> None:
    """The machine is gone, and its Node with it."""
    world.machines[name].die()
    delete_node(world, name)


def rename(world: World, name: str) -> None:
    """Somebody registered the machine under another name: the Server and its Node are gone."""
    body = world.cluster.get(of(Server), name)
    world.history.servers_gone.add(name)
    world.story.tell("admin", f"renames Server {name} to {renamed(name)}")
    delete_node(world, name)
    world.cluster.delete(of(Server), name)
    spec = {**body["spec"], "acceptance": "Accepted"}
    world.cluster.apply(
        {**{k: body[k] for k in ("apiVersion", "kind")}, "metadata": {"name": renamed(name)}, "spec": spec},
        manager="kubectl",
    )
