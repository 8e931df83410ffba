"""Keep the worker processes alive and informed."""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Final, NamedTuple

import structlog

from provisioner.boot.dhcp.model.config import DhcpConfig
from provisioner.boot.dhcp.responder.inventory import Delta
from provisioner.boot.dhcp.workers import sockets
from provisioner.boot.dhcp.workers.protocol import Addresses, Setup, ToWorker, Traced, WorkerQueue, WorkerReport

log = structlog.get_logger()

_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 30.0
_STEADY_SECONDS: Final = 60.0
"""A worker that lived this long is started again without a pause."""
_PIPE_TIMEOUT_SECONDS: Final = 5
"""A worker that does not take a message for so long hangs, and is replaced."""
_SILENCE_SECONDS: Final = 45.0
"""A worker that says nothing for so long, or takes so long to start, hangs too."""
_ADDRESS_CHECK_SECONDS: Final = 2.0
_STOP_SECONDS: Final = 5.0
_FAULT_PAUSE_SECONDS: Final = 1.0


@dataclass
class _Worker:
    """A place in the supervisor; the process in it comes and goes. Times are monotonic seconds."""

    index: int
    process: subprocess.Popen[bytes] | None = None
    control: Connection | None = None
    ready: bool = False
    """Whether it has asked for its setup: until then nothing is sent, so that a slow start is not taken for a hang."""
    started: float = 0.0
    heard: float = 0.0
    start_at: float = 0.0
    pause_seconds: float = 0.0
    away_since: float = 0.0
    """Since when it has not been ready, if it is not."""
    launches: int = 0


class WorkerStates(NamedTuple):
    """How the workers fare. `restarts`: since the start of the service. `away_seconds`: how long the one that has been
    away longest has been; 0 if all are ready."""

    workers: int
    ready: int
    restarts: int
    away_seconds: float


class WorkerSupervisor:
    """The workers, their sockets and the thread that looks after them.

    `snapshot` gives what a new worker must know (None: nothing yet); `on_report` takes what a worker says.
    """

    def __init__(
        self, config: DhcpConfig, *, snapshot: Callable[[], Delta | None], on_report: Callable[[WorkerReport], None]
    ) -> None:
        self._config = config
        self._snapshot = snapshot
        self._on_report = on_report
        self._workers = [_Worker(index) for index in range(config.workers)]
        self._listeners: list[list[sockets.WorkerSocket]] = []
        self._to_tell: deque[Delta | Traced] = deque()
        self._traced = Traced()
        self._addresses: dict[str, tuple[bytes, ...]] = {}
        self._stopping = threading.Event()
        self._next_check = 0.0
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Open everything and start the workers. Raises: NeedsHuman."""
        self._listeners = sockets.open_listeners(self._config)
        # Unknown machines are one worker's business: whoever meets one hands its packet over. SEQPACKET keeps packets
        # whole as DGRAM does, but its queue is bounded by bytes (about 200 packets), DGRAM's at times by 10 packets.
        self._supervisor_end, self._others_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wake_receiver.setblocking(False)
        self._wake_sender.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake_receiver, selectors.EVENT_READ, None)
        self._addresses = sockets.interface_addresses(self._listeners[0][-1].sock)
        for worker in self._workers:
            worker.away_since = time.monotonic()
            self._launch(worker)
        self._thread = threading.Thread(target=self._run, name="dhcp-supervisor", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        if self._thread is None:
            return
        self._stopping.set()
        self._wake()
        self._thread.join()
        self._thread = None

    def tell(self, change: Delta | Traced) -> None:
        """Pass a change on to every worker, in order."""
        if isinstance(change, Traced):
            self._traced = change
        self._to_tell.append(change)
        if self._thread is not None:
            self._wake()

    def states(self) -> WorkerStates:
        """May be called from any thread."""
        now = time.monotonic()
        away = [now - worker.away_since for worker in self._workers if not worker.ready]
        restarts = sum(max(0, worker.launches - 1) for worker in self._workers)
        return WorkerStates(len(self._workers), len(self._workers) - len(away), restarts, max(away, default=0.0))

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # it has been woken often enough
            self._wake_sender.send(b"\0")

    def _run(self) -> None:
        self._next_check = time.monotonic() + _ADDRESS_CHECK_SECONDS
        while not self._stopping.is_set():
            try:
                self._look_after_workers()
            except Exception:
                # Without this thread no worker is replaced or told anything any more.
                log.exception("DHCP supervisor met a fault and goes on")
                self._stopping.wait(_FAULT_PAUSE_SECONDS)
        self._end()

    def _look_after_workers(self) -> None:
        """Wait until something is to be done, and do it."""
        for key, _ in self._selector.select(self._seconds_to_wait()):
            if key.data is None:
                self._wake_receiver.recv(4096)
            else:
                self._hear(key.data)
        while self._to_tell:
            self._tell_all(self._to_tell.popleft())
        now = time.monotonic()
        if now >= self._next_check:
            self._next_check = now + _ADDRESS_CHECK_SECONDS
            self._check_addresses()
        for worker in self._workers:
            if worker.process is None and now >= worker.start_at:
                self._launch(worker)
            elif now - worker.heard > _SILENCE_SECONDS:
                self._lose(worker, f"nothing was heard of it for {_SILENCE_SECONDS:.0f} s")

    def _seconds_to_wait(self) -> float:
        times = [self._next_check, *(worker.start_at for worker in self._workers if worker.process is None)]
        return max(0.0, min(times) - time.monotonic())

    def _check_addresses(self) -> None:
        found = sockets.interface_addresses(self._listeners[0][-1].sock)
        if found != self._addresses:
            self._addresses = found
            self._tell_all(Addresses(found))

    def _launch(self, worker: _Worker) -> None:
        """Start the worker's process; if the system has no room for one now, plan to try again."""
        worker.started = worker.heard = time.monotonic()
        worker.launches += 1
        try:
            self._start_process(worker)
        except (OSError, subprocess.SubprocessError) as error:
            self._plan_start(worker)
            log.warning(
                "DHCP worker was not started",
                worker=worker.index,
                error=str(error),
                restart_after_seconds=worker.pause_seconds,
            )

    def _start_process(self, worker: _Worker) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            timeout = struct.pack("@ll", _PIPE_TIMEOUT_SECONDS, 0)
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)
            forward = self._supervisor_end if worker.index == 0 else self._others_end
            listeners = self._listeners[worker.index]
            process = subprocess.Popen(
                [sys.executable, "-m", "provisioner.boot.dhcp.workers.worker", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno(), forward.fileno(), *(listener.sock.fileno() for listener in listeners)],
            )
            # Detached, not duplicated: with the process there, nothing may fail for want of a descriptor.
            control = Connection(ours.detach())
        self._selector.register(control, selectors.EVENT_READ, worker)
        worker.process, worker.control = process, control

    def _setup(self, index: int) -> Setup:
        queues = tuple(
            WorkerQueue(listener.sock.fileno(), listener.interface, listener.interface_index, listener.discovers)
            for listener in self._listeners[index]
        )
        keeps = index == 0
        forward_fd = (self._supervisor_end if keeps else self._others_end).fileno()
        # The inventory goes with it: a successor must not take the packets that wait for those of strangers.
        addresses, known = Addresses(self._addresses), self._snapshot()
        return Setup(self._config, queues, forward_fd, keeps, addresses, known, self._traced)

    def _tell_all(self, message: ToWorker) -> None:
        for worker in self._workers:
            if worker.ready:
                self._send(worker, message)

    def _send(self, worker: _Worker, message: ToWorker) -> None:
        if worker.control is None:
            return
        try:
            worker.control.send(message)
        except Exception as error:
            # Whatever it was: a worker that missed a message knows too little, its successor is told everything.
            self._lose(worker, f"its pipe failed: {error!r}")

    def _hear(self, worker: _Worker) -> None:
        if worker.control is None:
            return
        try:
            report = worker.control.recv()
        except EOFError:
            self._lose(worker, "its pipe ended")
            return
        except Exception as error:  # what cannot be read back leaves the pipe in the middle of a message
            self._lose(worker, f"its pipe ended: {error!r}")
            return
        worker.heard = time.monotonic()
        if not worker.ready:
            worker.ready = True
            self._send(worker, self._setup(worker.index))
        self._on_report(report)

    def _lose(self, worker: _Worker, why: str) -> None:
        """Make sure that the process is gone, and plan its successor."""
        process, control = worker.process, worker.control
        if process is None or control is None:
            return
        self._selector.unregister(control)
        control.close()
        process.kill()
        status = process.wait()
        worker.process = worker.control = None
        if worker.ready:
            worker.ready, worker.away_since = False, time.monotonic()
        self._plan_start(worker)
        log.warning(
            "DHCP worker was lost",
            worker=worker.index,
            pid=process.pid,
            exit_status=status,
            why=why,
            restart_after_seconds=worker.pause_seconds,
        )

    def _plan_start(self, worker: _Worker) -> None:
        now = time.monotonic()
        if now - worker.started >= _STEADY_SECONDS:
            worker.pause_seconds = 0.0
        else:
            worker.pause_seconds = min(max(_FIRST_PAUSE_SECONDS, worker.pause_seconds * 2), _LONGEST_PAUSE_SECONDS)
        worker.start_at = now + worker.pause_seconds

    def _end(self) -> None:
        processes = [worker.process for worker in self._workers if worker.process is not None]
        for worker in self._workers:
            if worker.control is not None:
                self._selector.unregister(worker.control)
                worker.control.close()
            worker.process = worker.control = None
        for process in processes:
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._selector.close()
        sockets.close(self._listeners)
        for sock in (self._supervisor_end, self._others_end, self._wake_receiver, self._wake_sender):
            sock.close()
