"""The controllers of InfiniBand, following their caches: P_Keys, the networks of fabrics, UFMs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import structlog

from provisioner.api import VPC, InfiniBandFabric, InfiniBandNetwork, NetworkPool, Server, VPCAttachment
from provisioner.api.codec import decode, decode_shared, to_json
from provisioner.api.errors import NotFound
from provisioner.api.infiniband_network import InfiniBandNetworkSpec
from provisioner.api.network_pool import THE_POOL
from provisioner.cluster.client import Cluster
from provisioner.cluster.controller import Controller
from provisioner.cluster.resources import of
from provisioner.cluster.source import Source, look_up, spec_of, when_changed
from provisioner.network.infiniband.compile import Compiled, compile_network
from provisioner.network.infiniband.fabric_status import fabric_status
from provisioner.network.infiniband.pkey_controller import MANAGER, PKeys
from provisioner.network.infiniband.ufm.connections import UfmConnections
from provisioner.network.infiniband.ufm.controller import UfmReconciler

log = structlog.get_logger(__name__)

UNSYNCED_SECONDS: Final = 0.2
COMPILE_SECONDS: Final = 0.1
"""What changes within this goes into one generation."""

Object = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class InfiniBandInformers:
    """The caches that the controllers follow."""

    vpcs: Source
    attachments: Source
    servers: Source
    pools: Source
    claims: Source
    fabrics: Source
    networks: Source

    @property
    def have_synced(self) -> bool:
        sources = (
            self.vpcs,
            self.attachments,
            self.servers,
            self.pools,
            self.claims,
            self.fabrics,
            self.networks,
        )
        return all(source.has_synced for source in sources)


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
            return None
        compiled = self._compile(fabric)
        network = self._write(name, compiled.spec)
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


PORTS: Final = "infinibandPorts"


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
    _follow(informers, pkeys, fabrics, ufm)
    return [pkeys.vpcs, pkeys.releases, pkeys.pool, fabrics.controller, ufm.controller]


def _follow(informers: InfiniBandInformers, pkeys: PKeys, fabrics: FabricReconciler, ufm: UfmReconciler) -> None:
    """Queue what a change concerns: on which fabrics a VPC has ports, only compiling says."""

    def compile_all(_: str) -> None:
        for body in informers.fabrics.items():
            fabrics.controller.queue.add_after(body["metadata"]["name"], COMPILE_SECONDS)

    def claim_all(_: str) -> None:
        for body in informers.claims.items():
            if spec_of(body).get("type") == "PKey":
                pkeys.releases.queue.add(body["metadata"]["name"])

    def vpc_changed(key: str) -> None:
        pkeys.vpcs.queue.add(key)
        compile_all(key)
        claim_all(key)

    def assign_waiting() -> None:
        for body in informers.vpcs.items():
            if spec_of(body).get("infiniband") and not (body.get("status") or {}).get("pkey"):
                pkeys.vpcs.queue.add(f"{body['metadata']['namespace']}/{body['metadata']['name']}")

    def claim_changed(name: str) -> None:
        pkeys.releases.queue.add(name)
        if informers.claims.get(name) is None:
            assign_waiting()
        pkeys.pool.queue.add(THE_POOL)
        compile_all(name)

    def pool_changed(name: str) -> None:
        pkeys.pool.queue.add(name)
        compile_all(name)
        assign_waiting()

    def fabric_changed(name: str) -> None:
        fabrics.controller.queue.add(name)
        ufm.controller.queue.add(name)

    def network_changed(name: str) -> None:
        fabrics.controller.queue.add(name)
        claim_all(name)

    informers.fabrics.subscribe(when_changed(_spec_and_end, fabric_changed))
    informers.networks.subscribe(when_changed(lambda body: body, network_changed))
    informers.networks.subscribe(when_changed(_spec_and_end, ufm.controller.queue.add))
    informers.claims.subscribe(when_changed(_pkey_claim, claim_changed))
    informers.pools.subscribe(when_changed(_spec_and_end, pool_changed))
    informers.vpcs.subscribe(when_changed(_infiniband, vpc_changed))
    informers.attachments.subscribe(when_changed(_spec_and_end, compile_all))
    informers.servers.subscribe(when_changed(_ports, compile_all))


def _spec_and_end(body: Object | None) -> Any:
    return None if body is None else (body["spec"], body["metadata"].get("deletionTimestamp"))


def _pkey_claim(body: Object | None) -> Any:
    return body if body is not None and body["spec"].get("type") == "PKey" else None


def _infiniband(body: Object | None) -> Any:
    """What a VPC wants of InfiniBand; of one without, that it is there."""
    if body is None:
        return None
    metadata = body["metadata"]
    return metadata.get("uid"), body["spec"].get("infiniband"), metadata.get("deletionTimestamp")


def _ports(body: Object | None) -> Any:
    spec = spec_of(body)
    if not spec.get(PORTS):
        return None
    return spec[PORTS], spec.get("tenant"), spec.get("acceptance"), spec.get("networkQuarantined")
