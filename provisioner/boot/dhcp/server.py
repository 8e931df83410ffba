"""The responder as the boot service sees it: feed it racks and servers, be told what it saw.

The parent process never reads a DHCP packet. It opens the sockets, keeps the inventory, and keeps the workers alive.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from copy import deepcopy

import structlog

from provisioner.api.servers.rack import Rack
from provisioner.api.servers.server import Server
from provisioner.boot.dhcp.model.config import DhcpConfig
from provisioner.boot.dhcp.model.sighting import Observation, observe
from provisioner.boot.dhcp.responder.inventory import Delta, Inventory
from provisioner.boot.dhcp.responder.tally import Tally
from provisioner.boot.dhcp.workers.protocol import Traced, TracedPacket, WorkerReport
from provisioner.boot.dhcp.workers.supervisor import WorkerStates, WorkerSupervisor

log = structlog.get_logger()

_MOST_WAITING_OBSERVATIONS = 10_000


class DhcpServer:
    """A stateless DHCPv4 responder over a few worker processes.

    Nothing is answered before the first `replace`: until the inventory is known, nobody may be called unknown. All
    methods may be called from any thread. `on_observation` is called from one thread of the server's own, one call at a
    time; what it raises is logged.
    """

    def __init__(
        self,
        config: DhcpConfig,
        on_observation: Callable[[Observation], None],
    ) -> None:
        self._on_observation = on_observation
        self._on_traced: Callable[[TracedPacket], None] = lambda packet: None
        self._lock = threading.Lock()
        self._inventory = Inventory()
        self._synced = False
        self._reported_problems: dict[str, str] = {}
        self._tally = Tally()
        self._waiting: queue.Queue[Observation | None] = queue.Queue(_MOST_WAITING_OBSERVATIONS)
        self._supervisor = WorkerSupervisor(config, snapshot=self._snapshot, on_report=self._take_report)
        self._dispatcher: threading.Thread | None = None

    def start(self) -> None:
        """Open the sockets and start the workers. Raises: NeedsHuman if a port, an interface or a right is missing."""
        self._supervisor.start()
        self._dispatcher = threading.Thread(target=self._dispatch, name="dhcp-observations", daemon=True)
        self._dispatcher.start()

    def stop(self) -> None:
        """End the workers and close the sockets. A server that was stopped is not started again."""
        self._supervisor.stop()
        if self._dispatcher is not None:
            self._waiting.put(None)
            self._dispatcher.join()
            self._dispatcher = None

    def replace(self, racks: Iterable[Rack], servers: Iterable[Server]) -> None:
        """Take these as the whole inventory: what informers hold once they have synced."""
        with self._lock:
            self._inventory = Inventory.of(racks, servers)
            self._synced = True
            self._publish(self._inventory.snapshot())

    def put_rack(self, rack: Rack) -> None:
        """A rack was created or changed."""
        with self._lock:
            self._publish(self._inventory.put_rack(rack))

    def remove_rack(self, name: str) -> None:
        with self._lock:
            self._publish(self._inventory.remove_rack(name))

    def put_server(self, server: Server) -> None:
        """A server was created or changed, its status included."""
        with self._lock:
            self._publish(self._inventory.put_server(server))

    def remove_server(self, name: str) -> None:
        with self._lock:
            self._publish(self._inventory.remove_server(name))

    def trace(self, macs: Iterable[str], on_packet: Callable[[TracedPacket], None]) -> None:
        """Have `on_packet` called, from a thread of the server's own, with packets of these MAC addresses from now on;
        of none: with no more. It must not wait, and what it raises is logged."""
        self._on_traced = on_packet
        self._supervisor.tell(Traced(frozenset(bytes.fromhex(mac.replace(":", "")) for mac in macs)))

    def tally(self) -> Tally:
        """All that the workers counted since the start, as they last reported it."""
        with self._lock:
            return deepcopy(self._tally)

    def problems(self) -> dict[str, str]:
        """Objects that cannot be served as they are, and why: `Rack/r01` or `Server/r01-u01`, and a sentence."""
        with self._lock:
            return dict(self._inventory.problems)

    @property
    def workers(self) -> WorkerStates:
        """How the workers fare."""
        return self._supervisor.states()

    def _publish(self, delta: Delta) -> None:
        problems = dict(self._inventory.problems)
        new = [problem for name, problem in problems.items() if self._reported_problems.get(name) != problem]
        if new:
            log.warning("parts of the inventory were not served by DHCP", problems=new[:5], count=len(new))
        self._reported_problems = problems
        if self._synced and delta:
            self._supervisor.tell(delta)

    def _snapshot(self) -> Delta | None:
        with self._lock:
            return self._inventory.snapshot() if self._synced else None

    def _take_report(self, report: WorkerReport) -> None:
        with self._lock:
            self._tally.add(report.tally)
            observations = [observe(seen, self._inventory.server_of(seen.mac)) for seen in report.sightings]
        for packet in report.traced:
            try:
                self._on_traced(packet)
            except Exception:
                log.exception("traced packet was not told")
        for observation in observations:
            try:
                self._waiting.put_nowait(observation)
            except queue.Full:
                with self._lock:
                    self._tally.counters["observations-dropped"] += 1

    def _dispatch(self) -> None:
        while (observation := self._waiting.get()) is not None:
            try:
                self._on_observation(observation)
            except Exception:
                # The thread must outlive whatever one observation does to the service.
                log.exception("DHCP observation was not processed", mac_address=observation.mac_address)
