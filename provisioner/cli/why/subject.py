"""Everything that `why` and `status` tell of: one server with what concerns it, read at one time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from provisioner.api import Image, Maintenance, NodePool, Server
from provisioner.api.machinery.conditions import find_condition
from provisioner.api.machinery.errors import Forbidden, NotFound, Refused
from provisioner.api.nodes.contract import HOLD_REQUESTED, REQUEST_CONDITIONS
from provisioner.api.nodes.maintenance import FINAL_PHASES, holding_maintenance
from provisioner.cli.kubectl.connection import find_named
from provisioner.cli.kubectl.filing import read_maintenances
from provisioner.cli.kubectl.learned_profile import read_profile
from provisioner.cli.kubectl.node_requests import true_conditions
from provisioner.cluster.client import Cluster
from provisioner.cluster.leadership import NoLeader
from provisioner.cluster.recent_events import RecentEvents, read_events
from provisioner.rules.cause import find_cause
from provisioner.rules.pool_of_server import current_pool_name


@dataclass(frozen=True, kw_only=True)
class ServerSubject:
    """A server as the API server tells of it. events: the newest; None where they may not be read. firmware_obstacle:
    why the firmware that the machine showed cannot be approved; None if it can, or if its profile was not read.
    firmware_is_approved: whether it is approved since.
    no_leader: groups of controllers that nobody leads; None if none, or if that was not read. image: the one that
    the pool wants, if it is there."""

    server: Server
    node: Mapping[str, Any] | None
    pool: NodePool | None
    maintenances: tuple[Maintenance, ...]
    events: RecentEvents | None
    now: datetime
    firmware_obstacle: str | None = None
    firmware_is_approved: bool = False
    no_leader: NoLeader | None = None
    image: Image | None = None

    @property
    def is_asked(self) -> bool:
        """Whether a condition of its Node asks for something but a hold."""
        return bool(true_conditions(self.node, tuple(t for t in REQUEST_CONDITIONS if t != HOLD_REQUESTED)))

    @property
    def waits(self) -> bool:
        """Whether a controller has something to do with the server before it is in use, or is asked for something."""
        if self.server.spec.acceptance == "Rejected":
            return False
        known = find_condition(self.server.status.conditions, "Ready")
        return known is None or self.is_asked or self.current is not None or find_cause(self.server) is not None

    @property
    def current(self) -> Maintenance | None:
        """The Maintenance that holds the server."""
        return holding_maintenance(self.maintenances, self.server.name)

    @property
    def last(self) -> Maintenance | None:
        """The Maintenance that ended last."""
        ended = [m for m in self.maintenances if m.status.phase in FINAL_PHASES]
        return max(ended, key=lambda m: m.status.finished_time or "", default=None)

    @property
    def behind(self) -> tuple[Maintenance, ...]:
        """Those that wait behind the current one."""
        current = self.current
        return tuple(m for m in self.maintenances if m.status.phase not in FINAL_PHASES and m is not current)


def read_subject(
    cluster: Cluster,
    server: Server,
    node: Mapping[str, Any] | None,
    now: datetime,
    no_leader: NoLeader | None = None,
) -> ServerSubject:
    """Raises: Refused if Maintenances may not be read, Retryable."""
    pool = find_named(cluster, NodePool, current_pool_name(server))
    obstacle, is_approved = _shown_firmware(cluster, server)
    return ServerSubject(
        server=server,
        node=node,
        pool=pool,
        maintenances=tuple(read_maintenances(cluster, server.name)),
        events=_events(cluster, server.name),
        now=now,
        firmware_obstacle=obstacle,
        firmware_is_approved=is_approved,
        no_leader=no_leader,
        image=_image(cluster, pool),
    )


def _image(cluster: Cluster, pool: NodePool | None) -> Image | None:
    try:
        return find_named(cluster, Image, pool.spec.image_ref if pool is not None else None)
    except Forbidden:
        return None


def _shown_firmware(cluster: Cluster, server: Server) -> tuple[str | None, bool]:
    """Why the firmware that the machine showed cannot be approved, and whether it is approved by now."""
    attested = server.status.attestation
    if attested is None or attested.pending is None or attested.pending.firmware_profile is None:
        return None, False
    try:
        return None, read_profile(cluster, attested.pending.firmware_profile, server.name).spec.approved
    except Forbidden:
        return None, False
    except (NotFound, Refused) as error:
        return str(error), False


def _events(cluster: Cluster, name: str) -> RecentEvents | None:
    """Of the Server and its Node."""
    try:
        return read_events(cluster, name)
    except Refused:
        return None
