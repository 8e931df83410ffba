"""What goes for good, and only once nobody uses it: a server that is retired, a rack without servers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ansible_collections.provisioner.provisioner.plugins.module_utils.provisioner_module import (
    find_object,
    wait_seconds,
)

try:
    from provisioner.api import Maintenance, Rack, Server
    from provisioner.api.machinery.codec import decode
    from provisioner.api.machinery.errors import Forbidden, NeedsHuman, Refused
    from provisioner.api.machinery.wording import quantity, some
    from provisioner.cli.kubectl.filing import read_maintenances
    from provisioner.cluster.resources import BMC_SECRETS, NODES, SECRETS, of
    from provisioner.inventory.register import MANAGER, credentials_name
    from provisioner.rules.requests import is_active
except ImportError:
    pass  # told by provisioner_module.make_module

LOOK_SECONDS = 2.0
SERVER_UID = "provisioner.dev/server-uid"
"""Annotation of a Node that was made for a Server."""


def find_use(server: Server, node: dict[str, Any] | None, maintenances: list[Maintenance]) -> str | None:
    """Why the server may not go yet, in words; None if nobody uses it. Pure.

    A server without a Node runs no job. One with a Node is out of use once a request to drain it is carried out.
    """
    if node is None:
        return None
    drained = any(is_active(m) and m.status.phase == "Drained" for m in maintenances)
    if drained:
        return None
    lifecycle = server.status.lifecycle or "not known"
    return f"Server {server.name} is in use: it has Node {node['metadata']['name']}, and its lifecycle is {lifecycle}"


def retire(module: Any, cluster: Any) -> dict[str, Any]:
    """The Server, its Node and the Secret of its BMC go, in the order in which nothing of them comes back.

    Raises: NeedsHuman for a server that is in use or cannot be switched off.
    """
    name, force = module.params["name"], module.params["force"]
    body = find_object(cluster, Server, name)
    node = cluster.find(NODES, name)
    if body is None:
        return _clear_up(module, cluster, name, node)
    server = decode(Server, body)
    used = find_use(server, node, read_maintenances(cluster, name))
    if used is not None and not force:
        raise NeedsHuman(
            f"{used}, expected it to be drained",
            hint=f"take it out of use first: a task provisioner.provisioner.request with action Drain and wait, or "
            f"kubectl provision drain {name} --wait; or give force, which ends its jobs",
        )
    secret = credentials_name(name)
    has_secret = server.spec.bmc is not None and server.spec.bmc.credentials_name == secret
    notes = [] if server.spec.bmc else [f"Server {name} has no BMC: somebody must switch it off by hand"]
    if not module.check_mode:
        if server.spec.bmc is not None:
            _switch_off(cluster, name, wait_seconds(module), force=force)
        cluster.delete(of(Server), name, uid=server.metadata.uid)
        if node is not None:
            cluster.delete(NODES, name, uid=node["metadata"]["uid"])
        try:
            if has_secret:
                cluster.delete(SECRETS, secret, namespace=BMC_SECRETS)
        except Forbidden as error:
            notes.append(f"Secret {secret} of namespace {BMC_SECRETS} is left: {error}")
    going = [("Server", name)] + ([("Node", name)] if node else []) + ([("Secret", secret)] if has_secret else [])
    return _gone(going, notes)


def _clear_up(module: Any, cluster: Any, name: str, node: dict[str, Any] | None) -> dict[str, Any]:
    """The Server is gone; a Node that was made for one, and whose kubelet is silent, is what an earlier run left."""
    made_for_one = node is not None and SERVER_UID in (node["metadata"].get("annotations") or {})
    if node is None or not made_for_one or is_ready(node):
        return {"changed": False, "objects": [{"action": "unchanged", "kind": "Server", "name": name}], "notes": []}
    if not module.check_mode:
        cluster.delete(NODES, name, uid=node["metadata"]["uid"])
    return _gone([("Node", name)], [])


def is_ready(node: dict[str, Any]) -> bool:
    """Whether its kubelet says so, and was heard lately."""
    conditions = node.get("status", {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _gone(objects: list[tuple[str, str]], notes: list[str]) -> dict[str, Any]:
    return {
        "changed": True,
        "objects": [{"action": "delete", "kind": kind, "name": name} for kind, name in objects],
        "notes": notes,
        "diff": [
            {"before_header": f"{kind} {name}", "after_header": f"{kind} {name}", "before": "present\n", "after": ""}
            for kind, name in objects
        ],
    }


def _switch_off(
    cluster: Any,
    name: str,
    within_seconds: float | None,
    *,
    force: bool,
    sleep: Callable[[float], None] = time.sleep,
    monotonic: Callable[[], float] = time.monotonic,
) -> None:
    """Raises: NeedsHuman if nobody says that it is off; it is wanted off then, and the task may be run again."""
    cluster.patch(of(Server), name, {"spec": {"powerState": "Off"}}, manager=MANAGER)
    until = None if within_seconds is None else monotonic() + within_seconds
    while True:
        power = cluster.read(Server, name).status.power
        if force or (power is not None and power.state == "Off"):
            return
        if until is not None and monotonic() >= until:
            observed = power.state if power is not None else "not known"
            raise NeedsHuman(
                f"power of Server {name} is {observed} after {within_seconds:.0f} s, expected Off",
                hint=f"kubectl provision why {name} says what its BMC answers; run the task again, or give force",
            )
        sleep(LOOK_SECONDS)


def remove_rack(module: Any, cluster: Any) -> dict[str, Any]:
    """Raises: Refused while servers are registered in it."""
    name = module.params["name"]
    body = find_object(cluster, Rack, name)
    if body is None:
        return {"changed": False, "objects": [{"action": "unchanged", "kind": "Rack", "name": name}], "notes": []}
    servers = [s["metadata"]["name"] for s in cluster.list(of(Server), field_selector=f"spec.rackRef={name}").items]
    if servers:
        raise Refused(
            f"Rack {name} has {quantity(len(servers), 'server')} ({some(sorted(servers))}), expected none",
            hint="retire them first: provisioner.provisioner.server with state absent; or move them to another rack",
        )
    if not module.check_mode:
        cluster.delete(of(Rack), name, uid=body["metadata"]["uid"])
    return _gone([("Rack", name)], [])
