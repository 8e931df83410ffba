"""What proves that an attempt at a reboot took effect, and on which image. Pure.

Boot ids, not readiness: a reboot may be too quick for the Node ever to be seen NotReady.
"""

from __future__ import annotations

from provisioner.api.nodes.maintenance import AGENT_METHODS
from provisioner.maintenance.model.facts import MaintenanceFacts
from provisioner.rules.boot_order import joined_boot_id
from provisioner.rules.disturbance import answering_order


def new_boot(facts: MaintenanceFacts) -> str | None:
    """Kernel boot id of a boot after the one before the attempt; None while none was seen.

    By the Node, or earlier by the join of the order that answers the attempt. Where no boot was known before, only the
    join tells a new boot from the one that was there. One that was under way when the attempt began is none.
    """
    status, node, server = facts.maintenance.status, facts.node, facts.server
    attempt, before = status.reboot, (status.boot_id_before or "").lower()
    if attempt is None or server is None:
        return None
    order, joined = answering_order(server, attempt), joined_boot_id(server)
    if order is not None and joined not in (None, before):
        # What the BMC is to carry out has not begun before its own word, and what an agent is to carry out not while
        # its Node runs on: the join service cannot say otherwise.
        power = server.status.power
        is_by_bmc = server.spec.bmc is not None and attempt.method not in AGENT_METHODS
        if (power is not None and power.order_id == order.id) if is_by_bmc else not runs_on(facts):
            return joined
    if node is None or node.boot_id is None or not before or node.boot_id == before:
        return None
    return node.boot_id if earlier_boot(facts) is None else None


def runs_on(facts: MaintenanceFacts) -> bool:
    """Whether the boot before the attempt is seen to run."""
    node, before = facts.node, (facts.maintenance.status.boot_id_before or "").lower()
    return node is not None and node.ready and node.boot_id == before


def earlier_boot(facts: MaintenanceFacts) -> str | None:
    """Kernel boot id of a boot that runs, that another order than the attempt's has brought, and that was not there
    when the attempt began: it was under way then, and is to be replaced, too. None if there is none.
    """
    node, server, attempt = facts.node, facts.server, facts.maintenance.status.reboot
    before = (facts.maintenance.status.boot_id_before or "").lower()
    if node is None or node.boot_id is None or server is None or attempt is None or node.boot_id == before:
        return None
    order, join = answering_order(server, attempt), server.status.join
    if join is None or join.order_id is None or (join.boot_id or "").lower() != node.boot_id:
        return None
    is_ours = order is not None and order.id == join.order_id
    return None if is_ours else node.boot_id


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
