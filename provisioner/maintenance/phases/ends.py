"""What ends a Maintenance in whatever phase it is. Pure."""

from __future__ import annotations

from provisioner.api.machinery.meta import parse_time
from provisioner.api.nodes.maintenance import DISTURBING_PHASES, Maintenance
from provisioner.maintenance.model.facts import MaintenanceFacts
from provisioner.maintenance.phases.brought import is_brought
from provisioner.maintenance.status.verdict import Cause
from provisioner.rules.requests import NodeRequest, answered_until, asked_time, is_before

End = tuple[Cause, str]


def find_end(facts: MaintenanceFacts) -> End | None:
    """Why it ends now, or goes back to waiting, if it does. What has begun is carried to its end, whoever withdraws it,
    or takes its turn back.

    One that waits for its turn ends as any other that waits does. Who waits for a turn in a Maintenance that others
    have brought to its end got nothing by it, and asks anew.
    """
    m, status = facts.maintenance, facts.maintenance.status
    if facts.server is None:
        return "ServerGone", f"Server '{facts.server_name}' does not exist any more"
    if status.phase == "Drained" and status.boot_id_after is not None:
        return _kept_drained(facts)
    if facts.has_begun:
        return None
    claimed = status.phase in DISTURBING_PHASES
    if claimed and status.node_uid is not None:
        if facts.node is None:
            return "NodeGone", f"Node '{facts.server_name}' was deleted while it was prepared: ask again if need be"
        if facts.node.uid != status.node_uid:
            return "NodeReplaced", (
                f"Node '{facts.server_name}' was replaced by another one of that name (uid {facts.node.uid} instead of "
                f"{status.node_uid}), which was not claimed: ask again if need be"
            )
    if m.metadata.deletion_timestamp is not None:
        return "Deleted", "the Maintenance was deleted before a reboot was begun"
    if facts.wanted is None:
        if status.action == "Drain" and status.phase == "Drained":
            return "DrainEnded", "nobody wants the server out of use any more"
        return "Withdrawn", "nobody asks for it any more, and no reboot was begun"
    if facts.wanted.awaits_turn and claimed:
        return "NotItsTurn", f"{_names(facts.wanted)} is to wait for another turn, and nobody else asks for it"
    return _done_before(facts) if not claimed else None


def _names(wanted: NodeRequest) -> str:
    return ", ".join(r.name for r in wanted.waiting)


def _kept_drained(facts: MaintenanceFacts) -> End | None:
    if (
        facts.wanted is not None
        and facts.wanted.keeps_drained
        and facts.maintenance.metadata.deletion_timestamp is None
    ):
        return None
    return "Booted", "the boot is verified, and nobody wants the server out of use any more"


def _done_before(facts: MaintenanceFacts) -> End | None:
    """What all want that are heard was done; while nobody's turn has come: what all want that wait."""
    wanted = facts.wanted
    if wanted is not None and wanted.awaits_turn and len(wanted.heard) < len(wanted.waiting):
        return None  # they want different Images
    if is_brought(facts):
        return "DoneBefore", f"the boot that was under way has brought Image '{facts.image_name}', and is verified"
    for earlier in facts.finished:
        if earlier.status.phase == "Completed" and _satisfies(facts, earlier):
            return "DoneBefore", f"Maintenance {earlier.name}, begun before it, did what is asked for"
    return None


def _satisfies(facts: MaintenanceFacts, earlier: Maintenance) -> bool:
    """Whether its boot answers all that is wanted: see `answered_until`."""
    wanted, boot, finished = facts.wanted, earlier.status.reboot, earlier.status.finished_time
    if wanted is None or wanted.keeps_drained or boot is None or boot.outcome != "Booted" or finished is None:
        return False
    if wanted.action == "PowerCycle" and boot.method != "PowerCycle":
        return False
    if not wanted.boots or facts.image_name != boot.image_ref:
        return False
    if wanted.node_pool not in (None, boot.node_pool_ref):
        return False
    asked = [(r.action, asked_time(r, facts.maintenance)) for r in wanted.heard]
    return all(
        at is not None and is_before(at, answered_until(action, boot, parse_time(finished))) for action, at in asked
    )
