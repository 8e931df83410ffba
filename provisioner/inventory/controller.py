"""The inventory controllers' effects: give addresses, tell who waits and for what, count racks.

What a server is told is decided on the caches and written under its resourceVersion; a new address only once it is
claimed (`claims.py`). So several threads may work, and two leaders do no harm.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import structlog

from provisioner.api import Rack, Server
from provisioner.api.codec import decode_shared
from provisioner.api.errors import NotFound
from provisioner.cluster.client import Cluster
from provisioner.cluster.controller import Controller
from provisioner.cluster.events import Events
from provisioner.cluster.source import Caches, Lookup, Source
from provisioner.inventory.addresses.allocate import Holders
from provisioner.inventory.addresses.claims import AddressClaimer, ClaimBook, address_of, claims_of
from provisioner.inventory.addresses.subnets import FreeAddresses
from provisioner.inventory.counts import Counts, network_keys, overlapping_racks, rack_status
from provisioner.inventory.duplicates import Claim, system_uuid_claim
from provisioner.inventory.judge import Judgement, Surroundings, judge, unclaimed
from provisioner.inventory.rivals import ClaimIndex, exclusive_claims, find_rivals
from provisioner.inventory.unknown import UnknownMachines

log = structlog.get_logger(__name__)

MANAGER: Final = "provisioner-inventory"
UNSYNCED_SECONDS: Final = 0.2
RESYNC_SECONDS: Final = 3600.0
CLAIM_SECONDS: Final = 15.0
"""A server that waits for its claim is looked at so often, whatever happens."""
COUNT_SECONDS: Final = 1.0
"""Counts are written no more often."""
WORKERS: Final = 8

_OWNED: Final = ("address", "subnetName")
_OWNED_CONDITIONS: Final = ("Discovered", "Accepted")

Object = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class InventoryInformers(Caches):
    """The caches that the inventory follows."""

    racks: Source
    servers: Source
    address_blocks: Source


class _NamesByAddress:
    """An index of servers by an address, asked like a mapping."""

    def __init__(self, servers: Lookup) -> None:
        self._servers = servers

    def get(self, address: str, default: Collection[str], /) -> Collection[str]:
        return [body["metadata"]["name"] for body in self._servers.get(address)] or default


class ServerReconciler:
    """Address and conditions of one Server at a time, by name."""

    def __init__(
        self,
        cluster: Cluster,
        informers: InventoryInformers,
        index: ClaimIndex,
        events: Events,
        *,
        clock: Callable[[], datetime],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._informers = informers
        self._index = index
        self._events = events
        self._clock = clock
        self.controller = Controller("inventory-servers", self.reconcile, workers=WORKERS)
        self.free = FreeAddresses()
        self.book = ClaimBook(self.free)
        self.holders = Holders(
            given=_NamesByAddress(informers.servers.index(lambda body: [address_of(body)])),
            pinned=_NamesByAddress(informers.servers.index(lambda body: [pinned_address(body)])),
            claimed=self.book,
        )
        self.claimer = AddressClaimer(
            cluster, informers.servers, self.book, self._judge, news=self.controller.queue.add, monotonic=monotonic
        )

    def reconcile(self, name: str) -> float | None:
        """Write what the inventory says of the server, if it says something new. Raises: Retryable, NeedsHuman."""
        if not self._informers.have_synced:
            return UNSYNCED_SECONDS  # a rack that is not in the cache yet is not a missing rack
        body = self._informers.servers.get(name)
        if body is None or body["metadata"].get("deletionTimestamp"):
            if body is None and self.book.of(name):
                self.claimer.ask(name)
            return None
        judgement = self._judge(body)
        claims, address = self.book.of(name), judgement.address
        # An address of before there were claims; what another has claimed is left to who sorts that out.
        is_claimed = address is None or bool(self.book.get(address, ()))
        if judgement.allocates:
            is_claimed = address is not None and self.book.has_written(name, address)
        if not is_claimed or claims - {address, address_of(body)}:
            self.claimer.ask(name)
        if judgement.allocates and not is_claimed:
            failure = self.claimer.failure(name)
            if failure is not None:
                says = unclaimed(decode_shared(Server, body), judgement, failure, self._clock())
                if _says_something_new(body, says):
                    self._write(body, says)
            return CLAIM_SECONDS
        if _says_something_new(body, judgement):
            self._write(body, judgement)
        return judgement.requeue_after_seconds or RESYNC_SECONDS

    def _judge(self, body: Object) -> Judgement:
        server = decode_shared(Server, body)
        rack = self._informers.racks.get(server.spec.rack_ref) if server.spec.rack_ref else None
        claimants = self._index.claimants(exclusive_claims(body))
        surroundings = Surroundings(
            rack=decode_shared(Rack, rack) if rack is not None else None,
            rivals=find_rivals(body, claimants, self._informers.servers.get),
            claimed_by=self._claimed_by(server),
            holders=self.holders,
            claims=self.book.of(server.name),
            lowest_free=self.free.lowest,
        )
        return judge(server, surroundings, self._clock())

    def _claimed_by(self, server: Server) -> dict[str, str]:
        """Registered servers whose serial number or UUID an unknown machine claims."""
        discovery = server.status.discovery
        if discovery is None or server.spec.acceptance != "Pending":
            return {}
        claims = [Claim("serial number", discovery.serial_number.upper())] if discovery.serial_number else []
        claims += [system_uuid_claim(discovery.system_uuid)] if discovery.system_uuid else []
        found = self._index.claimants(claims)
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
            log.info("address was given", server=name, address=judgement.address, subnet=judgement.subnet_name)
            self._events.record(
                body, "Normal", "AddressAllocated", f"Address {judgement.address} in subnet {judgement.subnet_name}"
            )
            if judgement.accepted.status == "True":
                return  # that says it all
        accepted = judgement.accepted
        old = before.get("Accepted", {})
        if (old.get("status"), old.get("reason")) != (accepted.status, accepted.reason):
            normal = accepted.status == "True" or accepted.reason in ("Pending", "Rejected")
            self._events.record(body, "Normal" if normal else "Warning", accepted.reason, accepted.message)


def _says_something_new(body: Object, judgement: Judgement) -> bool:
    status = body.get("status") or {}
    wanted = judgement.status
    conditions = [c for c in status.get("conditions") or () if c["type"] in _OWNED_CONDITIONS]
    same = all(status.get(key) == wanted.get(key) for key in _OWNED)
    return not same or sorted(conditions, key=_type) != sorted(wanted["conditions"], key=_type)


def _type(condition: Object) -> str:
    return str(condition["type"])


class RackReconciler:
    """Counts of a Rack."""

    def __init__(
        self, cluster: Cluster, informers: InventoryInformers, counts: Counts, *, clock: Callable[[], datetime]
    ) -> None:
        self._cluster = cluster
        self._informers = informers
        self._counts = counts
        self._clock = clock
        self.by_network = informers.racks.index(network_keys)

    def reconcile(self, name: str) -> float | None:
        """Write the counts if they changed. Raises: Retryable, NeedsHuman."""
        if not self._informers.have_synced:
            return UNSYNCED_SECONDS
        body = self._informers.racks.get(name)
        if body is None or body["metadata"].get("deletionTimestamp"):
            return None
        others = [decode_shared(Rack, other) for other in overlapping_racks(body, self.by_network)]
        wanted = rack_status(decode_shared(Rack, body), self._counts.of(name), others, self._clock())
        status = body.get("status") or {}
        if any(status.get(key) != value for key, value in wanted.items()):
            try:
                self._cluster.apply_status(Rack, name, wanted, manager=MANAGER)
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
    """The controllers of servers and racks, following their caches. Build them anew for each leadership."""
    index, counts = ClaimIndex(exclusive_claims), Counts()
    servers = ServerReconciler(cluster, informers, index, recorder, clock=clock, monotonic=monotonic)
    racks = RackReconciler(cluster, informers, counts, clock=clock)
    rack_controller = Controller("inventory-racks", racks.reconcile)

    def recount(rack: str) -> None:
        rack_controller.queue.add_after(rack, COUNT_SECONDS)

    _follow(informers, servers, index, counts, recount, racks.by_network)
    unknown = UnknownMachines(cluster, informers.servers, clock=clock)
    return [servers.controller, servers.claimer.controller, unknown.controller, rack_controller]


def _follow(
    informers: InventoryInformers,
    reconciler: ServerReconciler,
    index: ClaimIndex,
    counts: Counts,
    recount: Callable[[str], None],
    racks_by_network: Lookup,
) -> None:
    """Queue what a change concerns. The progress of a boot concerns nothing here."""
    servers_by_rack = informers.servers.index(lambda body: [body["spec"].get("rackRef")])
    add_server = reconciler.controller.queue.add

    def server_changed(name: str, old: Object | None, new: Object | None) -> None:
        if _of_interest(old) != _of_interest(new):
            for affected in (name, *index.change(name, old, new)):
                add_server(affected)
        for address in {address_of(old), pinned_address(old)} - {address_of(new), pinned_address(new)}:
            if address is not None:
                reconciler.free.freed(address)
        for rack in counts.change(old, new):
            recount(rack)

    def rack_changed(name: str, old: Object | None, new: Object | None) -> None:
        if old is not None and new is not None and old["spec"] == new["spec"]:
            return
        reconciler.free.forget()
        recount(name)
        for body in (old, new):
            for other in overlapping_racks(body, racks_by_network) if body is not None else ():
                recount(other["metadata"]["name"])
        for body in servers_by_rack.get(name):
            add_server(body["metadata"]["name"])

    def block_changed(name: str, old: Object | None, new: Object | None) -> None:
        for server in reconciler.book.take(name, new):
            add_server(server)
        for address in claims_of(old).keys() - claims_of(new).keys():
            for server in reconciler.holders.given.get(address, ()):
                add_server(server)  # the claim was somebody else's: it makes its own

    informers.address_blocks.subscribe(block_changed)
    informers.servers.subscribe(server_changed)
    informers.racks.subscribe(rack_changed)


def pinned_address(server: Object | None) -> str | None:
    """The address that a Server pins; a rejected one pins none."""
    spec = (server or {}).get("spec", {})
    return spec.get("bootAddress") if spec.get("acceptance") != "Rejected" else None


def _of_interest(body: Object | None) -> Any:
    """What the judgement of a server depends on, and what it writes."""
    if body is None:
        return None
    status = body.get("status") or {}
    own = [c for c in status.get("conditions") or () if c.get("type") in _OWNED_CONDITIONS]
    return body["spec"], [status.get(field) for field in _OWNED], status.get("discovery"), own
