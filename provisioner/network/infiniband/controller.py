"""The controllers of InfiniBand, following their caches: P_Keys, the networks of fabrics, UFMs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import structlog

from provisioner.api import VPC, InfiniBandFabric, InfiniBandNetwork, NetworkPool, Server, VPCAttachment
from provisioner.api.codec import decode, decode_shared, to_json
from provisioner.api.errors import NotFound
from provisioner.api.infiniband_network import InfiniBandNetworkSpec
from provisioner.api.network_pool import THE_POOL
from provisioner.cluster.client import Cluster
from provisioner.cluster.controller import Controller
from provisioner.cluster.resources import of
from provisioner.cluster.source import look_up, spec_of
from provisioner.network.infiniband.compile import Compiled, compile_network
from provisioner.network.infiniband.fabric_status import fabric_status
from provisioner.network.infiniband.follow import PORTS, Follow, InfiniBandInformers, Queues
from provisioner.network.infiniband.pkey_controller import MANAGER, PKeys
from provisioner.network.infiniband.ufm.connections import UfmConnections
from provisioner.network.infiniband.ufm.controller import UfmReconciler

__all__ = ["FabricReconciler", "InfiniBandInformers", "build_infiniband_controllers"]

log = structlog.get_logger(__name__)

UNSYNCED_SECONDS: Final = 0.2


class FabricReconciler:
    """The network of one fabric at a time, by name; and what people read of the fabric."""

    def __init__(
        self, cluster: Cluster, informers: InfiniBandInformers, pkeys: PKeys, *, clock: Callable[[], datetime]
    ) -> None:
        self._cluster = cluster
        self._informers = informers
        self._pkeys = pkeys
        self._clock = clock
        self.controller = Controller("infiniband-fabrics", self.reconcile)

    def reconcile(self, name: str) -> float | None:
        """Write the network if its content changed. Raises: Retryable, NeedsHuman."""
        if not self._informers.have_synced:
            return UNSYNCED_SECONDS
        fabric = look_up(InfiniBandFabric, self._informers.fabrics, name)
        if fabric is None or fabric.metadata.deletion_timestamp is not None:
            self._empty(name)
            self._pkeys.note_left_out(name, ())
            return None
        compiled = self._compile(fabric)
        network = self._write(name, compiled.spec)
        self._pkeys.note_left_out(name, compiled.left_out)
        status = fabric_status(fabric, compiled, network, self._clock())
        if status != to_json(fabric.status):
            try:
                self._cluster.apply_status(InfiniBandFabric, name, status, manager=MANAGER)
            except NotFound:
                return None
        return None

    def _compile(self, fabric: InfiniBandFabric) -> Compiled:
        informers = self._informers
        return compile_network(
            fabric,
            pool=look_up(NetworkPool, informers.pools, THE_POOL),
            vpcs=[decode_shared(VPC, body) for body in informers.vpcs.items()],
            attachments=[decode_shared(VPCAttachment, body) for body in informers.attachments.items()],
            servers=[decode_shared(Server, body) for body in informers.servers.items() if spec_of(body).get(PORTS)],
            claims=self._pkeys.claims(),
        )

    def _write(self, name: str, spec: InfiniBandNetworkSpec) -> InfiniBandNetwork:
        before = look_up(InfiniBandNetwork, self._informers.networks, name)
        if before is not None and before.spec == spec:
            return before
        type_ = of(InfiniBandNetwork)
        body = {
            "apiVersion": type_.api_version,
            "kind": type_.kind,
            "metadata": {"name": name},
            "spec": to_json(spec),
        }
        network = decode(InfiniBandNetwork, self._cluster.apply(body, manager=MANAGER))
        log.info("network was compiled", fabric=name, partitions=len(spec.partitions))
        return network

    def _empty(self, name: str) -> None:
        """A fabric is gone: nobody is a member of anything. Its network stays, for P_Keys wait for its acknowledgement
        until a person deletes it, too."""
        network = look_up(InfiniBandNetwork, self._informers.networks, name)
        if network is not None and network.spec.partitions:
            spec = InfiniBandNetworkSpec(manager=network.spec.manager, pkey_ranges=network.spec.pkey_ranges)
            self._write(name, spec)


def build_infiniband_controllers(
    cluster: Cluster,
    informers: InfiniBandInformers,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    *,
    connections: UfmConnections | None = None,
) -> list[Controller]:
    """The controllers, following their caches. Build them anew for each leadership."""
    pkeys = PKeys(
        cluster,
        vpcs=informers.vpcs,
        pools=informers.pools,
        claims=informers.claims,
        networks=informers.networks,
        clock=clock,
    )
    fabrics = FabricReconciler(cluster, informers, pkeys, clock=clock)
    ufm = UfmReconciler(
        cluster, informers.fabrics, informers.networks, connections or UfmConnections(cluster), clock=clock
    )
    queues = Queues(
        vpcs=pkeys.vpcs.queue,
        releases=pkeys.releases.queue,
        pool=pkeys.pool.queue,
        fabrics=fabrics.controller.queue,
        ufms=ufm.controller.queue,
    )
    Follow(informers, queues).subscribe()
    return [pkeys.vpcs, pkeys.releases, pkeys.pool, fabrics.controller, ufm.controller]
