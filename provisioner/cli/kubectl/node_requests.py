"""A person's word as a condition of a Node, and what is withdrawn together with it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal

from provisioner.api.machinery.meta import rfc3339
from provisioner.api.nodes.contract import (
    DRAIN_REQUESTED,
    HOLD_REQUESTED,
    POWER_CYCLE_REQUESTED,
    REBOOT_REQUESTED,
    REIMAGE_REQUESTED,
)
from provisioner.cli.kubectl.connection import MANAGER
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import NODES
from provisioner.cluster.source import is_true_in

DISTURBANCES: Final = (REBOOT_REQUESTED, REIMAGE_REQUESTED, POWER_CYCLE_REQUESTED)
RELEASED: Final = (DRAIN_REQUESTED, HOLD_REQUESTED)


def true_conditions(node: Mapping[str, Any] | None, types: tuple[str, ...]) -> list[str]:
    """Which of `types` are True on the Node."""
    return [type_ for type_ in types if is_true_in(node, type_)]


def signed(message: str | None, user: str, what: str) -> str:
    """The words with who said them: a condition has no other place for a name. What a person can forge is no proof."""
    return f"{user}: {message or what}"


def write_condition(
    cluster: Cluster,
    node: str,
    type_: str,
    status: Literal["True", "False"],
    reason: str,
    message: str,
    now: datetime,
    *,
    dry_run: bool,
) -> Mapping[str, Any]:
    """Set it, with a transition time of now: a request anew is a new one. Gives the Node as it is then.

    Raises: Refused, NotFound.
    """
    condition = {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": rfc3339(now),
        "lastHeartbeatTime": rfc3339(now),
    }
    patch = {"status": {"conditions": [condition]}}
    return cluster.strategic_patch(NODES, node, patch, subresource="status", manager=MANAGER, dry_run=dry_run)
