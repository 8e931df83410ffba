"""What shall hold on one fabric, of VPCs, attachments and what is registered about servers. Pure.

A port belongs to a server because a person registered its GUID. What a node says of its own ports is no identity: a
membership follows it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from provisioner.api import VPC, InfiniBandFabric, NetworkClaim, NetworkPool, Server, VPCAttachment
from provisioner.api.network.infiniband_network import InfiniBandNetworkSpec, Partition
from provisioner.network.infiniband.pkeys import held_pkeys, holder_of, wants_partition
from provisioner.rules.shares import fitting

MOST_BYTES: Final = 1_000_000
"""Of all partitions of a fabric. An object has 1.5 MB, the most that etcd takes."""
MOST_OF_A_FABRIC: Final = 8192
"""Partitions that an InfiniBandNetwork has room for."""
MOST_PARTITIONS: Final = 31
"""Of one port: with the default one, a block of its table. One that has no room for what is wanted would keep its whole
fabric from being acknowledged, and with it all tenants'."""
LEFT_OUT: Final = (
    f"a port is in {MOST_PARTITIONS} partitions at most, and each tenant has its share of what one InfiniBandNetwork "
    "holds"
)


@dataclass(frozen=True, kw_only=True)
class Compiled:
    spec: InfiniBandNetworkSpec
    doubled: tuple[str, ...] = ()
    """GUIDs that several servers have registered, sorted: none of them gets what is meant for another."""
    shared_of_servers: tuple[str, ...] = ()
    """Shared ports that are a server's, sorted: as full members of the default partition they would reach everybody."""
    left_out: tuple[str, ...] = ()
    """VPCs of which ports are left out, sorted: a port is in as many partitions as it may be, or the tenant asks for
    more than its share of the fabric's object."""

    @property
    def ports(self) -> int:
        return len({guid for partition in self.spec.partitions for guid in partition.guids})


def compile_network(
    fabric: InfiniBandFabric,
    *,
    pool: NetworkPool | None,
    vpcs: Iterable[VPC],
    attachments: Iterable[VPCAttachment],
    servers: Iterable[Server],
    claims: Iterable[NetworkClaim],
) -> Compiled:
    """The partitions of `fabric`. Whatever is doubtful is left out: a port without a partition reaches nobody."""
    owners: defaultdict[str, set[str]] = defaultdict(set)
    tenant_ports: dict[str, tuple[str | None, tuple[str, ...]]] = {}
    for server in servers:
        for port in server.spec.infiniband_ports:
            owners[port.guid].add(server.name)
        guids = tuple(port.guid for port in server.spec.infiniband_ports if port.fabric_ref == fabric.name)
        if guids and _is_let_in(server):
            tenant_ports[server.name] = server.spec.tenant, guids
    doubled = _doubled(owners)

    pkeys = held_pkeys(claims)
    partitions: dict[tuple[str, str], Partition] = {}
    members: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for vpc in vpcs:
        pkey = pkeys.get(holder_of(vpc))
        if pkey is not None and vpc.spec.infiniband is not None and wants_partition(vpc):
            key = vpc.metadata.namespace or "", vpc.name
            partitions[key] = Partition(pkey=pkey, vpc="/".join(key), ip_over_ib=vpc.spec.infiniband.ip_over_ib)
    for attachment in attachments:
        namespace = attachment.metadata.namespace or ""
        if attachment.spec.quarantined or attachment.metadata.deletion_timestamp is not None:
            continue
        tenant, guids = tenant_ports.get(attachment.spec.server_ref, (None, ()))
        if _is_its_tenants(tenant, namespace):
            members[namespace, attachment.spec.vpc_ref].update(guid for guid in guids if guid not in doubled)

    wanted = list(_with_members(partitions, members))
    fits = _fitting_partitions(wanted)
    told = {each.vpc: each.guids for each in wanted if each.pkey in fits}
    asked = {each.vpc: members[key] for key, each in partitions.items()}
    shared_of_servers = {guid for guid in fabric.spec.shared_guids if guid in owners}
    return Compiled(
        spec=InfiniBandNetworkSpec(
            manager=fabric.spec.manager,
            pkey_ranges=pool.spec.pkey_ranges if pool is not None else (),
            shared_guids=tuple(sorted({*fabric.spec.shared_guids} - shared_of_servers)),
            partitions=tuple(each for each in wanted if each.pkey in fits),
        ),
        doubled=tuple(sorted(doubled)),
        shared_of_servers=tuple(sorted(shared_of_servers)),
        left_out=tuple(sorted(vpc for vpc, guids in asked.items() if guids.difference(told.get(vpc, ())))),
    )


def _is_let_in(server: Server) -> bool:
    """Whether a server's ports may be in partitions: as the administrators say, whatever its tenant does."""
    return server.spec.acceptance == "Accepted" and not server.spec.network_quarantined


def _is_its_tenants(tenant: str | None, namespace: str) -> bool:
    """Whether an attachment in `namespace` speaks for a server of `tenant`."""
    return tenant == namespace


def _doubled(owners: Mapping[str, set[str]]) -> set[str]:
    return {guid for guid, names in owners.items() if len(names) > 1}


def _with_members(
    partitions: Mapping[tuple[str, str], Partition], members: Mapping[tuple[str, str], set[str]]
) -> Iterator[Partition]:
    """By P_Key. A port that is wanted in more than it has room for is in the first ones."""
    taken: Counter[str] = Counter()
    for key, partition in sorted(partitions.items(), key=lambda item: item[1].pkey):
        guids = sorted(guid for guid in members.get(key, ()) if taken[guid] < MOST_PARTITIONS)
        taken.update(guids)
        if guids:
            yield replace(partition, guids=tuple(guids))


def _fitting_partitions(wanted: Collection[Partition]) -> set[int]:
    """By P_Key. Each tenant has its share: one that asks for more would have the API server refuse the whole fabric."""
    each_once = {each.pkey: (each.vpc.partition("/")[0], 0, 1) for each in wanted}
    few = fitting(each_once, MOST_OF_A_FABRIC)
    sizes = {each.pkey: (each.vpc.partition("/")[0], 0, _size(each)) for each in wanted if each.pkey in few}
    return fitting(sizes, MOST_BYTES)


def _size(partition: Partition) -> int:
    """About how many bytes it is as JSON."""
    return 64 + len(partition.vpc) + sum(len(guid) + 3 for guid in partition.guids)
