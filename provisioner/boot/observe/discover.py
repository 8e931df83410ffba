"""Unknown machines become Server objects that wait for a person: bounded, slowly, and nobody who asks ever waits.

Only machines in a subnet with a discovery range do, and of each subnet so many; those that were heard to ask for an
address go before those that only fetched a URL. What nobody touches is deleted after a while by the inventory
(`inventory/unknown.py`), which is one at a time: boot hosts are many, and may delete nothing.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

import structlog

from provisioner.api import Rack, Server
from provisioner.api.machinery.codec import decode, encode, to_json
from provisioner.api.machinery.errors import Conflict, NotFound, ProvisionerError, Refused, Retryable
from provisioner.api.machinery.meta import rfc3339
from provisioner.api.machinery.values import MacAddress
from provisioner.api.servers.discovery import (
    MAX_WAITING_IN_SUBNET,
    Claims,
    DiscoverySubnets,
    RackPlace,
    discovered_name,
    discovered_server,
    is_waiting,
    refuse_flood,
)
from provisioner.boot.observe.server_index import ServerIndex
from provisioner.cluster.client import Cluster
from provisioner.cluster.events import Events
from provisioner.cluster.resources import of
from provisioner.cluster.source import Source, when_changed
from provisioner.rules.rate import Rate, TokenBucket

log = structlog.get_logger(__name__)

MANAGER: Final = "provisioner-boot-discovery"
"""A manager of its own: a server-side apply of the progress would give up the discovery otherwise."""

CREATED_PER_SECOND: Final = 5.0
CREATED_AT_ONCE: Final = 50.0
LONGEST_PAUSE_SECONDS: Final = 15.0
UNSEEN_SECONDS: Final = 30.0
"""For so long a Server that was made is counted although the cache does not show it."""
HEARD_SECONDS: Final = 600.0
MAX_HEARD: Final = 16_384
"""Machines that asked by DHCP are remembered for so long, and so many of them: a waiting one asks every few seconds."""


class Discoverer:
    """`offer` may be called from any thread; `run` creates the objects in one."""

    def __init__(
        self,
        cluster: Cluster,
        index: ServerIndex,
        racks: Source,
        events: Events,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._index = index
        self._racks = racks
        self._events = events
        self._now = now
        self._monotonic = monotonic
        self._changed = threading.Condition()
        self._offered: OrderedDict[str, tuple[Claims, RackPlace]] = OrderedDict()
        self._offered_in = Counter[RackPlace]()
        self._made: dict[str, tuple[RackPlace, float]] = {}
        """Servers that were made and are not in the cache yet, and when."""
        self._heard: OrderedDict[str, float] = OrderedDict()
        self._unmarked: OrderedDict[str, None] = OrderedDict()
        self._subnets: DiscoverySubnets | None = None
        self._trouble: str | None = None
        racks.subscribe(when_changed(lambda rack: rack and rack["spec"], self._forget_subnets))

    def offer(self, claims: Claims) -> str:
        """Take note of an unknown machine and return the name of its (future) Server.

        Raises: Refused if it asks from where nobody is discovered, or too many wait already.
        """
        name = discovered_name(claims.mac)
        with self._changed:
            if name in self._offered:
                return name
            place = self._find_place(claims)
            made = self._made_unseen()
            waiting_here, waiting = self._index.count_waiting(place)
            by_dhcp = self._was_heard(claims.mac)
            waiting_here += self._offered_in[place] + made.count(place)
            refuse_flood(waiting_here, waiting + len(self._offered) + len(made), by_dhcp=by_dhcp)
            self._offered[name] = claims, place
            self._offered_in[place] += 1
            if by_dhcp:
                self._offered.move_to_end(name, last=False)  # it goes before those that only fetched a URL
            self._changed.notify_all()
        return name

    def heard(self, mac: MacAddress) -> None:
        """An unknown machine that boots has asked for an address by DHCP. May be called from any thread."""
        with self._changed:
            self._heard[mac] = self._monotonic()
            self._heard.move_to_end(mac)
            if len(self._heard) > MAX_HEARD:
                self._heard.popitem(last=False)
            server = self._index.booting_from(mac)
            if server is None or not is_waiting(server) or "dhcpTime" in _discovery_of(server):
                return
            if len(self._unmarked) < MAX_WAITING_IN_SUBNET:
                self._unmarked[server["metadata"]["name"]] = None
                self._changed.notify_all()

    def _find_place(self, claims: Claims) -> RackPlace:
        address = claims.source_address
        if self._subnets is None:  # under the lock, as `_forget_subnets`: what is made of older racks does not stay
            self._subnets = DiscoverySubnets(decode(Rack, rack) for rack in self._racks.items())
        return find_place(claims, self._subnets, is_held=address is not None and self._index.holds(address))

    def _made_unseen(self) -> list[RackPlace]:
        """Where the machines are whose Servers were made a moment ago: the cache does not count them yet."""
        since = self._monotonic() - UNSEEN_SECONDS
        seen = [name for name, (_, made) in self._made.items() if made < since or self._index.servers.get(name)]
        for name in seen:
            del self._made[name]
        return [place for place, _ in self._made.values()]

    def _was_heard(self, mac: str) -> bool:
        moment = self._heard.get(mac)
        return moment is not None and self._monotonic() - moment <= HEARD_SECONDS

    def _forget_subnets(self, _rack: str) -> None:
        with self._changed:
            self._subnets = None

    @property
    def trouble(self) -> str | None:
        """Why the last attempt to record a machine failed; None if it did not."""
        return self._trouble

    def run(self, stop: threading.Event) -> None:
        """Create objects until `stop`."""
        bucket = TokenBucket.full(Rate(CREATED_PER_SECOND, CREATED_AT_ONCE), self._monotonic())
        pause = 0.0
        while not stop.is_set():
            with self._changed:
                if not self._offered and not self._unmarked:
                    self._changed.wait(timeout=1.0)
                    continue
                offered = next(iter(self._offered.items()), None)
                name = offered[0] if offered is not None else next(iter(self._unmarked))
            bucket, wait = bucket.take(self._monotonic())
            if wait:
                stop.wait(wait)
                continue
            try:
                if offered is not None:
                    self._record(name, *offered[1])
                else:
                    self._mark(name)
                self._trouble, pause = None, 0.0
            except Retryable as error:
                self._trouble = str(error)
                pause = min(LONGEST_PAUSE_SECONDS, max(2 * pause, error.after_seconds, 0.2))
                log.warning("unknown machine was not recorded", server=name, error=str(error))
                stop.wait(pause)
                continue
            except ProvisionerError as error:
                self._trouble = str(error)
                log.error("unknown machine was not recorded", server=name, error=str(error))
            except Exception:
                self._trouble = "the boot service has a fault; see its log"
                log.exception("unknown machine was not recorded", server=name)
            with self._changed:
                if offered is not None:
                    place = offered[1][1]
                    del self._offered[name]
                    self._offered_in[place] -= 1
                    if self._trouble is None:
                        self._made[name] = place, self._monotonic()
                else:
                    self._unmarked.pop(name, None)

    def wake(self) -> None:
        """Let `run` notice that it should stop."""
        with self._changed:
            self._changed.notify_all()

    def _record(self, name: str, claims: Claims, place: RackPlace) -> None:
        found = self._index.booting_from(claims.mac)
        if found is not None and not _lacks_discovery(found, name):
            return  # registered, or recorded by another boot host, meanwhile
        server = discovered_server(claims, place=place, now=self._now(), by_dhcp=self._was_heard(claims.mac))
        try:
            body = encode(server)
            body.pop("status", None)
            created = self._cluster.create(of(Server), body) if found is None else found
        except Conflict:  # another boot host was faster, or this one before it lost the answer
            created = self._cluster.get(of(Server), name)
            if not _lacks_discovery(created, name):
                return
        log.info("unknown machine was recorded", server=name, mac=claims.mac)
        try:
            self._write_discovery(created, to_json(server.status.discovery))
        except NotFound:
            return  # somebody deleted it
        self._events.record(
            created, "Normal", "Discovered", f"An unknown machine asked to boot; kubectl provision accept {name}"
        )

    def _mark(self, name: str) -> None:
        """Say of a Server that its machine was heard by DHCP."""
        server = self._index.servers.get(name)
        if server is None or not is_waiting(server) or "dhcpTime" in _discovery_of(server):
            return
        # What has changed or is gone meanwhile asks again soon.
        with suppress(Conflict, NotFound):
            self._write_discovery(server, {**_discovery_of(server), "dhcpTime": rfc3339(self._now())})

    def _write_discovery(self, server: Mapping[str, Any], discovery: Mapping[str, Any]) -> None:
        metadata = server["metadata"]
        self._cluster.apply_status(
            Server,
            metadata["name"],
            {"discovery": discovery},
            manager=MANAGER,
            resource_version=metadata["resourceVersion"],
        )


def find_place(claims: Claims, subnets: DiscoverySubnets, *, is_held: bool) -> RackPlace:
    """Where an unknown machine is recorded that asks so. is_held: whether the address is a registered server's. Pure.

    Raises: Refused if it is not recorded there.
    """
    address = claims.source_address
    place = subnets.find(address)
    if place is None:
        raise Refused(
            f"this machine ({claims.mac}) is not registered, and is not recorded: it asks from "
            f"{address or 'nowhere'}, which is in no subnet with a discovery range",
            hint="register it, or give its subnet in the Rack a discovery range",
        )
    if is_held:
        # A system that runs there would ask so for others, not the machine that boots.
        raise Refused(
            f"this machine ({claims.mac}) is not registered, and is not recorded: it asks from {address}, which is "
            f"a registered server's",
            hint="register it; if its interface was replaced, correct spec.bootMACAddress",
        )
    return place


def _lacks_discovery(server: Mapping[str, Any], name: str) -> bool:
    """Whether somebody died between making this Server and writing down what its machine said."""
    return server["metadata"]["name"] == name and is_waiting(server) and not _discovery_of(server)


def _discovery_of(server: Mapping[str, Any]) -> dict[str, Any]:
    return (server.get("status") or {}).get("discovery") or {}
