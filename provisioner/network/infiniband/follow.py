"""What a change concerns: one of an attachment the fabrics of its server's ports, and no others."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from provisioner.api.network.infiniband_fabric import THE_FABRIC
from provisioner.api.network.network_pool import THE_POOL
from provisioner.cluster.source import Caches, Object, Source, spec_of, when_changed
from provisioner.cluster.work_queue import WorkQueue

COMPILE_SECONDS: Final = 0.1
"""What changes within this goes into one generation."""
PORTS: Final = "infinibandPorts"

Maybe = Object | None


@dataclass(frozen=True, kw_only=True)
class InfiniBandInformers(Caches):
    """The caches that the controllers follow."""

    vpcs: Source
    attachments: Source
    servers: Source
    pools: Source
    claims: Source
    fabrics: Source
    networks: Source


@dataclass(frozen=True, kw_only=True)
class FabricQueues:
    """By what each is keyed: VPCs by namespace/name, the others by name. releases: claims."""

    vpcs: WorkQueue
    releases: WorkQueue
    pool: WorkQueue
    fabrics: WorkQueue
    ufms: WorkQueue


class FollowFabrics:
    """Puts into the queues what changes concern."""

    def __init__(self, informers: InfiniBandInformers, queues: FabricQueues) -> None:
        self._informers = informers
        self._queues = queues
        self._attachments_by_vpc = informers.attachments.index(_vpc_of)

    def subscribe(self) -> None:
        informers, queues = self._informers, self._queues
        informers.fabrics.subscribe(when_changed(_spec_and_end, self._fabric_changed))
        informers.networks.subscribe(when_changed(lambda body: body, self._network_changed))
        informers.networks.subscribe(when_changed(_spec_and_end, queues.ufms.add))
        informers.claims.subscribe(self._claim_changed)
        informers.pools.subscribe(when_changed(_spec_and_end, self._pool_changed))
        informers.vpcs.subscribe(when_changed(_infiniband, self._vpc_changed))
        informers.attachments.subscribe(self._attachment_changed)
        informers.servers.subscribe(self._server_changed)

    def _attachment_changed(self, key: str, old: Maybe, new: Maybe) -> None:
        if _spec_and_end(old) != _spec_and_end(new):
            self._compile(each for body in (old, new) for each in self._fabrics_of(body))

    def _server_changed(self, key: str, old: Maybe, new: Maybe) -> None:
        if _ports(old) == _ports(new):
            return
        if spec_of(old).get(PORTS) != spec_of(new).get(PORTS):
            self._compile_all()  # what it has registered may be doubled, or shared, on any of them
            return
        self._compile(_fabrics_in(new))

    def _vpc_changed(self, key: str) -> None:
        self._queues.vpcs.add(key)
        self._compile_vpc(key)
        self._look_at_claims()

    def _claim_changed(self, name: str, old: Maybe, new: Maybe) -> None:
        old, new = _pkey_claim(old), _pkey_claim(new)
        if old == new:
            return
        self._queues.releases.add(name)
        if new is None:
            self._assign_waiting()
        self._queues.pool.add(THE_POOL)
        for body in (old, new):
            if body is not None:
                holder = spec_of(body)["holder"]
                self._compile_vpc(f"{holder['namespace']}/{holder['name']}")

    def _pool_changed(self, name: str) -> None:
        self._queues.pool.add(name)
        self._compile_all()
        self._assign_waiting()

    def _fabric_changed(self, name: str) -> None:
        self._queues.fabrics.add(name)
        self._queues.ufms.add(name)

    def _network_changed(self, name: str) -> None:
        self._queues.fabrics.add(name)
        self._look_at_claims()

    def _compile_vpc(self, key: str) -> None:
        """The fabrics on which servers have ports that are attached to a VPC."""
        self._compile(each for body in self._attachments_by_vpc.get(key) for each in self._fabrics_of(body))

    def _compile_all(self) -> None:
        self._compile(str(body["metadata"]["name"]) for body in self._informers.fabrics.items())

    def _compile(self, fabrics: Iterable[str]) -> None:
        for each in set(fabrics):
            self._queues.fabrics.add_after(each, COMPILE_SECONDS)

    def _fabrics_of(self, attachment: Maybe) -> set[str]:
        server = spec_of(attachment).get("serverRef")
        return _fabrics_in(self._informers.servers.get(server)) if server is not None else set()

    def _look_at_claims(self) -> None:
        for body in self._informers.claims.items():
            if _pkey_claim(body) is not None:
                self._queues.releases.add(body["metadata"]["name"])

    def _assign_waiting(self) -> None:
        for body in self._informers.vpcs.items():
            if spec_of(body).get("infiniband") and not (body.get("status") or {}).get("pkey"):
                self._queues.vpcs.add(f"{body['metadata']['namespace']}/{body['metadata']['name']}")


def _vpc_of(attachment: Object) -> Iterable[Hashable]:
    return [f"{attachment['metadata']['namespace']}/{spec_of(attachment).get('vpcRef')}"]


def _fabrics_in(server: Maybe) -> set[str]:
    """Those that its ports are cabled to."""
    return {str(port.get("fabricRef", THE_FABRIC)) for port in spec_of(server).get(PORTS) or ()}


def _spec_and_end(body: Maybe) -> Any:
    return None if body is None else (body["spec"], body["metadata"].get("deletionTimestamp"))


def _pkey_claim(body: Maybe) -> Maybe:
    return body if body is not None and body["spec"].get("type") == "PKey" else None


def _infiniband(body: Maybe) -> Any:
    """What a VPC wants of InfiniBand; of one without, that it is there."""
    if body is None:
        return None
    metadata = body["metadata"]
    return metadata.get("uid"), body["spec"].get("infiniband"), metadata.get("deletionTimestamp")


def _ports(body: Maybe) -> Any:
    spec = spec_of(body)
    if not spec.get(PORTS):
        return None
    return spec[PORTS], spec.get("tenant"), spec.get("acceptance"), spec.get("networkQuarantined")
