"""Where a server is between its registration and its retirement. Pure.

    Retired        spec.acceptance is Rejected, or spec.powerState is Off with no Maintenance under way
    Maintenance    a Maintenance disturbs it
    Held           a person holds it (Node condition provisioner.dev/HoldRequested)
    Registered     on a packing list, not accepted
    Discovered     an unknown machine that asked to boot, not accepted
    Accepted       may boot; no boot was ordered yet
    Booting        the ordered boot has not joined, or its Node does not report it yet
    Booted         it has, and the checks have not passed
    Verified       they have, and something else keeps jobs away: not Ready, cordoned, a taint of the provisioner
    InProduction   jobs may come

The first that is true counts.
"""

from __future__ import annotations

from provisioner.api import Server
from provisioner.api.nodes.contract import HOLD_TAINT, MAINTENANCE_TAINT, VERIFICATION_TAINT
from provisioner.api.servers.discovery import NAME_PREFIX
from provisioner.api.servers.server import Lifecycle
from provisioner.health.checked_node import CheckedNode
from provisioner.health.situation import CheckInputs, boot_to_judge, is_held


def find_lifecycle(situation: CheckInputs, *, verified: bool) -> Lifecycle:
    """verified: whether the checks of the boot that runs have passed, or a person let it in."""
    server, node = situation.server, situation.node
    if server.spec.acceptance == "Rejected":
        return "Retired"
    if situation.maintenance is not None:
        return "Maintenance"
    if server.spec.power_state == "Off":
        return "Retired"
    if is_held(node):
        return "Held"
    if server.spec.acceptance == "Pending":
        return "Discovered" if _asked_to_boot(server) else "Registered"
    if server.status.order is None:
        if node is None or node.boot_id is None:
            return "Accepted"
        return "InProduction" if _takes_jobs(node) else "Booted"
    if not isinstance(boot_to_judge(server, node), str) or node is None:
        return "Booting"
    if not verified:
        return "Booted"
    return "InProduction" if _takes_jobs(node) else "Verified"


def _asked_to_boot(server: Server) -> bool:
    return server.status.discovery is not None or server.name.startswith(NAME_PREFIX)


def _takes_jobs(node: CheckedNode) -> bool:
    ours = (VERIFICATION_TAINT, MAINTENANCE_TAINT, HOLD_TAINT)
    # One that jobs are only steered away from (PreferNoSchedule) takes those that no other server takes.
    kept_away = any(node.has_taint(key, but_effect="PreferNoSchedule") for key in ours)
    return node.ready and not node.unschedulable and not kept_away
