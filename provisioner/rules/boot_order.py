"""What a boot order has come to, by the word of the BMC and of the join alone. Pure."""

from __future__ import annotations

from provisioner.api.machinery.meta import parse_time
from provisioner.api.nodes.maintenance import AGENT_METHODS
from provisioner.api.servers.server import BootOrder, Server


def is_by_agent(order: BootOrder) -> bool:
    """Whether the running system's agent carries the order out; the BMC, or a hand, does otherwise."""
    return order.method in AGENT_METHODS


def is_by_bmc(server: Server) -> bool:
    """Whether the BMC carries the current order out, and with that ends what runs. Otherwise the order arms it."""
    order = server.status.order
    return server.spec.bmc is not None and (order is None or not is_by_agent(order))


def has_fetched(server: Server) -> bool:
    """Whether the join configuration of the current order was handed out: the join service says so, or its Node was
    Ready once."""
    order, join = server.status.order, server.status.join
    return order is not None and ((join is not None and join.order_id == order.id) or is_settled(server))


def joined_boot_id(server: Server) -> str | None:
    """The kernel boot id, lower case, to which the join configuration of the current order was handed out, by the join
    service's word. Where a Node reports, `is_ordered_boot` goes first."""
    join = server.status.join
    return (join.boot_id or "").lower() or None if join is not None and has_fetched(server) else None


def is_ordered_boot(server: Server, boot_id: str | None) -> bool:
    """Whether the boot that a Node reports is that of the current order.

    A kubelet reports with a certificate, which it has by a join alone. So once the configuration was handed out, every
    boot that it reports is the ordered one, but the kernel before the order, which may go on reporting for a while. To
    whom it was handed out, the boot service says, which stands in the boot network: it is asked only where the kernel
    before is not known, until the Node was Ready once.
    """
    order = server.status.order
    if order is None or boot_id is None or not has_fetched(server):
        return False
    if order.boot_id_before is not None:
        return boot_id != order.boot_id_before.lower()
    return is_settled(server) or boot_id == joined_boot_id(server)


def is_to_end(server: Server) -> bool:
    """Whether the boot that joined last is to end: the next one was ordered, and has not joined yet, or the server is
    meant to be off.

    Where an order is not carried out and the Node lives on, the boot controller revokes it.
    """
    order, join = server.status.order, server.status.join
    if server.spec.power_state == "Off":
        return True
    return order is not None and join is not None and join.order_id not in (None, order.id) and not is_settled(server)


def is_settled(server: Server) -> bool:
    """Whether the Node of the current order was Ready once: its boot is over, whatever became of it."""
    order, ready = server.status.order, server.status.ready_time
    return order is not None and ready is not None and parse_time(ready) >= parse_time(order.ordered_time)
