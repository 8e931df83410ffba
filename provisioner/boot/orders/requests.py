"""What a server's Maintenance has to do with its boot orders. Pure.

The executor writes an attempt (`status.reboot`) before anything is done about it. The boot controller answers it with
an order that repeats its id, and answers each attempt once. It is the only order that may be given while the Node
lives: by then the executor has drained it.
"""

from __future__ import annotations

from provisioner.api import Maintenance, Server
from provisioner.api.nodes.maintenance import FINAL_PHASES, RebootAttempt
from provisioner.api.servers.server import BootOrder
from provisioner.rules.disturbance import answering_order


def pending_request(server: Server, maintenance: Maintenance | None) -> RebootAttempt | None:
    """The attempt that waits for its boot order; None if there is none, or it is answered.

    A server that was never booted by the provisioner has no Node that could be prepared: its attempts are not answered.
    """
    if server.status.order is None or maintenance is None or maintenance.status.phase != "Rebooting":
        return None
    attempt = maintenance.status.reboot
    if attempt is None or attempt.ended_time is not None or answering_order(server, attempt) is not None:
        return None
    return attempt


def belongs_to(order: BootOrder, maintenance: Maintenance | None) -> bool:
    """Whether the order was given for this Maintenance."""
    return maintenance is not None and order.maintenance_ref == maintenance.name


def is_awaited(order: BootOrder, maintenance: Maintenance | None) -> bool:
    """Whether the executor still waits for the boot of that order: not once it has ended, or gone back to waiting."""
    return (
        maintenance is not None
        and belongs_to(order, maintenance)
        and maintenance.status.reboot is not None
        and maintenance.status.phase not in FINAL_PHASES
    )


def describe_request(order: BootOrder) -> str:
    """`requested by Maintenance 'r01-u01-3' (method Kexec)`."""
    return f"requested by Maintenance '{order.maintenance_ref}' (method {order.method})"
