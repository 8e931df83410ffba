"""The network's controllers: values are claimed, each DPU's part is compiled, and what holds is told.

All of it is decided on caches, so that whoever leads next goes on where the last one was stopped, between whichever two
writes that was.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

from provisioner.cluster.client import Cluster
from provisioner.cluster.controller import Controller
from provisioner.cluster.events import Events
from provisioner.network.control.attachments import Attachments
from provisioner.network.control.claims.release import ClaimReleases
from provisioner.network.control.dpus import DPUs
from provisioner.network.control.follow import FollowNetworks, NetworkQueues
from provisioner.network.control.records.facts import Facts
from provisioner.network.control.records.informers import NetworkInformers
from provisioner.network.control.records.shared import NetworkParts
from provisioner.network.control.turns import TenantTurns
from provisioner.network.control.vpcs import Groups, Pools, VPCs


def build_network_controllers(
    cluster: Cluster,
    informers: NetworkInformers,
    recorder: Events,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    *,
    monotonic: Callable[[], float] = time.monotonic,
) -> list[Controller]:
    """The controllers of tenant networks, following their caches. Build them anew for each leadership."""
    facts = Facts(informers)
    shared = NetworkParts(cluster=cluster, facts=facts, events=recorder, clock=clock, monotonic=monotonic)
    vpcs, dpus, releases = VPCs(shared), DPUs(shared), ClaimReleases(shared)
    attachments, groups, pools = Attachments(shared, dpus.refused), Groups(shared), Pools(shared)
    spread = shared.controller("network-spread", lambda key: follow.spread(key))
    queues = NetworkQueues(
        vpcs=vpcs.controller.queue,
        attachments=attachments.controller.queue,
        groups=groups.controller.queue,
        pools=pools.controller.queue,
        claims=releases.controller.queue,
        dpus=dpus.controller.queue,
        spread=spread.queue,
    )
    follow = FollowNetworks(facts, queues, TenantTurns(monotonic))
    follow.subscribe()
    parts = (vpcs, attachments, dpus, releases, groups, pools)
    return [*(part.controller for part in parts), spread]
