"""What proves that an attempt at a reboot took effect, and on which image. Pure.

Boot ids, not readiness: a reboot may be too quick for the Node ever to be seen NotReady.
"""

from __future__ import annotations

from typing import Final

from provisioner.api.conditions import find_condition
from provisioner.maintenance.facts import MaintenanceFacts
from provisioner.rules.boot_order import joined_boot_id

NOT_ORDERED: Final = "the boot controller has not ordered the boot yet"


def new_boot(facts: MaintenanceFacts) -> str | None:
    """Kernel boot id of a boot after the one before the attempt; None while none was seen.

    By the Node, or earlier by the join of the order that answers the attempt. Where no boot was known before, only the
    join tells a new boot from the one that was there.
    """
    status, node, server = facts.maintenance.status, facts.node, facts.server
    attempt, before = status.reboot, (status.boot_id_before or "").lower()
    if attempt is None or server is None:
        return None
    order, joined = server.status.order, joined_boot_id(server)
    if order is not None and order.attempt_id == attempt.id and joined not in (None, before):
        return joined
    if node is None or node.boot_id is None or not before or node.boot_id == before:
        return None
    return node.boot_id


def is_wrong_image(facts: MaintenanceFacts) -> bool:
    """Whether the machine itself says, in its new boot, that it runs another image than the one ordered."""
    status, node, server = facts.maintenance.status, facts.node, facts.server
    attempt = status.reboot
    if attempt is None or node is None or node.boot_id is None or node.boot_id == (status.boot_id_before or "").lower():
        return False
    if node.facts is not None:
        return node.facts.image_digest != attempt.image_digest
    checked = server.status.verification if server is not None else None
    if checked is None or checked.boot_id.lower() != node.boot_id or checked.image_digest is None:
        return False
    return checked.image_digest != attempt.image_digest


def awaited_order(facts: MaintenanceFacts) -> str | None:
    """What is still missing until the machine may boot and will be let in again; None if nothing is."""
    server, node, attempt = facts.server, facts.node, facts.maintenance.status.reboot
    order = server.status.order if server is not None else None
    if attempt is None or order is None or order.attempt_id != attempt.id:
        return NOT_ORDERED
    if node is not None and node.prepared_order != order.id:
        return f"the join controller has not prepared the Node for boot order {order.id} yet"
    prepared = find_condition(server.status.conditions, "NodePrepared") if server is not None else None
    if prepared is not None and prepared.status == "False":
        return f"the Node cannot be prepared: {prepared.message}"
    return None
