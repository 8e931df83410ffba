"""The controllers in groups, each with an account of its own: who takes one of them has what that group may do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from provisioner.boot.orders.controller import build_boot_controllers
from provisioner.boot.orders.informers import BootInformers
from provisioner.cli.service.informers import SharedInformers
from provisioner.cluster.client import Cluster
from provisioner.cluster.controller import Controller
from provisioner.cluster.events import Events
from provisioner.cluster.metrics import Meters
from provisioner.cluster.resources import SLURM_SECRETS, SYSTEM
from provisioner.health.controller import HealthInformers, build_health_controllers
from provisioner.image.trust.controller import build_image_trust_controllers
from provisioner.inventory.controller import InventoryInformers, build_inventory_controllers
from provisioner.jobs.cluster_workloads import ClusterWorkloads
from provisioner.jobs.slurm.workloads import SharedSlurm
from provisioner.join.controller import (
    CertificateInformers,
    NodeInformers,
    build_certificate_controllers,
    build_node_controllers,
)
from provisioner.maintenance.controller import build_maintenance_controllers
from provisioner.maintenance.follow import MaintenanceInformers
from provisioner.network.control.controller import build_network_controllers
from provisioner.network.control.records.informers import NetworkInformers
from provisioner.network.infiniband.controller import build_infiniband_controllers
from provisioner.network.infiniband.follow import InfiniBandInformers
from provisioner.network.infiniband.ufm.connections import UfmConnections
from provisioner.power.controller import PowerSettings, build_power_controllers
from provisioner.rollout.controller import build_rollout_controllers
from provisioner.rollout.informers import RolloutInformers


@dataclass(frozen=True, kw_only=True)
class GroupContext:
    """What the groups of a process share. `stop` ends their leadership. slurm: None if each asks for itself."""

    informers: SharedInformers
    clock: Callable[[], datetime]
    boot_url: str
    power_poll_seconds: float
    meters: Meters
    stop: threading.Event
    slurm: SharedSlurm | None = None


def account_of(group: str) -> str:
    """The user name of the account of `group`."""
    return f"system:serviceaccount:{SYSTEM}:provisioner-{group}"


def _inventory(cluster: Cluster, events: Events, shared: GroupContext) -> list[Controller]:
    caches = shared.informers
    follow = InventoryInformers(racks=caches.racks, servers=caches.servers, address_blocks=caches.blocks)
    return build_inventory_controllers(cluster, follow, events, shared.clock)


def _orders(cluster: Cluster, events: Events, shared: GroupContext) -> list[Controller]:
    caches = shared.informers
    follow = BootInformers(
        servers=caches.servers,
        pools=caches.pools,
        images=caches.images,
        racks=caches.racks,
        nodes=caches.nodes,
        leases=caches.leases,
        maintenances=caches.maintenances,
    )
    return [
        *build_boot_controllers(cluster, follow, events, shared.clock),
        *build_image_trust_controllers(cluster, caches.images, events, shared.clock),
    ]


def _join(cluster: Cluster, events: Events, shared: GroupContext) -> list[Controller]:
    caches = shared.informers
    follow = NodeInformers(
        servers=caches.servers, node_pools=caches.pools, racks=caches.racks, nodes=caches.nodes
    )  # fmt: skip
    return build_node_controllers(cluster, follow, events, shared.clock)


def _approver(cluster: Cluster, events: Events, shared: GroupContext) -> list[Controller]:
    caches = shared.informers
    follow = CertificateInformers(
        servers=caches.servers,
        nodes=caches.nodes,
        csrs=caches.csrs,
        roles=caches.credential_roles,
        bindings=caches.credential_bindings,
    )
    return build_certificate_controllers(cluster, follow, events, shared.clock)


def _health(cluster: Cluster, events: Events, shared: GroupContext) -> list[Controller]:
    caches = shared.informers
    follow = HealthInformers(
        servers=caches.servers,
        pools=caches.pools,
        images=caches.images,
        racks=caches.racks,
        nodes=caches.nodes,
        leases=caches.leases,
        maintenances=caches.maintenances,
        jobs=caches.check_jobs,
        pods=caches.check_pods,
    )
    return build_health_controllers(cluster, follow, events, shared.clock)


def _maintenance(cluster: Cluster, events: Events, shared: GroupContext) -> list[Controller]:
    caches = shared.informers
    follow = MaintenanceInformers(
        servers=caches.servers,
        pools=caches.pools,
        images=caches.images,
        nodes=caches.nodes,
        maintenances=caches.maintenances,
        pods=caches.pods,
    )
    workloads = ClusterWorkloads(
        cluster, events, caches.pods, namespace=SLURM_SECRETS, now=shared.clock, in_lanes=True, slurm=shared.slurm
    )
    shared.meters.watch(workloads.slurm_bulkhead)
    return build_maintenance_controllers(
        cluster, follow, workloads, events, shared.clock, metrics=shared.meters.maintenance
    )


def _rollout(cluster: Cluster, events: Events, shared: GroupContext) -> list[Controller]:
    caches = shared.informers
    follow = RolloutInformers(
        servers=caches.servers,
        pools=caches.pools,
        images=caches.images,
        nodes=caches.nodes,
        maintenances=caches.maintenances,
        pods=caches.pods,
    )
    workloads = ClusterWorkloads(
        cluster,
        events,
        caches.pods,
        nodes=caches.nodes,
        ended_pods=caches.ended_pods,
        namespace=SLURM_SECRETS,
        now=shared.clock,
        in_lanes=True,
        slurm=shared.slurm,
    )
    return build_rollout_controllers(cluster, follow, workloads, events, shared.clock, user=account_of("rollout"))


def _power(cluster: Cluster, events: Events, shared: GroupContext) -> list[Controller]:
    tftp = f"{shared.boot_url.rstrip('/')}/tftp"
    settings = PowerSettings(
        poll_seconds=shared.power_poll_seconds,
        http_boot_uris={"x86_64": f"{tftp}/snponly.efi", "arm64": f"{tftp}/ipxe-arm64.efi"},
        failed=shared.meters.outcomes.bmc_failed,
    )
    servers = shared.informers.servers
    return build_power_controllers(cluster, servers, events, settings, now=shared.clock, stop=shared.stop)


def _network(cluster: Cluster, events: Events, shared: GroupContext) -> list[Controller]:
    caches = shared.informers
    follow = NetworkInformers(
        servers=caches.servers,
        vpcs=caches.vpcs,
        attachments=caches.attachments,
        groups=caches.security_groups,
        pools=caches.network_pools,
        claims=caches.network_claims,
        networks=caches.dpu_networks,
        roles=caches.dpu_roles,
        bindings=caches.dpu_bindings,
    )
    return build_network_controllers(cluster, follow, events, shared.clock)


def _infiniband(cluster: Cluster, events: Events, shared: GroupContext) -> list[Controller]:
    caches = shared.informers
    follow = InfiniBandInformers(
        vpcs=caches.vpcs,
        attachments=caches.attachments,
        servers=caches.servers,
        pools=caches.network_pools,
        claims=caches.network_claims,
        fabrics=caches.infiniband_fabrics,
        networks=caches.infiniband_networks,
    )
    connections = UfmConnections(cluster)
    shared.meters.watch(connections.bulkhead)
    return build_infiniband_controllers(cluster, follow, events, shared.clock, connections=connections)


GROUPS: Final[Mapping[str, Callable[[Cluster, Events, GroupContext], list[Controller]]]] = {
    "inventory": _inventory,
    "orders": _orders,
    "join": _join,
    "approver": _approver,
    "health": _health,
    "maintenance": _maintenance,
    "rollout": _rollout,
    "power": _power,
    "network": _network,
    "infiniband": _infiniband,
}
"""By name. The cluster and the Events that each is given are those of its account."""
