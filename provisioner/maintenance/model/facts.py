"""What the executor decides on: one server, its Node, its Maintenance, what runs there. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from provisioner.api import Image, Maintenance, NodePool, Server
from provisioner.jobs.model.work import Work
from provisioner.maintenance.model.budget import Budget
from provisioner.maintenance.model.node_refusals import NodeWriteRefusal
from provisioner.maintenance.model.steps import NodeWrite
from provisioner.rules.assigned_image import ordered_image
from provisioner.rules.bootability import find_without_image
from provisioner.rules.disturbance import RebootUnderWay
from provisioner.rules.nodes import NodeView
from provisioner.rules.pool_of_server import next_pool_name
from provisioner.rules.requests import NodeRequest


@dataclass(frozen=True, kw_only=True)
class HostView:
    """The server in which a DPU sits. in_use: it has a Node that no Maintenance keeps drained."""

    name: str
    in_use: bool


@dataclass(frozen=True, kw_only=True)
class MaintenanceFacts:
    """Everything a decision depends on but the time and a fresh id. Objects that do not exist are None.

    maintenance holds the server; `ahead` is the one that holds it before `maintenance`, which then only waits.
    finished: those of the server that have ended, the newest first. work: None where nobody had to look.
    pool: the one that the server is in; of a drain that is to be lifted, the one where it was made.
    here, drained_in: those two.
    image, next_pool: what would be booted now, and for which NodePool; of an attempt under way, what it says.
    wanted_image: the one that next_pool wants, if it is there.
    refused: what the API server does not let us write to the Node.
    host: of a DPU.
    """

    server_name: str
    maintenance: Maintenance
    wanted: NodeRequest | None
    server: Server | None
    node: NodeView | None
    pool: NodePool | None
    image: Image | None
    here: NodePool | None = None
    drained_in: NodePool | None = None
    next_pool: NodePool | None = None
    wanted_image: Image | None = None
    work: Work | None = None
    budget: Budget | None = None
    ahead: Maintenance | None = None
    finished: tuple[Maintenance, ...] = ()
    refused: Mapping[NodeWrite, NodeWriteRefusal] = field(default_factory=dict)
    host: HostView | None = None

    @property
    def has_begun(self) -> bool:
        """Whether a reboot was begun: from then on the Maintenance is carried to its end."""
        return self.maintenance.status.reboot is not None

    @property
    def reboot(self) -> RebootUnderWay | None:
        """The attempt that was begun last; None before the first."""
        attempt = self.maintenance.status.reboot
        return RebootUnderWay(attempt=attempt, server=self.server, node=self.node) if attempt is not None else None

    @property
    def image_name(self) -> str | None:
        """Name of the Image that would be booted now."""
        if self.wanted is not None and self.wanted.image is not None:
            return self.wanted.image
        return ordered_image(self.server, self.next_pool, self.wanted_image).name

    @property
    def next_pool_name(self) -> str | None:
        """Name of the NodePool that it would be booted for now."""
        if self.wanted is not None and self.wanted.node_pool is not None:
            return self.wanted.node_pool
        return next_pool_name(self.server) if self.server is not None else None

    def rests(self, write: NodeWrite, now: datetime) -> bool:
        """Whether that write to the Node was refused, and is not tried just now."""
        refusal = self.refused.get(write)
        return refusal is not None and refusal.rests(now)


def close_reason(maintenance: str) -> str:
    """The drain reason in Slurm; only a drain with it is ever lifted."""
    return f"provisioner: {maintenance}"


def image_obstacle(facts: MaintenanceFacts) -> str | None:
    """Why the image that is wanted cannot be booted now; None if it can."""
    return _obstacle(facts, facts.image_name)


def attempt_obstacle(facts: MaintenanceFacts) -> str | None:
    """Why the image of the attempt under way, which `facts.image` is, cannot be booted now; None if it can."""
    attempt = facts.maintenance.status.reboot
    return _obstacle(facts, attempt.image_ref) if attempt is not None else None


def _obstacle(facts: MaintenanceFacts, image: str | None) -> str | None:
    obstacle = find_without_image(facts.server, image, facts.image) if facts.server is not None else None
    return obstacle.words if obstacle is not None else None


def host_obstacle(facts: MaintenanceFacts) -> str | None:
    """Why a DPU cannot be booted now: the network of the jobs on its host would go away with it. None if it can."""
    host, wanted = facts.host, facts.wanted
    if host is None or not host.in_use or wanted is None or not wanted.boots:
        return None
    return (
        f"Server '{facts.server_name}' is a DPU of Server '{host.name}', which would lose its network: that is drained "
        f"first, as its jobs end: kubectl provision why {host.name}"
    )
