"""The last look before a power action: what was decided a moment ago may not be due any more.

The word of a Maintenance is what allows a Node that lives to be disturbed: jobs were waited for or evicted, and the
server counts against its pool's budget. An order that outlived its Maintenance has no such word.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime
from typing import Final

from provisioner.api.machinery.errors import NotFound, Retryable
from provisioner.api.nodes.maintenance import Maintenance
from provisioner.api.servers.server import BMC, BootOrder, Server
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import LEASES, NODE_LEASES, NODES
from provisioner.power.bmc.power_controller import ObservedPower
from provisioner.power.decide import Action, CutForCycle, StartBoot, decide, is_requested
from provisioner.rules.liveness import read_life

AGAIN_SECONDS: Final = 1.0
_NOT_ASKED_SECONDS: Final = 5.0


class NoLongerDue(Retryable):
    """The action was decided on what is not true any more, or by a leader that has been stopped."""


class NodeAlive(Retryable):
    """A Node lives on the server that was to be reset; the message says what shows it."""

    reason = "NodeAlive"


class NotAskedFor(NoLongerDue):
    """The order says that a Maintenance asks for it, and that Maintenance does not, or not any more."""

    reason = "NotAskedFor"


class Preflight:
    """Reads past the cache, and refuses everything once `stop`, the end of the leadership, is set."""

    def __init__(self, cluster: Cluster, stop: threading.Event | None, *, now: Callable[[], datetime]) -> None:
        self._cluster = cluster
        self._stop = stop or threading.Event()
        self._now = now

    @property
    def is_over(self) -> bool:
        """Whether the leadership has ended."""
        return self._stop.is_set()

    def confirm(
        self, server: Server, bmc: BMC, observed: ObservedPower, action: Action, unanswered: str | None = None
    ) -> None:
        """Return if `action`, decided on `server`, is still the one to take through the BMC described by `bmc`.

        Raises: NoLongerDue, NotAskedFor, NodeAlive; Retryable and NotFound of the cluster.
        """
        self._refuse_if_over(server)
        current = self._cluster.read(Server, server.name)
        same_machine = current.metadata.uid == server.metadata.uid and current.spec.bmc == bmc
        if not same_machine or decide(current, observed, self._now(), unanswered) != action:
            raise NoLongerDue(f"Server {server.name} changed since it was looked at", after_seconds=AGAIN_SECONDS)
        if isinstance(action, CutForCycle) or (isinstance(action, StartBoot) and action.power == "Reset"):
            self._refuse_to_disturb(current, action.order_id)
        self._refuse_if_over(server)

    def _refuse_if_over(self, server: Server) -> None:
        if self.is_over:
            raise NoLongerDue(f"Server {server.name} is for the next leader to look after: this one was stopped")

    def _refuse_to_disturb(self, server: Server, order_id: str) -> None:
        """A server that is on is only reset or cut where no Node lives, or where a Maintenance asks for just that."""
        order = server.status.order
        if order is not None and is_requested(order):
            objection = find_objection(self._cluster, server, order)
            if objection is not None:
                raise NotAskedFor(
                    f"boot order {order.id} ({order.method}) is pending, but the server is not disturbed: {objection}; "
                    f"the order is revoked if its Node lives; to have it booted: "
                    f"kubectl provision power-cycle {server.name}",
                    after_seconds=_NOT_ASKED_SECONDS,
                )
            return
        node = self._cluster.find(NODES, server.name)
        # The Lease is read last: what is decided on is as young as it can be.
        lease = self._cluster.find(LEASES, server.name, namespace=NODE_LEASES) if node is not None else None
        life = read_life(node, lease)
        sign = life.sign_of_life(self._now()) if life is not None else None
        if sign is not None:
            raise NodeAlive(
                f"boot order {order_id} is pending, but the server is not reset, for Node '{server.name}' "
                f"is alive: {sign}; to have it booted, drain the Node and switch the server off"
            )


def find_objection(cluster: Cluster, server: Server, order: BootOrder) -> str | None:
    """Why `order` of `server` is not to be carried out, in words; None if its Maintenance asks for it.

    Raises: Retryable of the cluster.
    """
    if order.maintenance_ref is None:
        return "it names no Maintenance that asks for it"
    try:
        maintenance = cluster.read(Maintenance, order.maintenance_ref)
    except NotFound:
        return f"Maintenance {order.maintenance_ref}, which asked for it, is gone"
    observed = what_differs(maintenance, server.name, order)
    return None if observed is None else f"Maintenance {order.maintenance_ref} does not ask for it: {observed}"


def what_differs(maintenance: Maintenance, server_name: str, order: BootOrder) -> str | None:
    """What keeps `maintenance` from asking for this boot of this server; None if it asks for it."""
    status, attempt = maintenance.status, maintenance.status.reboot
    if maintenance.spec.server_ref != server_name:
        return f"it is for Server {maintenance.spec.server_ref}"
    if status.phase != "Rebooting":
        return f"its phase is {status.phase or 'not set'}, not Rebooting"
    if attempt is None or attempt.id != order.attempt_id:
        return f"its attempt is {attempt.id if attempt is not None else 'not begun'}, not {order.attempt_id}"
    if attempt.method != order.method:
        return f"its attempt {attempt.id} is by {attempt.method}, not {order.method}"
    if attempt.ended_time is not None or attempt.outcome is not None:
        return f"its attempt {attempt.id} has ended"
    return None
