"""The controllers of one leadership: built when it begins, stopped when it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import Final

from provisioner.api import AddressBlock, Image, Maintenance, NodePool, Rack, Server
from provisioner.boot.orders.controller import build_boot_controllers
from provisioner.boot.orders.informers import BootInformers
from provisioner.cluster.client import Cluster
from provisioner.cluster.controller import Controller
from provisioner.cluster.events import EventRecorder
from provisioner.cluster.informer import Informer, without_managed_fields
from provisioner.cluster.metrics import Meters
from provisioner.cluster.resources import CSRS, JOBS, LEASES, NODE_LEASES, NODES, PODS, of
from provisioner.health.controller import HealthInformers, build_health_controllers
from provisioner.health.jobs.manifest import CHECK_LABEL
from provisioner.inventory.controller import InventoryInformers, build_inventory_controllers
from provisioner.jobs.cluster_workloads import ClusterWorkloads
from provisioner.jobs.pods import NOT_OVER, trim_pod
from provisioner.join.controller import JoinInformers, build_join_controllers
from provisioner.join.node_object import trim_node
from provisioner.maintenance.controller import build_maintenance_controllers
from provisioner.maintenance.follow import MaintenanceInformers
from provisioner.power.bmc.pool import BmcPool
from provisioner.power.controller import PowerSettings, build_power_controllers

LOOK_FOR_STOP_SECONDS: Final = 1.0


def run_controllers(
    cluster: Cluster,
    stop: threading.Event,
    *,
    namespace: str,
    boot_url: str,
    power_poll_seconds: float,
    clock: Callable[[], datetime],
    meters: Meters,
) -> None:
    """Run all controllers until `stop` is set; returns when their work under way has ended."""
    recorder = EventRecorder(cluster, "provisioner-controller", dropped=meters.event_dropped)
    pools, racks, images = (Informer(cluster, of(kind)) for kind in (NodePool, Rack, Image))
    servers = Informer(cluster, of(Server), trim=without_managed_fields)
    nodes, csrs = Informer(cluster, NODES, trim=trim_node), Informer(cluster, CSRS)
    # Who owns which field is asked of Nodes (labels) and Leases alone; of the others it would be half of the memory.
    maintenances, blocks = (
        Informer(cluster, of(kind), trim=without_managed_fields) for kind in (Maintenance, AddressBlock)
    )
    leases = Informer(cluster, LEASES, namespace=NODE_LEASES)
    check_jobs, check_pods = (
        Informer(cluster, kind, label_selector=CHECK_LABEL, trim=without_managed_fields) for kind in (JOBS, PODS)
    )
    pods = Informer(cluster, PODS, field_selector=NOT_OVER, trim=trim_pod)
    workloads = ClusterWorkloads(cluster, recorder, pods, namespace=namespace, now=clock, in_lanes=True)
    controllers: list[Controller] = [
        *build_inventory_controllers(
            cluster,
            InventoryInformers(racks=racks, servers=servers, node_pools=pools, address_blocks=blocks),
            recorder,
            clock,
        ),
        *build_boot_controllers(
            cluster,
            BootInformers(
                servers=servers,
                pools=pools,
                images=images,
                racks=racks,
                nodes=nodes,
                leases=leases,
                maintenances=maintenances,
            ),
            recorder,
            clock,
        ),
        *build_join_controllers(
            cluster,
            JoinInformers(servers=servers, node_pools=pools, racks=racks, nodes=nodes, csrs=csrs),
            recorder,
            clock,
        ),
        *build_health_controllers(
            cluster,
            HealthInformers(
                servers=servers,
                pools=pools,
                images=images,
                racks=racks,
                nodes=nodes,
                leases=leases,
                maintenances=maintenances,
                jobs=check_jobs,
                pods=check_pods,
            ),
            recorder,
            clock,
        ),
        *build_maintenance_controllers(
            cluster,
            MaintenanceInformers(
                servers=servers, pools=pools, images=images, nodes=nodes, maintenances=maintenances, pods=pods
            ),
            workloads,
            recorder,
            clock,
            metrics=meters.maintenance,
        ),
        *build_power_controllers(
            cluster,
            servers,
            recorder,
            PowerSettings(
                poll_seconds=power_poll_seconds,
                http_boot_uris={
                    "x86_64": f"{boot_url.rstrip('/')}/tftp/snponly.efi",
                    "arm64": f"{boot_url.rstrip('/')}/tftp/ipxe-arm64.efi",
                },
            ),
            now=clock,
            pool=BmcPool(cluster, clock=time.monotonic, namespace=namespace),
            stop=stop,
        ),
    ]
    informers = (servers, pools, racks, images, nodes, csrs, leases, maintenances, blocks, check_jobs, check_pods, pods)
    for informer in informers:
        informer.start(stop)
    # A decision made on half an inventory would be a wrong one: nothing is reconciled before everything is known.
    while not all(informer.wait_for_sync(LOOK_FOR_STOP_SECONDS) for informer in informers):
        if stop.is_set():
            return
    meters.lead(servers, maintenances, pools, racks)
    meters.watch(workloads.slurm_bulkhead)
    # Who was registered while nobody led has waited longest.
    unseen = [body["metadata"]["name"] for body in servers.items() if not (body.get("status") or {}).get("conditions")]
    for controller in controllers:
        for name in unseen:
            controller.queue.hurry(name)
    threads = [threading.Thread(target=each.run, args=(stop,), name=each.name, daemon=True) for each in controllers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    meters.yield_lead()
    recorder.close()
