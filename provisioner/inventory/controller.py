"""The inventory controllers' effects: give addresses, tell who waits and for what, count racks and pools.

Servers are reconciled by one thread: two that look for a free address at once would find the same one. A new address is
chosen on the servers as the API server has them; a cache may lag behind what was given a moment ago.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

import structlog

from provisioner.api import NodePool, Rack, Server
from provisioner.api.codec import decode
from provisioner.api.errors import NotFound
from provisioner.api.meta import Resource
from provisioner.cluster.client import Cluster
from provisioner.cluster.controller import Controller
from provisioner.cluster.events import Events
from provisioner.cluster.informer import Informer
from provisioner.inventory.address_book import AddressBook
from provisioner.inventory.allocate import Holders
from provisioner.inventory.counts import is_ready, pool_status, rack_status
from provisioner.inventory.duplicates import Claim
from provisioner.inventory.judge import Judgement, Surroundings, judge
from provisioner.inventory.rivals import ClaimIndex, address_claims, exclusive_claims, find_rivals

log = structlog.get_logger(__name__)

MANAGER: Final = "provisioner-inventory"
UNSYNCED_SECONDS: Final = 0.2
RESYNC_SECONDS: Final = 600.0

_OWNED_CONDITIONS: Final = ("Discovered", "Accepted")

Object = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class InventoryInformers:
    """The caches that the inventory follows."""

    racks: Informer
    servers: Informer
    node_pools: Informer

    @property
    def have_synced(self) -> bool:
        return self.racks.has_synced and self.servers.has_synced and self.node_pools.has_synced


class ServerReconciler:
    """Address and conditions of one Server at a time, by name. Not for several threads."""

    def __init__(
        self,
        cluster: Cluster,
        informers: InventoryInformers,
        index: ClaimIndex,
        addresses: ClaimIndex,
        events: Events,
        *,
        clock: Callable[[], datetime],
        monotonic: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._informers = informers
        self._index = index
        self._addresses = addresses
        self._events = events
        self._clock = clock
        self._book = AddressBook(cluster, monotonic=monotonic)

    def reconcile(self, name: str) -> float | None:
        """Write what the inventory says of the server, if it says something new. Raises: Retryable, NeedsHuman."""
        if not self._informers.have_synced:
            return UNSYNCED_SECONDS  # a rack that is not in the cache yet is not a missing rack
        body = self._informers.servers.get(name)
        if body is None or body["metadata"].get("deletionTimestamp"):
            return None
        server = decode(Server, body)
        surroundings = self._surroundings(server, body)
        judgement = judge(server, surroundings, self._clock())
        if judgement.allocates:
            judgement = judge(server, replace(surroundings, holders=self._book.holders()), self._clock())
        if _says_something_new(body, judgement):
            self._write(body, judgement)
        return judgement.requeue_after_seconds or RESYNC_SECONDS

    def _surroundings(self, server: Server, body: Object) -> Surroundings:
        rack = self._informers.racks.get(server.spec.rack_ref) if server.spec.rack_ref else None
        claimants = self._index.claimants(exclusive_claims(body))
        return Surroundings(
            rack=decode(Rack, rack) if rack is not None else None,
            rivals=find_rivals(body, claimants, self._informers.servers.get),
            claimed_by=self._claimed_by(server),
            holders=self._cached_holders(server),
        )

    def _cached_holders(self, server: Server) -> Holders:
        """Who else has the server's own address. For a new one all are read past the cache."""
        own = [address for address in (server.status.address, server.spec.boot_address) if address]
        found = self._addresses.claimants(Claim(what, address) for what in ("given", "pinned") for address in own)
        given, pinned = (
            {c.value: names for c, names in found.items() if c.what == what} for what in ("given", "pinned")
        )
        return Holders(given, pinned)

    def _claimed_by(self, server: Server) -> dict[str, str]:
        """Registered servers whose serial number or UUID an unknown machine claims."""
        discovery = server.status.discovery
        if discovery is None or server.spec.acceptance != "Pending":
            return {}
        claims = [
            ("serial number", (discovery.serial_number or "").upper()),
            ("system UUID", discovery.system_uuid or ""),
        ]
        found = self._index.claimants(Claim(what, value) for what, value in claims if value)
        return {name: claim.what for claim, names in found.items() for name in names if name != server.name}

    def _write(self, body: Object, judgement: Judgement) -> None:
        name = body["metadata"]["name"]
        before = {c["type"]: c for c in (body.get("status") or {}).get("conditions") or ()}
        had = (body.get("status") or {}).get("address")
        try:
            self._cluster.apply_status(
                Server,
                name,
                judgement.status,
                manager=MANAGER,
                resource_version=body["metadata"]["resourceVersion"],
            )
        except NotFound:
            return
        if judgement.address is not None and judgement.address != had:
            self._book.note(name, judgement.address)
            log.info("address was given", server=name, address=judgement.address, subnet=judgement.subnet_name)
            self._events.record(
                body, "Normal", "AddressAllocated", f"Address {judgement.address} in subnet {judgement.subnet_name}"
            )
        accepted = judgement.accepted
        old = before.get("Accepted", {})
        if (old.get("status"), old.get("reason")) != (accepted.status, accepted.reason):
            normal = accepted.status == "True" or accepted.reason in ("Pending", "Rejected")
            self._events.record(body, "Normal" if normal else "Warning", accepted.reason, accepted.message)


def _says_something_new(body: Object, judgement: Judgement) -> bool:
    status = body.get("status") or {}
    wanted = judgement.status
    conditions = [c for c in status.get("conditions") or () if c["type"] in _OWNED_CONDITIONS]
    same_address = all(status.get(key) == wanted.get(key) for key in ("address", "subnetName"))
    return not same_address or sorted(conditions, key=_type) != sorted(wanted["conditions"], key=_type)


def _type(condition: Object) -> str:
    return str(condition["type"])


class StatusReconciler:
    """Counts of a Rack or NodePool."""

    def __init__(
        self,
        cluster: Cluster,
        informers: InventoryInformers,
        kind: type[Resource],
        source: Informer,
        count: Callable[[Any], dict[str, Any]],
    ) -> None:
        self._cluster = cluster
        self._informers = informers
        self._kind = kind
        self._source = source
        self._count = count

    def reconcile(self, name: str) -> float | None:
        """Write the counts if they changed. Raises: Retryable, NeedsHuman."""
        if not self._informers.have_synced:
            return UNSYNCED_SECONDS
        body = self._source.get(name)
        if body is None or body["metadata"].get("deletionTimestamp"):
            return None
        wanted = self._count(decode(self._kind, body))
        status = body.get("status") or {}
        if any(status.get(key) != value for key, value in wanted.items()):
            try:
                self._cluster.apply_status(self._kind, name, wanted, manager=MANAGER)
            except NotFound:
                return None
        return RESYNC_SECONDS


def build_inventory_controllers(
    cluster: Cluster,
    informers: InventoryInformers,
    recorder: Events,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    *,
    monotonic: Callable[[], float] = time.monotonic,
) -> list[Controller]:
    """The controllers of servers, racks and pools, following their caches. Build them anew for each leadership."""
    index, addresses = ClaimIndex(exclusive_claims), ClaimIndex(address_claims)
    servers = ServerReconciler(cluster, informers, index, addresses, recorder, clock=clock, monotonic=monotonic)

    def count_rack(rack: Rack) -> dict[str, Any]:
        others = [decode(Rack, body) for body in informers.racks.items()]
        return rack_status(rack, informers.servers.items(), others, clock())

    def count_pool(pool: NodePool) -> dict[str, Any]:
        return pool_status(pool, informers.servers.items(), clock())

    racks = StatusReconciler(cluster, informers, Rack, informers.racks, count_rack)
    pools = StatusReconciler(cluster, informers, NodePool, informers.node_pools, count_pool)
    server_controller = Controller("inventory-servers", servers.reconcile, workers=1)
    rack_controller = Controller("inventory-racks", racks.reconcile)
    pool_controller = Controller("inventory-pools", pools.reconcile)
    _follow(
        informers,
        (index, addresses),
        add_server=server_controller.queue.add,
        add_rack=rack_controller.queue.add,
        add_pool=pool_controller.queue.add,
    )
    return [server_controller, rack_controller, pool_controller]


def _follow(
    informers: InventoryInformers,
    indices: Iterable[ClaimIndex],
    *,
    add_server: Callable[[str], None],
    add_rack: Callable[[str], None],
    add_pool: Callable[[str], None],
) -> None:
    """Queue what a change concerns. The progress of a boot concerns nothing here."""

    def server_changed(name: str, old: Object | None, new: Object | None) -> None:
        rivals = {rival for index in indices for rival in index.change(name, old, new)}
        if _of_interest(old) != _of_interest(new):
            for affected in (name, *rivals):
                add_server(affected)
        if _counted(old) != _counted(new):
            for body in (old, new):
                if body is not None and body["spec"].get("rackRef"):
                    add_rack(body["spec"]["rackRef"])
                if body is not None and body["spec"].get("nodePoolRef"):
                    add_pool(body["spec"]["nodePoolRef"])

    def rack_changed(name: str, old: Object | None, new: Object | None) -> None:
        if old is not None and new is not None and old["spec"] == new["spec"]:
            return
        for body in informers.racks.items():
            add_rack(body["metadata"]["name"])  # they may overlap, or no longer
        for body in informers.servers.items():
            if body["spec"].get("rackRef") == name:
                add_server(body["metadata"]["name"])

    def pool_changed(name: str, old: Object | None, new: Object | None) -> None:
        if old is None or new is None or old["spec"] != new["spec"]:
            add_pool(name)

    informers.servers.subscribe(server_changed)
    informers.racks.subscribe(rack_changed)
    informers.node_pools.subscribe(pool_changed)


def _of_interest(body: Object | None) -> Any:
    """What the judgement of a server depends on, and what it writes."""
    if body is None:
        return None
    status = body.get("status") or {}
    own = [c for c in status.get("conditions") or () if c.get("type") in _OWNED_CONDITIONS]
    return body["spec"], status.get("address"), status.get("subnetName"), status.get("discovery"), own


def _counted(body: Object | None) -> Any:
    """What racks and pools count of a server."""
    if body is None:
        return None
    spec = body["spec"]
    counted = (spec.get(key) for key in ("rackRef", "nodePoolRef", "acceptance", "powerState"))
    return (*counted, is_ready(body), (body.get("status") or {}).get("imageRef"))
