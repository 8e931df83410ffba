"""Whether the Maintenance that a boot order names asks for just that boot now, read past every cache.

Its word is what allows a Node that lives to be disturbed: jobs were waited for or evicted, and the server counts
against its pool's budget. An order that outlived its Maintenance has no such word.
"""

from __future__ import annotations

from provisioner.api.errors import NotFound
from provisioner.api.maintenance import Maintenance
from provisioner.api.server import BootOrder, Server
from provisioner.cluster.client import Cluster


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
