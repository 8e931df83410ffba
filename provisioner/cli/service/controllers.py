"""The controllers of one leadership: built when it begins, stopped when it ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

import structlog

from provisioner.api.machinery.errors import Forbidden, ProvisionerError
from provisioner.cli.service.groups import GROUPS, GroupContext, account_of
from provisioner.cli.service.informers import SharedInformers
from provisioner.cluster.client import Cluster
from provisioner.cluster.controller import Controller
from provisioner.cluster.events import EventRecorder
from provisioner.cluster.metrics import Meters
from provisioner.cluster.process import Process
from provisioner.cluster.source import Source, conditions_of
from provisioner.cluster.tracing.tracer import BootTracer
from provisioner.jobs.slurm.workloads import share_slurm

log = structlog.get_logger(__name__)

LOOK_FOR_STOP_SECONDS: Final = 1.0
ASK_AGAIN_SECONDS: Final = 2.0
ALL: Final = tuple(GROUPS)


def run_controllers(
    cluster: Cluster,
    stop: threading.Event,
    *,
    boot_url: str,
    power_poll_seconds: float,
    clock: Callable[[], datetime],
    meters: Meters,
    groups: Sequence[str] = ALL,
    process: Process | None = None,
    tracer: BootTracer | None = None,
) -> None:
    """Run the controllers of `groups` until `stop` is set; returns when their work under way has ended.

    `cluster` is the process's own door: by it all of them read what they follow. Each group writes as its account.
    """
    clients = connect_groups(cluster, groups, stop)
    if clients is None:
        return
    informers = SharedInformers(cluster)
    shared = GroupContext(
        informers=informers,
        clock=clock,
        boot_url=boot_url,
        power_poll_seconds=power_poll_seconds,
        meters=meters,
        stop=stop,
        slurm=share_slurm(clock),
    )
    recorder = EventRecorder(cluster, "provisioner-controller", dropped=meters.event_dropped)
    controllers: list[Controller] = []
    for group, client in clients.items():
        controllers += GROUPS[group](client, recorder.written_by(client), shared)
    process = process if process is not None else Process(meters.requests.answered_ago)
    meters.controllers.observe(controllers)
    informers.start(stop)
    with process.following(informers.made):
        _work(controllers, informers, stop, meters, groups, process, tracer)
    recorder.close()


def _work(
    controllers: Sequence[Controller],
    informers: SharedInformers,
    stop: threading.Event,
    meters: Meters,
    groups: Sequence[str],
    process: Process,
    tracer: BootTracer | None,
) -> None:
    # A decision made on half an inventory would be a wrong one: nothing is reconciled before everything is known.
    while not informers.wait_for_sync(LOOK_FOR_STOP_SECONDS):
        if stop.is_set():
            return
    _count(meters, informers, groups)
    if tracer is not None and "health" in groups:
        tracer.follow(informers.servers)
    meters.lead()
    _hurry_unseen(informers.servers, controllers)
    threads = [threading.Thread(target=each.run, args=(stop,), name=each.name, daemon=True) for each in controllers]
    for thread in threads:
        thread.start()
    with process.working(controllers):
        for thread in threads:
            thread.join()
    meters.yield_lead()


def _count(meters: Meters, informers: SharedInformers, groups: Sequence[str]) -> None:
    """Of each cache once in the fleet: by who runs the one group that follows it anyway."""
    if "health" in groups:
        meters.follow(
            informers.servers, informers.maintenances, informers.pools, informers.racks, images=informers.images
        )
    if "approver" in groups:
        meters.outcomes.follow_certificates(informers.csrs)
    if "network" in groups:
        meters.follow_network(informers.servers, informers.attachments, informers.dpu_networks, informers.network_pools)


def _hurry_unseen(servers: Source, controllers: Sequence[Controller]) -> None:
    """Who was registered while nobody led has waited longest. Nothing of what is listed here may outlive the call: the
    caller's frame lasts as long as it leads, and would keep every server as it was then."""
    unseen = [body["metadata"]["name"] for body in servers.items() if not conditions_of(body)]
    for controller in controllers:
        for name in unseen:
            controller.queue.hurry(name)


def connect_groups(cluster: Cluster, groups: Sequence[str], stop: threading.Event) -> dict[str, Cluster] | None:
    """For each group a door as its account: `cluster` itself where that is who the caller is, else by impersonation.

    Waits, and says in the log for what, until the API server allows it; None if `stop` was set before. The rights of
    an API server that was just started come a moment after it.
    """
    clients: dict[str, Cluster] = {}
    while not stop.is_set():
        try:
            if not clients:  # once: a client remembers since when it is refused
                caller = cluster.ask_who_i_am()
                clients = {
                    group: cluster if caller == account_of(group) else cluster.acting_as(account_of(group))
                    for group in groups
                }
            for client in clients.values():
                client.ask_who_i_am()
        except Forbidden as error:
            log.warning(
                "controllers may not act as their accounts",
                error=str(error),
                remedy="apply what `provisioner manifests` prints; run all controllers by the ServiceAccount "
                "provisioner-controller, and one group alone (--controllers GROUP) by provisioner-GROUP",
            )
        except ProvisionerError as error:
            log.warning("api server does not say who asks", error=str(error))
        else:
            return clients
        stop.wait(ASK_AGAIN_SECONDS)
    return None
