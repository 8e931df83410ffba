"""Follows the NetworkPool and all DPUNetworks, keeps bgpd as they say, reads it back, and says so in the pool's status.

While the API server is away bgpd runs on with what it had. One that was just started, or that somebody changed, has
what is wanted within `LOOK_SECONDS`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol

import structlog

from provisioner.api import DPUNetwork, NetworkPool
from provisioner.api.machinery.codec import decode_shared, to_json
from provisioner.api.machinery.conditions import condition_of, find_condition
from provisioner.api.machinery.errors import NotFound, ProvisionerError
from provisioner.api.network.network_pool import THE_POOL
from provisioner.cluster.client import Cluster
from provisioner.cluster.source import Source, look_up, spec_of
from provisioner.network.evpn.configuration import Configuration
from provisioner.network.evpn.reflector import ReflectorClient, reflector
from provisioner.network.evpn.speaker import Fabric
from provisioner.network.evpn.vty import BgpdFailed, BgpdMissing

# What a reflector's bgpd shall run with, by the NetworkPool and all DPUNetworks. Pure.


@dataclass(frozen=True)
class WantedReflector:
    """`configuration`: without a line where this reflector has nothing to do, for which `idle` is the reason, as of a
    condition. `twice`: DPUs that are left out because another one has their address."""

    configuration: Configuration
    clients: int = 0
    twice: tuple[str, ...] = ()
    idle: str | None = None


def wanted(address: str, pool: NetworkPool | None, networks: Iterable[DPUNetwork]) -> WantedReflector:
    """`address`: the reflector's own on the underlay. DPUs whose DPUNetwork does not speak of EVPN yet, or any more,
    have their sessions as well: they change over one after the other."""
    evpn = pool.spec.evpn if pool is not None else None
    if evpn is None or evpn.asn is None:
        return WantedReflector({}, idle="NotChosen")
    if address not in evpn.reflectors:
        return WantedReflector({}, idle="NotNamed")
    clients: dict[str, ReflectorClient] = {}
    twice = []
    for network in sorted(networks, key=lambda each: each.name):
        client = client_of(network)
        if client.vtep in clients or client.vtep == address:
            twice.append(network.name)
        else:
            clients[client.vtep] = client
    fabric = Fabric(asn=evpn.asn, reflectors=evpn.reflectors)
    return WantedReflector(reflector(address, fabric, clients.values()), len(clients), tuple(twice))


def client_of(network: DPUNetwork) -> ReflectorClient:
    """It says what is in VPCs of which a port passes on it, and is told of those and of their peers."""
    spec = network.spec
    sends = frozenset(port.vni for port in spec.ports if port.state == "Tenant")
    takes = frozenset(vpc.vni for vpc in spec.vpcs if vpc.vni in sends or vpc.peer_vnis)
    return ReflectorClient(spec.vtep_address, sends & {vpc.vni for vpc in spec.vpcs}, takes)


log = structlog.get_logger(__name__)

LOOK_SECONDS: Final = 10.0
"""bgpd is read so often, though nothing changed."""
SETTLE_SECONDS: Final = 0.1
"""What changes in quick succession is told bgpd once."""
UNSYNCED_SECONDS: Final = 0.5


class BgpDaemon(Protocol):
    """As `evpn.bgpd.Bgpd`."""

    def apply(self, wanted: Configuration) -> int: ...

    def refresh(self) -> None: ...

    def sessions(self) -> Mapping[str, Any]: ...


@dataclass
class ReflectorHost:
    """bgpd of this host. `address`: its own on the underlay. Its first look has all routes pass once more: who was here
    before may have ended between a change and that."""

    address: str
    bgpd: BgpDaemon
    _is_refreshed: bool = field(default=False, init=False)
    _logged: str = field(default="", init=False)

    @property
    def condition_type(self) -> str:
        return f"Reflector.{self.address}"

    def enforce(self, wish: WantedReflector) -> tuple[bool, str, str]:
        """Bring bgpd to what is wanted. Returns: whether it is, a reason and a message, as of a condition."""
        try:
            told = self.bgpd.apply(wish.configuration)
            if not self._is_refreshed and wish.idle is None:
                self.bgpd.refresh()
                self._is_refreshed = True
            connected = established(self.bgpd.sessions())
        except BgpdFailed as error:
            reason = "BgpdMissing" if isinstance(error, BgpdMissing) else "BgpdFailed"
            return False, reason, f"{error}; what it had last, it has until then"
        if told:
            log.info("bgpd was told", lines=told, dpus=wish.clients, idle=wish.idle)
        if wish.idle is not None:
            return False, wish.idle, f"spec.routeDistribution does not name {self.address}: add it there, or end this"
        words = f"bgpd has a session to {connected} of {wish.clients} DPUs, and lets through what their DPUNetworks say"
        if wish.twice:
            first = wish.twice[0]
            rest = f", and {len(wish.twice) - 1} more" if len(wish.twice) > 1 else ""
            return False, "AddressTwice", f"{words}; DPU '{first}'{rest} has the address of another: give it its own"
        return True, "Serving", words

    def log_once(self, reason: str, message: str) -> None:
        """For each change of the reason."""
        if reason != self._logged:
            log.info("state of the reflector", reason=reason, message=message)
        self._logged = reason


def established(sessions: Mapping[str, Any]) -> int:
    """How many there are, whatever bgpd says."""
    peers = sessions.get("peers")
    found = peers.values() if isinstance(peers, Mapping) else ()
    return sum(1 for peer in found if isinstance(peer, Mapping) and peer.get("state") == "Established")


def run(
    cluster: Cluster,
    pools: Source,
    networks: Source,
    host: ReflectorHost,
    stop: threading.Event,
    *,
    clock: Callable[[], datetime],
    look_seconds: float = LOOK_SECONDS,
) -> None:
    """Until `stop` is set. What bgpd has stays with it then."""
    changed = threading.Event()

    def note(key: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> None:
        if spec_of(old) != spec_of(new) or (old is None) != (new is None):
            changed.set()

    pools.subscribe(note)
    networks.subscribe(note)
    while not stop.is_set():
        changed.clear()
        is_synced = pools.has_synced and networks.has_synced
        if is_synced:
            _once(cluster, pools, networks, host, clock)
        ends = time.monotonic() + (look_seconds if is_synced else UNSYNCED_SECONDS)
        while not stop.is_set() and time.monotonic() < ends:
            if changed.wait(max(0.0, min(0.5, ends - time.monotonic()))):
                stop.wait(SETTLE_SECONDS)
                break


def _once(
    cluster: Cluster, pools: Source, networks: Source, host: ReflectorHost, clock: Callable[[], datetime]
) -> None:
    try:
        pool = look_up(NetworkPool, pools, THE_POOL)
        found = [decode_shared(DPUNetwork, each) for each in networks.items()]
        wish = wanted(host.address, pool, found)
        holds, reason, message = host.enforce(wish)
        host.log_once(reason, message)
        if pool is not None:
            _tell(cluster, pool, host.condition_type, (holds, reason, message), clock())
    except ProvisionerError as error:
        log.warning("state of the reflector was not written", error=str(error))
    except Exception:
        log.exception("reflector was not looked at")


def _tell(cluster: Cluster, pool: NetworkPool, type_: str, said: tuple[bool, str, str], now: datetime) -> None:
    """In the pool's status, as this reflector's own part of it; nothing where routes do not go by EVPN."""
    holds, reason, message = said
    before = find_condition(pool.status.conditions, type_)
    if pool.spec.evpn is None:
        if before is not None:
            _write(cluster, type_, {"conditions": []})
        return
    settled = condition_of(pool, type_, holds, reason, message, now)
    if settled != before:
        _write(cluster, type_, {"conditions": [to_json(settled)]})


def _write(cluster: Cluster, type_: str, status: Mapping[str, Any]) -> None:
    """Raises: ProvisionerError, but for a pool that is gone."""
    try:
        cluster.apply_status(NetworkPool, THE_POOL, status, manager=f"provisioner-{type_.lower()}")
    except NotFound:
        return
