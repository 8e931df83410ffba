"""What a boot order has come to, by the word of the BMC and of the join alone. Pure."""

from __future__ import annotations

from provisioner.api.maintenance import AGENT_METHODS
from provisioner.api.meta import parse_time
from provisioner.api.server import BootOrder, Server


def is_by_agent(order: BootOrder) -> bool:
    """Whether the running system's agent carries the order out; the BMC, or a hand, does otherwise."""
    return order.method in AGENT_METHODS


def is_by_bmc(server: Server) -> bool:
    """Whether the BMC carries the current order out, and with that ends what runs. Otherwise the order arms it."""
    order = server.status.order
    return server.spec.bmc is not None and (order is None or not is_by_agent(order))


def has_fetched(server: Server) -> bool:
    """Whether the join configuration of the current order was handed out."""
    order, join = server.status.order, server.status.join
    return order is not None and join is not None and join.order_id == order.id


def joined_boot_id(server: Server) -> str | None:
    """The kernel boot id, lower case, to which the join configuration of the current order was handed out."""
    join = server.status.join
    return (join.boot_id or "").lower() or None if join is not None and has_fetched(server) else None


def is_to_end(server: Server) -> bool:
    """Whether the boot that joined last is to end: the next one was ordered, and has not joined yet, or the server is
    meant to be off.

    Where an order is not carried out and the Node lives on, the boot controller revokes it.
    """
    order, join = server.status.order, server.status.join
    if server.spec.power_state == "Off":
        return True
    return order is not None and join is not None and join.order_id not in (None, order.id)


def is_settled(server: Server) -> bool:
    """Whether the Node of the current order was Ready once: its boot is over, whatever became of it."""
    order, ready = server.status.order, server.status.ready_time
    return order is not None and ready is not None and parse_time(ready) >= parse_time(order.ordered_time)
