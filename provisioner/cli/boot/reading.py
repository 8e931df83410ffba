"""What is read of Kubernetes to explain a boot: by the caller's rights, no Secret, and so many requests at most.

A server costs one request for each kind of object, whatever the size of the fleet. A MAC address from which no Server
boots may still be a further interface of one: that is found in the list of all, 500 at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from provisioner.api import Image, NodePool, Rack, Server
from provisioner.api.machinery.codec import decode
from provisioner.api.machinery.errors import Forbidden, NotFound, Refused
from provisioner.api.machinery.values import MacAddress, parse_mac
from provisioner.api.nodes.maintenance import holding_maintenance
from provisioner.boot.explain.facts import MachineObjects
from provisioner.boot.host.image_store import files_of
from provisioner.cli.kubectl.connection import find_named
from provisioner.cli.kubectl.failing import BadInput
from provisioner.cli.kubectl.filing import read_maintenances
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import LEASES, NODE_LEASES, NODES, of
from provisioner.join.admission.admit import JoinFacts
from provisioner.rules.assigned_image import current_image, joining_image_name
from provisioner.rules.boot_order import is_by_bmc
from provisioner.rules.identity import macs_of
from provisioner.rules.pool_of_server import booting_pool, ordered_pool_name


@dataclass(frozen=True, kw_only=True)
class ReadBoot:
    """join: None of a machine that no Server boots from. lease_known: whether it could be seen if the old boot lives,
    where that matters."""

    boot: MachineObjects
    join: JoinFacts
    lease_known: bool


def read_boot(cluster: Cluster, subject: str, store: Path | None = None) -> ReadBoot:
    """What is known of a machine, by its MAC address or the name of its Server.

    Raises: BadInput if `subject` is neither, or no Server has the name; Refused if a right is missing; Retryable.
    """
    mac, claimants = find_claimants(cluster, subject)
    racks = tuple(cluster.read_all(Rack))
    facts = MachineObjects(mac=mac, claimants=claimants, racks=racks)
    server = facts.server
    if server is None or server.spec.boot_mac_address != mac:
        return ReadBoot(boot=facts, join=JoinFacts(server=None), lease_known=True)
    pool_name = booting_pool(server).name
    pool = find_named(cluster, NodePool, pool_name)
    image_name = current_image(server, pool).name
    image = find_named(cluster, Image, image_name)
    dpus = tuple(_list_servers(cluster, f"spec.dpu.hostRef={server.name}"))
    node = cluster.find(NODES, server.name)
    lease, lease_known = _find_lease(cluster, server)
    # Mostly the same objects, which cost no further request.
    ordered = ordered_pool_name(server)
    join_pool = pool if ordered == pool_name else find_named(cluster, NodePool, ordered)
    joining = joining_image_name(server, join_pool)
    join_image = image if joining == image_name else find_named(cluster, Image, joining)
    return ReadBoot(
        boot=MachineObjects(
            mac=mac,
            claimants=claimants,
            racks=racks,
            pool=pool,
            image=image,
            dpus=dpus,
            maintenance=holding_maintenance(read_maintenances(cluster, server.name), server.name),
            sizes=sizes_in(store, image) if store is not None and image is not None else None,
        ),
        join=JoinFacts(server=server, pool=join_pool, image=join_image, node=node, lease=lease, dpus=dpus),
        lease_known=lease_known,
    )


def find_claimants(cluster: Cluster, subject: str) -> tuple[MacAddress, tuple[Server, ...]]:
    """The MAC address that is meant, and all Servers that name it. Raises as `read_boot`."""
    named = _as_mac(subject)
    if named is None:
        try:
            mac = _stored_mac(cluster.read(Server, subject))
        except NotFound as error:
            raise BadInput(
                f"there is no Server {subject!r}, and it is no MAC address", hint="kubectl get servers"
            ) from error
        return mac, tuple(_list_servers(cluster, f"spec.bootMACAddress={mac}"))
    booting = _list_servers(cluster, f"spec.bootMACAddress={named}")
    return named, tuple(booting or read_servers_having(cluster, {named}))


def read_servers_having(cluster: Cluster, macs: Iterable[str]) -> list[Server]:
    """The Servers that name one of the MAC addresses, as any of their interfaces, out of the list of all."""
    wanted = frozenset(macs)
    return [
        decode(Server, body)
        for body in cluster.list(of(Server), trim=lambda body: None if wanted.isdisjoint(macs_of(body)) else body).items
    ]


def sizes_in(store: Path, image: Image) -> dict[str, int | None]:
    """The size of each file that the image needs in an image store; None for a missing one. Raises: BadInput."""
    if not store.is_dir():
        raise BadInput(f"image store {store} is no folder", hint="give the --image-store of the boot service")
    return {file.path: _size(store / file.path) for file in files_of(image)}


def _size(file: Path) -> int | None:
    try:
        return file.stat().st_size
    except (OSError, ValueError):
        return None


def _as_mac(subject: str) -> MacAddress | None:
    try:
        return parse_mac(subject)
    except Refused:
        return None


def _stored_mac(server: Server) -> MacAddress:
    """spec.bootMACAddress, which an object of before the CRD's rules may have in another notation. Raises: BadInput."""
    stored = server.spec.boot_mac_address
    mac = _as_mac(stored)
    if mac != stored:
        remedy = f"write it as {mac}" if mac is not None else "give it that of the interface that boots"
        raise BadInput(
            f"spec.bootMACAddress {stored!r} of Server {server.name} is not six bytes in lower case with colons",
            hint=f"{remedy}: kubectl edit server {server.name}",
        )
    return mac


def _list_servers(cluster: Cluster, selector: str) -> list[Server]:
    return [decode(Server, body) for body in cluster.list(of(Server), field_selector=selector).items]


def _find_lease(cluster: Cluster, server: Server) -> tuple[Mapping[str, Any] | None, bool]:
    """The Lease of its Node, where no BMC ends what runs; and whether it could be told."""
    if is_by_bmc(server):
        return None, True
    try:
        return cluster.find(LEASES, server.name, namespace=NODE_LEASES), True
    except Forbidden:  # a viewer may not read them
        return None, False
