"""One worker process: read, decide, send. Started by the parent as `python -m provisioner.boot.dhcp.workers.worker FD`.

It holds nothing that another worker or the next one could not have from the parent, and ends when the parent does.
"""

from __future__ import annotations

import gc
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from typing import Final

from provisioner.boot.dhcp.model.sighting import Sighting
from provisioner.boot.dhcp.responder.discovery import LentAddresses
from provisioner.boot.dhcp.responder.inventory import Delta
from provisioner.boot.dhcp.responder.respond import FORWARDED, PacketOutcome, respond
from provisioner.boot.dhcp.responder.table import ReplyTable
from provisioner.boot.dhcp.responder.tally import Received, Tally
from provisioner.boot.dhcp.wire.options import LONGEST_MESSAGE
from provisioner.boot.dhcp.wire.reply import Arrival, Destination
from provisioner.boot.dhcp.workers.pause import Pauses
from provisioner.boot.dhcp.workers.protocol import (
    HEARTBEAT_SECONDS,
    MOST_SIGHTINGS,
    MOST_TRACED,
    MOST_TRACED_BYTES,
    MOST_TRACED_OF_ONE,
    Addresses,
    Setup,
    Traced,
    TracedPacket,
    WorkerReport,
)
from provisioner.boot.dhcp.workers.sockets import IP_PKTINFO, pack_pktinfo, received_time

_DATAGRAM_BYTES: Final = LONGEST_MESSAGE + 1
"""One more than is answered, so that a longer message is known for one. What is not filled is not kept."""
_REPORT_SECONDS: Final = 0.2
_MOST_PENDING: Final = 5000
_MOST_REMEMBERED: Final = 8192
_BATCH_BEGUN: Final = 64
_BATCH_DISCOVERS: Final = 48
"""DISCOVERs taken before the queue of exchanges that have begun is looked at again: fewer than are taken of that queue,
and more than half of MOST_GATHERED, so that one batch empties both."""
_BATCHES_TO_A_CLOCK: Final = 16
"""Of so many batches that are read the waits of one are noted: to ask the kernel costs a tenth of an answer."""


class Reporter:
    """Collects sightings and counters and hands them to the parent in batches; never blocks."""

    def __init__(self, control: Connection) -> None:
        self._control = control
        self._writable = select.poll()
        self._writable.register(control.fileno(), select.POLLOUT)
        self._sightings: dict[tuple[bytes, str], Sighting] = {}
        self._last_exchange: dict[tuple[bytes, str], bytes] = {}
        self._count_anew()
        self._traced: list[TracedPacket] = []
        self._due = 0.0

    def trace(self, packet: TracedPacket) -> None:
        """Hand a packet over with the next report, if there is room for one more of its MAC address."""
        mac = packet.data[28:34]
        of_one = [at for at, each in enumerate(self._traced) if each.data[28:34] == mac]
        if len(of_one) < MOST_TRACED_OF_ONE and len(self._traced) < MOST_TRACED:
            self._traced.append(packet)
        elif of_one:
            last = self._traced[of_one[-1]]
            self._traced[of_one[-1]] = last._replace(left_out=last.left_out + 1)

    def see(self, sighting: Sighting) -> None:
        """Note a sighting: one for each machine, kind and exchange; an OFFER and its ACK are one exchange."""
        key = (sighting.mac, sighting.kind)
        if self._last_exchange.get(key) == sighting.xid:
            return
        if len(self._sightings) >= _MOST_PENDING:
            self.tally.counters["sightings-dropped"] += 1
            return
        if len(self._last_exchange) >= _MOST_REMEMBERED:
            self._last_exchange.clear()
        self._last_exchange[key] = sighting.xid
        self._sightings.setdefault(key, sighting)

    def _count_anew(self) -> None:
        self.tally = Tally()
        self.received = self.tally.received()

    def flush(self, now: float) -> float:
        """Report if it is time to and the parent listens. Returns: seconds after which it should be called again.

        Without news there is an empty report now and then, by which the parent sees that this worker lives.
        """
        if now < self._due and len(self._sightings) < MOST_SIGHTINGS:
            return self._due - now
        if not self._sightings and not self.tally.counters and now < self._due + HEARTBEAT_SECONDS:
            return self._due + HEARTBEAT_SECONDS - now
        if self._writable.poll(0):
            taken = [self._sightings.pop(key) for key in list(self._sightings)[:MOST_SIGHTINGS]]
            self._control.send(WorkerReport(tuple(taken), self.tally, tuple(self._traced)))
            self._count_anew()
            self._traced = []
        self._due = now + _REPORT_SECONDS
        return _REPORT_SECONDS


class Worker:
    """The loop over this worker's queues."""

    def __init__(self, control: Connection, setup: Setup) -> None:
        self._control = control
        self._table = ReplyTable(setup.config)
        self._discovery = LentAddresses(self._table.is_taken) if setup.keeps_discovery else None
        self._forward = socket.socket(fileno=setup.forward_fd)
        self._reporter = Reporter(control)
        self._parent_lives = True
        self._batches = -1  # so that the first one is looked at
        self._traced = setup.traced.macs
        self._queues = [(socket.socket(fileno=queue.fd), queue) for queue in setup.queues]
        self._sender = self._queues[-1][0]
        for sock, _ in self._queues:
            received_time(sock)  # turns it on
        self._arrivals = {queue.interface_index: Arrival(queue.interface_index) for queue in setup.queues}
        self._interfaces = {queue.interface: queue.interface_index for queue in setup.queues if queue.interface}
        self._ancillary = {
            index: [(socket.IPPROTO_IP, IP_PKTINFO, pack_pktinfo(index, setup.config.server_address))]
            for index in self._interfaces.values()
        }
        """By interface: what makes a datagram leave by it, from the server's address."""
        self._take(setup.addresses)
        if setup.known is not None:
            self._take(setup.known)

    def run(self) -> None:
        """Serve until the parent closes the pipe."""
        poller = select.epoll()
        begun = [queue for queue in self._queues if not queue[1].discovers]
        fresh = [queue for queue in self._queues if queue[1].discovers]
        # In the order in which they are served when several are ready; with the most that each takes at a time.
        duties: dict[int, tuple[Callable[[], int], int]] = {self._control.fileno(): (self._listen_to_parent, 1)}
        for sock, queue in begun:
            duties[sock.fileno()] = partial(self._drain, sock, queue.interface_index, _BATCH_BEGUN), _BATCH_BEGUN
        for sock, queue in fresh:
            duties[sock.fileno()] = (
                partial(self._drain, sock, queue.interface_index, _BATCH_DISCOVERS),
                _BATCH_DISCOVERS,
            )
        if self._discovery is not None:
            duties[self._forward.fileno()] = self._drain_forwarded, _BATCH_DISCOVERS
        rank = {fd: n for n, fd in enumerate(duties)}
        for fd in duties:
            poller.register(fd, select.EPOLLIN)
        timeout, pauses = 0.0, Pauses(time.monotonic())
        while self._parent_lives:
            ready = poller.poll(timeout)
            if len(ready) > 1:
                ready.sort(key=lambda event: rank[event[0]])
            handled, emptied = 0, True
            for fd, _ in ready:
                duty, most = duties[fd]
                count = duty()
                handled += count
                emptied = emptied and count < most
            now = time.monotonic()
            timeout = self._reporter.flush(now)
            if pause := pauses.after(handled, now, emptied=emptied):
                time.sleep(pause)

    def _listen_to_parent(self) -> int:
        """Take every message that is there; their end is the parent's. No packets: 0."""
        try:
            while self._control.poll(0):
                self._take(self._control.recv())
        except (EOFError, ConnectionError):
            self._parent_lives = False
        return 0

    def _take(self, message: Addresses | Delta | Traced) -> None:
        if isinstance(message, Traced):
            self._traced = message.macs
        elif isinstance(message, Addresses):
            for name, index in self._interfaces.items():
                self._arrivals[index] = Arrival(index, message.by_interface.get(name, ()))
        else:
            self._table.apply(message)

    def _drain(self, sock: socket.socket, interface_index: int, most: int) -> int:
        """Handle up to `most` packets of a queue. Returns: how many there were."""
        arrival, receive = self._arrivals[interface_index], sock.recv
        packets: list[bytes] = []
        self._batches += 1
        came: float | None = None
        try:
            packets.append(receive(_DATAGRAM_BYTES))
            if not self._batches % _BATCHES_TO_A_CLOCK:
                came = received_time(sock)  # of the one that has waited longest
            while len(packets) < most:
                packets.append(receive(_DATAGRAM_BYTES))
        except BlockingIOError:
            pass
        except OSError:
            # Such as ENETDOWN while an interface goes; the next read tells again if it lasts.
            self._reporter.tally.counters["receive-failed"] += 1
        answered = self._handle(packets, arrival, self._reporter.received)
        if answered and came is not None:
            self._reporter.tally.note_wait(time.time() - came, answered)
        return len(packets)

    def _drain_forwarded(self) -> int:
        for handled in range(_BATCH_DISCOVERS):
            try:
                frame = self._forward.recv(4 + _DATAGRAM_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return handled
            arrival = self._arrivals.get(int.from_bytes(frame[:4], "big"))
            if arrival is not None:
                self._handle([frame[4:]], arrival, None)
        return _BATCH_DISCOVERS

    def _handle(self, packets: list[bytes], arrival: Arrival, received: Received | None) -> int:
        """Decide on all of a batch, then send: either is quicker while its code stays in the processor's caches.

        Returns: how many were answered. `received`: where they are counted, if they were not before.
        """
        table, discovery, now = self._table, self._discovery, time.monotonic()
        outcomes = [respond(data, arrival, table, discovery, now, received) for data in packets]
        counters, answered = self._reporter.tally.counters, 0
        for data, outcome in zip(packets, outcomes, strict=True):
            verdict, reply, destination, sighting = outcome
            counters[verdict] += 1
            if reply is not None and destination is not None:
                try:
                    self._send(reply, destination)
                    answered += 1
                except OSError:
                    counters["send-failed"] += 1
            elif outcome is FORWARDED:
                try:
                    self._forward.send(arrival.interface_index.to_bytes(4, "big") + data, socket.MSG_DONTWAIT)
                except OSError:
                    counters["forward-failed"] += 1
            if sighting is not None:
                self._reporter.see(sighting)
        if self._traced:
            self._trace(packets, outcomes)
        return answered

    def _trace(self, packets: list[bytes], outcomes: list[PacketOutcome]) -> None:
        for data, outcome in zip(packets, outcomes, strict=True):
            if data[28:34] in self._traced:
                self._reporter.trace(TracedPacket(data[:MOST_TRACED_BYTES], str(outcome.verdict), outcome.reply))

    def _send(self, reply: bytes, destination: Destination) -> None:
        host, port, interface_index = destination
        if interface_index:
            self._sender.sendmsg([reply], self._ancillary[interface_index], 0, (host, port))
        else:
            self._sender.sendto(reply, (host, port))


def main(control_fd: int) -> None:
    # Ctrl-C in a terminal reaches the whole group: the parent decides what it means, and closes the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = Connection(control_fd)
    try:
        control.send(WorkerReport((), Tally()))
        setup = control.recv()
    except (EOFError, ConnectionError):
        return
    worker = Worker(control, setup)
    gc.collect()
    gc.freeze()
    worker.run()


if __name__ == "__main__":
    main(int(sys.argv[1]))
