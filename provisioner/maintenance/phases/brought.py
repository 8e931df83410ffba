"""A request for an Image alone that comes while a boot brings that Image: the boot answers it. Pure.

Whoever asks for more, a reboot or a power cycle, gets a boot that begins after that: `rules/requests.py`.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from provisioner.api.machinery.conditions import find_condition, is_true
from provisioner.api.machinery.meta import parse_time
from provisioner.api.servers.boot_stage import is_late
from provisioner.maintenance.model.facts import MaintenanceFacts
from provisioner.maintenance.status.record import Blocked
from provisioner.rules.boot_order import is_ordered_boot, is_settled
from provisioner.rules.requests import asked_time, is_before


def is_brought(facts: MaintenanceFacts) -> bool:
    """Whether a boot into that Image has passed its first checks since all of it was asked for."""
    server, node, image = facts.server, facts.node, facts.image
    if not _is_ordered(facts) or server is None or node is None or image is None or facts.wanted is None:
        return False
    checked = server.status.verification
    if checked is None or checked.finished_time is None or checked.attempt != 1:
        return False  # a later round says nothing of when the boot was
    if node.boot_id != checked.boot_id.lower() or not is_ordered_boot(server, node.boot_id):
        return False
    digest = checked.image_digest or server.status.image_digest
    if digest != image.spec.digest or not is_true(server.status.conditions, "Verified"):
        return False
    finished = parse_time(checked.finished_time)
    asked = [asked_time(r, facts.maintenance) for r in facts.wanted.heard]
    return all(at is not None and is_before(at, finished) for at in asked)


def awaits_bringing(facts: MaintenanceFacts, now: datetime) -> list[Blocked]:
    """What the claim waits for while such a boot is under way; under Now not for one that is late."""
    server, wanted = facts.server, facts.wanted
    if not _is_ordered(facts) or server is None or wanted is None or not _is_under_way(facts, now):
        return []
    found = [find_condition(server.status.conditions, type_) for type_ in ("Ready", "Booted")]
    ready, booted = (each.reason if each is not None else None for each in found)
    if wanted.policy == "Now" and (ready is None or is_late(ready, booted)):
        return []
    words = (
        f"Server '{server.name}' boots Image '{facts.image_name}', which is all that is asked for: it is done once "
        f"that boot has passed its checks; to have it booted anew: kubectl provision power-cycle {server.name}"
    )
    return [("Server", server.name, words)]


def _is_ordered(facts: MaintenanceFacts) -> bool:
    """Whether nothing but the Image of the current boot order is asked for."""
    wanted, order = facts.wanted, facts.server.status.order if facts.server is not None else None
    if wanted is None or order is None or any(r.action != "Reimage" for r in wanted.heard):
        return False
    if wanted.node_pool not in (None, order.node_pool_ref):
        return False
    return order.image_ref is not None and order.image_ref == facts.image_name


def _is_under_way(facts: MaintenanceFacts, now: datetime) -> bool:
    """Whether the boot of the order goes on, or its first checks do, for as long as a Maintenance waits for them."""
    server = facts.server
    if server is None:
        return False
    if not is_settled(server):
        return True
    boot_id = facts.node.boot_id if facts.node is not None else None
    checked, ready = server.status.verification, server.status.ready_time
    if boot_id is None or ready is None or not is_ordered_boot(server, boot_id):
        return False
    limit = facts.pool.spec.maintenance.verification_timeout_seconds if facts.pool is not None else 0
    if now >= parse_time(ready) + timedelta(seconds=limit):
        return False
    return (
        checked is None
        or checked.boot_id.lower() != boot_id
        or (checked.attempt == 1 and checked.finished_time is None)
    )
