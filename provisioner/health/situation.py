"""What the health controller decides on, and which boot there is to judge. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from provisioner.api import Image, NodePool, Server
from provisioner.api.machinery.meta import parse_time
from provisioner.api.pools.pool_settings import JobCheck
from provisioner.health.jobs.outcome import JobState
from provisioner.rules.assigned_image import released_image
from provisioner.rules.boot_order import has_fetched, is_ordered_boot, joined_boot_id
from provisioner.rules.nodes import NodeView


@dataclass(frozen=True, kw_only=True)
class CheckInputs:
    """A server, what it refers to, its Node, and what is known of its checks' Jobs. What does not exist is None.

    has_ntp_servers: whether the server's subnet names any.
    image: the one that the current order names. jobs: of the current round, by name of the check.
    maintenance: the name of the Maintenance that disturbs the server now.
    """

    server: Server
    pool: NodePool | None
    image: Image | None
    node: NodeView | None
    clock_skew_seconds: float | None = None
    has_ntp_servers: bool = True
    jobs: Mapping[str, JobState] = field(default_factory=dict)
    maintenance: str | None = None

    @property
    def own_checks(self) -> tuple[JobCheck, ...]:
        """Those of the pool's own that the boot of the current order has to pass: those of every boot; and those of the
        canary, if it boots the pool's image before that has passed the canary."""
        pool, order = self.pool, self.server.status.order
        if pool is None:
            return ()
        usual, image_name = pool.spec.verification.checks, order.image_ref if order is not None else None
        if image_name != pool.spec.image_ref or image_name == released_image(pool).name:
            return usual
        names = {check.name for check in usual}
        return (*usual, *(check for check in pool.spec.upgrade_strategy.canary.checks if check.name not in names))


@dataclass(frozen=True)
class NoBoot:
    """There is no boot to judge: the reason and message of Verified."""

    reason: str
    message: str


def boot_to_judge(server: Server, node: NodeView | None) -> str | NoBoot | None:
    """Kernel boot id of the ordered boot, once it is the one that runs; None if none was ever ordered."""
    order = server.status.order
    if order is None:
        if node is None or node.boot_id is None:
            return None
        words = f"Node {node.name} ran before the provisioner knew it: it is neither checked nor kept out of use"
        return NoBoot("Adopted", words)
    if not has_fetched(server):
        return NoBoot("WaitsForBoot", f"waits until the boot of order {order.id} ({order.reason}) joins")
    joined = joined_boot_id(server) or f"of order {order.id}"
    if node is None or node.boot_id is None:
        return NoBoot("WaitsForNode", f"waits until Node {server.name} reports boot {joined}")
    if not is_ordered_boot(server, node.boot_id):
        return NoBoot("WaitsForNode", f"waits until Node {node.name} reports boot {joined}; it says {node.boot_id}")
    return node.boot_id


def joined_time(server: Server) -> datetime | None:
    """When the join configuration of the last boot was handed out."""
    fetched = server.status.join.fetched_time if server.status.join is not None else None
    return parse_time(fetched) if fetched is not None else None
