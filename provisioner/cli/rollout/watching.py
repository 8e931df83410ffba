"""`rollout status --watch` and `--wait`: a pool followed by watches, drawn as it changes, until it is where it goes."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from datetime import UTC, datetime
from typing import Final, TextIO

from provisioner.api import Image, Maintenance, NodePool, Server
from provisioner.api.machinery.codec import decode
from provisioner.api.machinery.wording import plain
from provisioner.cli.kubectl.failing import DONE, FAILED, TIMED_OUT, BadInput
from provisioner.cli.rollout.fleet_picture import draw_fleet, one_line
from provisioner.cli.rollout.pool_view import PoolView, homes_of, make_view, read_pool
from provisioner.cli.rollout.screen import headline, what_one_can_do
from provisioner.cluster.client import Cluster
from provisioner.cluster.informer import Informer
from provisioner.cluster.resources import NODES, of
from provisioner.cluster.source import look_up
from provisioner.cluster.trim import without_managed_fields
from provisioner.join.nodes.node_object import trim_node
from provisioner.rollout.borrowed import lending_of

LEAST_SECONDS: Final = 0.5
"""Between two drawings; and so many times as long as the last one took."""
REST_TIMES: Final = 4
LOOK_SECONDS: Final = 1.0
AGES_SECONDS: Final = 30.0
"""A terminal is drawn anew so often without a change: it tells since when."""
INTERRUPTED: Final = 130

_HOME: Final = "\x1b[H"
_ERASE_LINE: Final = "\x1b[K"
_ERASE_BELOW: Final = "\x1b[J"
_CLEAR: Final = "\x1b[2J"


class FollowedPool:
    """Caches of one pool and what belongs to it. `changed` is set by every change."""

    def __init__(self, cluster: Cluster, pool: NodePool) -> None:
        self._name = pool.name
        self._pools = Informer(cluster, of(NodePool), trim=without_managed_fields)
        self._servers = [
            Informer(cluster, of(Server), field_selector=f"spec.nodePoolRef={home}", trim=without_managed_fields)
            for home in homes_of(pool)
        ]
        self._nodes = Informer(cluster, NODES, trim=trim_node)
        self._maintenances = Informer(cluster, of(Maintenance), trim=without_managed_fields)
        self._images = Informer(cluster, of(Image))
        self._all = (self._pools, *self._servers, self._nodes, self._maintenances, self._images)
        self.changed = threading.Event()

    def start(self, stop: threading.Event) -> None:
        for informer in self._all:
            informer.subscribe(lambda *_: self.changed.set())
            informer.start(stop)

    @property
    def has_synced(self) -> bool:
        return all(informer.has_synced for informer in self._all)

    def view(self, now: datetime) -> PoolView:
        """As it is known now. Raises: BadInput if the pool was deleted."""
        body = self._pools.get(self._name)
        if body is None:
            raise BadInput(f"NodePool {self._name} was deleted", hint="kubectl get nodepools")
        pool = decode(NodePool, body)
        known = (body for informer in self._servers for body in informer.items())
        servers = sorted(known, key=lambda each: str(each["metadata"]["name"]))
        lending = lending_of((decode(NodePool, each) for each in self._pools.items()), now)
        nodes = {node["metadata"]["name"]: node for node in self._nodes.items()}
        maintenances = [decode(Maintenance, each) for each in self._maintenances.items()]
        image = look_up(Image, self._images, pool.spec.image_ref)
        return make_view(pool, image, servers, nodes, maintenances, lending, now)


def watch_rollout(
    cluster: Cluster,
    name: str,
    *,
    timeout_seconds: float | None = None,
    stream: TextIO | None = None,
) -> int:
    """Show the pool until its rollout is complete, stopped itself, or the time is over; returns the exit code.

    A terminal is redrawn; elsewhere there is a line for every change. Ctrl-C ends the looking, not the rollout.
    """
    canvas = _Canvas(stream or sys.stdout)
    stop = threading.Event()
    followed = FollowedPool(cluster, read_pool(cluster, name))
    deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
    followed.start(stop)
    try:
        while True:
            if followed.has_synced and canvas.is_due(followed.changed):
                view = followed.view(datetime.now(UTC))
                canvas.show(view)
                code = outcome(view)
                if code is not None:
                    canvas.say(verdict(view))
                    return code
            if deadline is not None and time.monotonic() >= deadline:
                canvas.say(f"error: not complete within the time; see: kubectl provision rollout status {name}")
                return TIMED_OUT
            followed.changed.wait(
                LOOK_SECONDS if deadline is None else min(LOOK_SECONDS, max(0.0, deadline - time.monotonic()))
            )
            canvas.rest(stop)
    except KeyboardInterrupt:
        canvas.say(f"\nnot watched any longer; the rollout goes on. Hold it up: kubectl provision rollout pause {name}")
        return INTERRUPTED
    finally:
        stop.set()


def outcome(view: PoolView) -> int | None:
    """The exit code, once the rollout is at an end; None while it goes on."""
    if not view.is_observed:
        return None
    rollout = view.rollout
    if rollout is None or rollout.completed_time is not None:
        return DONE
    return FAILED if rollout.stopped is not None else None


def verdict(view: PoolView) -> str:
    """The last lines."""
    if outcome(view) == DONE:
        return headline(view)
    names = [standing.server.name for standing in view.named("Failed")]
    words = view.rollout.stopped.reason if view.rollout is not None and view.rollout.stopped is not None else ""
    lines = [
        f"error: the rollout of NodePool {view.pool.name} stopped ({words}): {', '.join(names) or 'see its status'}"
    ]
    return "\n".join([*lines, *(f"  {each}" for each in what_one_can_do(view))])


class _Canvas:
    """Where it is shown."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._colour = self._terminal and "NO_COLOR" not in os.environ
        self._drawn: float | None = None
        self._cost = 0.0
        self._said = ""

    def is_due(self, changed: threading.Event) -> bool:
        """Whether there is something to show; the change is taken note of."""
        if changed.is_set() or self._drawn is None:
            changed.clear()
            return True
        return self._terminal and time.monotonic() - self._drawn >= AGES_SECONDS

    def show(self, view: PoolView) -> None:
        began = time.monotonic()
        if self._terminal:
            size = shutil.get_terminal_size()
            picture = draw_fleet(view, size.columns - 1, size.lines - 2, colour=self._colour)
            start = _HOME + _CLEAR if self._drawn is None else _HOME
            self._write(start + picture.replace("\n", _ERASE_LINE + "\n") + _ERASE_BELOW)
        else:
            words = one_line(view)
            if words != self._said:
                self._write(f"{view.now:%H:%M:%S}  {words}\n")
            self._said = words
        self._drawn = time.monotonic()
        self._cost = self._drawn - began

    def rest(self, stop: threading.Event) -> None:
        """What changes within so short a time is shown together."""
        if self._drawn is not None:
            elapsed = time.monotonic() - self._drawn
            stop.wait(max(0.0, max(LEAST_SECONDS, REST_TIMES * self._cost) - elapsed))

    def say(self, words: str) -> None:
        self._write("\n".join(plain(line) for line in words.split("\n")) + "\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
