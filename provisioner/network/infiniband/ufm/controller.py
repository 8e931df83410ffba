"""Tells UFMs what their networks want, and acknowledges it by UFM's own word."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

import structlog

from provisioner.api import InfiniBandFabric, InfiniBandNetwork
from provisioner.api.machinery.codec import decode, to_json
from provisioner.api.machinery.conditions import is_true
from provisioner.api.network.infiniband_fabric import UFM
from provisioner.api.network.infiniband_network import InfiniBandNetworkStatus
from provisioner.cluster.client import Cluster
from provisioner.cluster.controller import Controller
from provisioner.cluster.reconciler import when_synced
from provisioner.cluster.resources import of
from provisioner.cluster.source import Source, look_up
from provisioner.network.infiniband.model import report
from provisioner.network.infiniband.model.verify import compare
from provisioner.network.infiniband.ufm.connections import UfmConnections
from provisioner.network.infiniband.ufm.plan import UfmStep, knows, plan_steps, view_of
from provisioner.network.infiniband.ufm.rest import UfmFailed, UfmRest

log = structlog.get_logger(__name__)

MANAGER: Final = "provisioner-infiniband-ufm"
LOOK_SECONDS: Final = 60.0
RETRY_SECONDS: Final = 5.0


class UfmReconciler:
    """The network of one fabric at a time, by name."""

    def __init__(
        self,
        cluster: Cluster,
        fabrics: Source,
        networks: Source,
        connections: UfmConnections,
        *,
        clock: Callable[[], datetime],
    ) -> None:
        self._cluster = cluster
        self._fabrics = fabrics
        self._networks = networks
        self._connections = connections
        self._clock = clock
        self.controller = Controller("infiniband-ufm", when_synced((fabrics, networks), self.reconcile))

    def reconcile(self, name: str) -> float | None:
        """Bring UFM to what is wanted now, read past the cache. Raises: Retryable, NeedsHuman."""
        fabric = look_up(InfiniBandFabric, self._fabrics, name)
        found = self._cluster.find(of(InfiniBandNetwork), name)
        if fabric is None or fabric.spec.ufm is None or found is None:
            return None
        network = decode(InfiniBandNetwork, found)
        if network.spec.manager != "UFM":
            return None
        status, after_seconds = self._enforce(network, fabric.spec.ufm)
        if report.says_something_new(network.status, status, self._clock()):
            version = network.metadata.resource_version
            self._cluster.apply_status(
                InfiniBandNetwork, name, to_json(status), manager=MANAGER, resource_version=version
            )
        return after_seconds

    def _enforce(self, network: InfiniBandNetwork, ufm: UFM) -> tuple[InfiniBandNetworkStatus, float]:
        """The status, and after how many seconds to look again."""
        try:
            rest = self._connections.connect(ufm)
            found = rest.partitions()
            steps = plan_steps(network.spec, found)
            for step in steps:
                carry_out(rest, step)
                log.info("ufm was told", fabric=network.name, step=step.action, pkey=step.pkey, ports=len(step.guids))
            if steps:
                found = rest.partitions()
        except UfmFailed as error:
            status = report.after_failing(network, "UFMFailed", str(error), self._clock())
            return status, max(RETRY_SECONDS, error.after_seconds)
        view = view_of(found)
        findings = compare(network.spec, view)
        status = report.after_reading(
            network,
            findings,
            self._clock(),
            read_from="UFM",
            ports=len(view.ports),
            pkeys=knows(found),
            mended=bool(steps) and _was_enforced(network),
        )
        return status, LOOK_SECONDS if findings.agrees else RETRY_SECONDS


def carry_out(rest: UfmRest, step: UfmStep) -> None:
    """Raises: UfmFailed."""
    match step.action:
        case "Remove":
            rest.remove(step.pkey, step.guids)
        case "Delete":
            rest.delete(step.pkey)
        case "Add":
            rest.add(step.pkey, step.guids, ip_over_ib=step.ip_over_ib)


def _was_enforced(network: InfiniBandNetwork) -> bool:
    """Whether this generation was in force: what differs from it since, somebody else did."""
    return network.status.observed_generation == network.metadata.generation and is_true(
        network.status.conditions, report.APPLIED
    )
