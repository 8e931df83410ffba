"""Everything that `why` and `status` tell of: one server with what concerns it, read at one time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from provisioner.api import Maintenance, NodePool, Server
from provisioner.api.errors import Forbidden, NotFound, Refused
from provisioner.api.maintenance import FINAL_PHASES, holding_maintenance
from provisioner.cli.kubectl.filing import read_maintenances
from provisioner.cli.kubectl.learned_profile import read_profile
from provisioner.cluster.client import Cluster
from provisioner.cluster.recent_events import RecentEvents, read_events
from provisioner.cluster.resources import NODES
from provisioner.rules.pool_of_server import current_pool_name


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A server as the API server tells of it. events: the newest; None where they may not be read. firmware_obstacle:
    why the firmware that the machine showed cannot be approved; None if it can, or if its profile was not read."""

    server: Server
    node: Mapping[str, Any] | None
    pool: NodePool | None
    maintenances: tuple[Maintenance, ...]
    events: RecentEvents | None
    now: datetime
    firmware_obstacle: str | None = None

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


def read_subject(cluster: Cluster, server: Server, node: Mapping[str, Any] | None, now: datetime) -> Subject:
    """Raises: Refused if Maintenances may not be read, Retryable."""
    return Subject(
        server=server,
        node=node,
        pool=_pool(cluster, server),
        maintenances=tuple(read_maintenances(cluster, server.name)),
        events=_events(cluster, server.name),
        now=now,
        firmware_obstacle=_firmware_obstacle(cluster, server),
    )


def read_node(cluster: Cluster, name: str) -> Mapping[str, Any] | None:
    return cluster.find(NODES, name)


def _pool(cluster: Cluster, server: Server) -> NodePool | None:
    named = current_pool_name(server)
    if named is None:
        return None
    try:
        return cluster.read(NodePool, named)
    except NotFound:
        return None


def _firmware_obstacle(cluster: Cluster, server: Server) -> str | None:
    attested = server.status.attestation
    if attested is None or attested.pending is None or attested.pending.firmware_profile is None:
        return None
    try:
        read_profile(cluster, attested.pending.firmware_profile, server.name)
    except Forbidden:
        return None
    except (NotFound, Refused) as error:
        return str(error)
    return None


def _events(cluster: Cluster, name: str) -> RecentEvents | None:
    """Of the Server and its Node."""
    try:
        return read_events(cluster, name)
    except Refused:
        return None
