"""The controllers of InfiniBand, following their caches: P_Keys, the networks of fabrics, UFMs."""

from __future__ import annotations

from datetime import UTC, datetime

import structlog

from provisioner.api import VPC, InfiniBandFabric, InfiniBandNetwork, NetworkPool, Server, VPCAttachment
from provisioner.api.machinery.codec import decode, decode_shared, to_json
from provisioner.api.network.infiniband_network import InfiniBandNetworkSpec
from provisioner.api.network.network_pool import THE_POOL
from provisioner.cluster.client import Cluster
from provisioner.cluster.controller import Controller
from provisioner.cluster.events import Events
from provisioner.cluster.reconciler import Said, StatusReconciler
from provisioner.cluster.resources import of
from provisioner.cluster.source import Object, look_up, spec_of
from provisioner.network.infiniband.compile import Compiled, compile_network
from provisioner.network.infiniband.fabric_status import fabric_status
from provisioner.network.infiniband.follow import PORTS, FabricQueues, FollowFabrics, InfiniBandInformers
from provisioner.network.infiniband.pkey_controller import MANAGER, Assignments, Clock, PKeyReleases, PKeys, PoolCounts
from provisioner.network.infiniband.ufm.connections import UfmConnections
from provisioner.network.infiniband.ufm.controller import UfmReconciler
from provisioner.rules.ownership import owned_by

log = structlog.get_logger(__name__)


class FabricReconciler(StatusReconciler[Said]):
    """The network of one fabric at a time, by name; and what people read of the fabric."""

    owned = owned_by(MANAGER, InfiniBandFabric)

    def __init__(
        self, cluster: Cluster, informers: InfiniBandInformers, pkeys: PKeys, events: Events, *, clock: Clock
    ) -> None:
        super().__init__(cluster, informers.fabrics, events, caches=informers.all, now=clock)
        self._informers = informers
        self._pkeys = pkeys
        self.controller = Controller("infiniband-fabrics", self.reconcile)

    def leave(self, key: str, body: Object | None) -> None:
        self._empty(key)
        self._pkeys.note_left_out(key, ())

    def decide(self, key: str, body: Object) -> Said:
        fabric = decode_shared(InfiniBandFabric, body)
        compiled = self._compile(fabric)
        network = self._write_network(key, compiled.spec)
        self._pkeys.note_left_out(key, compiled.left_out)
        return Said(status=to_json(fabric_status(fabric, compiled, network, self._now())))

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

    def _write_network(self, name: str, spec: InfiniBandNetworkSpec) -> InfiniBandNetwork:
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
            self._write_network(name, spec)


def build_infiniband_controllers(
    cluster: Cluster,
    informers: InfiniBandInformers,
    recorder: Events,
    clock: Clock = lambda: datetime.now(UTC),
    *,
    connections: UfmConnections | None = None,
) -> list[Controller]:
    """The controllers, following their caches. Build them anew for each leadership."""
    assignments = Assignments(cluster, informers, recorder, clock=clock)
    pkeys = assignments.pkeys
    releases = PKeyReleases(cluster, informers, pkeys, recorder, clock=clock)
    counts = PoolCounts(cluster, informers, pkeys, recorder, clock=clock)
    fabrics = FabricReconciler(cluster, informers, pkeys, recorder, clock=clock)
    ufm = UfmReconciler(
        cluster, informers.fabrics, informers.networks, connections or UfmConnections(cluster), clock=clock
    )
    queues = FabricQueues(
        vpcs=assignments.controller.queue,
        releases=releases.controller.queue,
        pool=counts.controller.queue,
        fabrics=fabrics.controller.queue,
        ufms=ufm.controller.queue,
    )
    FollowFabrics(informers, queues).subscribe()
    return [each.controller for each in (assignments, releases, counts, fabrics, ufm)]
