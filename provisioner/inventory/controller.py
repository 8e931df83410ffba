"""The inventory controllers' effects: give addresses, tell who waits and for what, count racks.

What a server is told is decided on the caches and written under its resourceVersion; a new address only once it is
claimed (`claims.py`). So several threads may work, and two leaders do no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import structlog

from provisioner.api import Rack, Server
from provisioner.api.machinery.codec import decode_shared
from provisioner.api.machinery.conditions import find_condition
from provisioner.cluster.client import Cluster
from provisioner.cluster.controller import Controller
from provisioner.cluster.events import Events, Happened
from provisioner.cluster.reconciler import Said, StatusReconciler, news_of
from provisioner.cluster.source import Caches, Lookup, Object, Source, conditions_of, look_up
from provisioner.inventory.addresses.allocate import Holders
from provisioner.inventory.addresses.claims import AddressClaimer, ClaimBook, address_of, claims_of
from provisioner.inventory.addresses.judge import Judgement, ServerContext, judge, unclaimed
from provisioner.inventory.addresses.subnets import FreeAddresses
from provisioner.inventory.counts import RackCounts, network_keys, overlapping_racks, rack_status
from provisioner.inventory.duplicates import Claim, system_uuid_claim
from provisioner.inventory.rivals import ClaimIndex, exclusive_claims, find_rivals
from provisioner.inventory.unknown import UnknownMachines
from provisioner.rules.ownership import owned_by

log = structlog.get_logger(__name__)

MANAGER: Final = "provisioner-inventory"
CLAIM_SECONDS: Final = 15.0
"""A server that waits for its claim is looked at so often, whatever happens."""
COUNT_SECONDS: Final = 1.0
"""Counts are written no more often."""
WORKERS: Final = 8
ALLOCATED: Final = "AddressAllocated"
_CALM: Final = ("Pending", "Rejected")

OWNED: Final = owned_by(MANAGER, Server)


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


class ServerReconciler(StatusReconciler[Said]):
    """Address and conditions of one Server at a time, by name."""

    owned = OWNED

    def __init__(
        self,
        cluster: Cluster,
        informers: InventoryInformers,
        index: ClaimIndex,
        events: Events,
        *,
        clock: Callable[[], datetime],
    ) -> None:
        super().__init__(cluster, informers.servers, events, caches=informers.all, now=clock)
        self._informers = informers
        self._index = index
        self.controller = Controller("inventory-servers", self.reconcile, workers=WORKERS)
        self.free = FreeAddresses()
        self.book = ClaimBook(self.free)
        self.holders = Holders(
            given=_NamesByAddress(informers.servers.index(lambda body: [address_of(body)])),
            pinned=_NamesByAddress(informers.servers.index(lambda body: [pinned_address(body)])),
            claimed=self.book,
        )
        self.claimer = AddressClaimer(
            cluster, informers.servers, self.book, self._judge, news=self.controller.queue.add
        )

    def leave(self, key: str, body: Object | None) -> None:
        if body is None and self.book.of(key):
            self.claimer.ask(key)

    def decide(self, key: str, body: Object) -> Said | float:
        judgement = self._judge(body)
        claims, address = self.book.of(key), judgement.address
        # An address of before there were claims; what another has claimed is left to who sorts that out.
        is_claimed = address is None or bool(self.book.get(address, ()))
        if judgement.allocates:
            is_claimed = address is not None and self.book.has_written(key, address)
        if not is_claimed or claims - {address, address_of(body)}:
            self.claimer.ask(key)
        if not judgement.allocates or is_claimed:
            return _said(body, judgement, judgement.requeue_after_seconds)
        failure = self.claimer.failure(key)
        if failure is None:
            return CLAIM_SECONDS
        return _said(body, unclaimed(decode_shared(Server, body), judgement, failure, self._now()), CLAIM_SECONDS)

    def tell(self, body: Object, said: Said) -> None:
        status = said.status or {}
        if any(event.reason == ALLOCATED for event in said.events):
            name, subnet = body["metadata"]["name"], status["subnetName"]
            log.info("address was given", server=name, address=status["address"], subnet=subnet)
        super().tell(body, said)

    def _judge(self, body: Mapping[str, Any]) -> Judgement:
        server = decode_shared(Server, body)
        claimants = self._index.claimants(exclusive_claims(body))
        surroundings = ServerContext(
            rack=look_up(Rack, self._informers.racks, server.spec.rack_ref),
            rivals=find_rivals(body, claimants, self._informers.servers.get),
            claimed_by=self._claimed_by(server),
            holders=self.holders,
            claims=self.book.of(server.name),
            lowest_free=self.free.lowest,
        )
        return judge(server, surroundings, self._now())

    def _claimed_by(self, server: Server) -> dict[str, str]:
        """Registered servers whose serial number or UUID an unknown machine claims."""
        discovery = server.status.discovery
        if discovery is None or server.spec.acceptance != "Pending":
            return {}
        claims = [Claim("serial number", discovery.serial_number.upper())] if discovery.serial_number else []
        claims += [system_uuid_claim(discovery.system_uuid)] if discovery.system_uuid else []
        found = self._index.claimants(claims)
        return {name: claim.what for claim, names in found.items() for name in names if name != server.name}


def _said(body: Object, judgement: Judgement, requeue_after_seconds: float | None) -> Said:
    """An address that was given to an accepted server says it all; else what is new about its acceptance is told."""
    before, accepted = decode_shared(Server, body).status, judgement.accepted
    news = news_of(find_condition(before.conditions, "Accepted"), accepted, is_calm=_CALM.__contains__)
    if judgement.address is not None and judgement.address != before.address:
        words = f"Address {judgement.address} in subnet {judgement.subnet_name}"
        given = Happened(type="Normal", reason=ALLOCATED, message=words)
        news = (given,) if accepted.status == "True" else (given, *news)
    return Said(status=judgement.status, events=news, requeue_after_seconds=requeue_after_seconds)


class RackReconciler(StatusReconciler[Said]):
    """Counts of a Rack."""

    owned = owned_by(MANAGER, Rack)

    def __init__(
        self,
        cluster: Cluster,
        informers: InventoryInformers,
        counts: RackCounts,
        events: Events,
        *,
        clock: Callable[[], datetime],
    ) -> None:
        super().__init__(cluster, informers.racks, events, caches=informers.all, now=clock)
        self._counts = counts
        self.by_network = informers.racks.index(network_keys)

    def decide(self, key: str, body: Object) -> Said:
        others = [decode_shared(Rack, other) for other in overlapping_racks(body, self.by_network)]
        return Said(status=rack_status(decode_shared(Rack, body), self._counts.of(key), others, self._now()))


def build_inventory_controllers(
    cluster: Cluster,
    informers: InventoryInformers,
    recorder: Events,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> list[Controller]:
    """The controllers of servers and racks, following their caches. Build them anew for each leadership."""
    index, counts = ClaimIndex(), RackCounts()
    servers = ServerReconciler(cluster, informers, index, recorder, clock=clock)
    racks = RackReconciler(cluster, informers, counts, recorder, clock=clock)
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
    counts: RackCounts,
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
    own = conditions_of(body, *OWNED.conditions)
    return body["spec"], [status.get(field) for field in OWNED.fields], status.get("discovery"), own
