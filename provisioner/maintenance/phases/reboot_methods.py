"""By which methods a server can be rebooted now, in order. Pure."""

from __future__ import annotations

from typing import Final

from provisioner.api.nodes.maintenance import AGENT_METHODS, MaintenanceAction, RebootMethod
from provisioner.api.pools.node_pool import NodePool
from provisioner.maintenance.model.facts import MaintenanceFacts
from provisioner.rules.nodes import NodeView

ALL_METHODS: Final[tuple[RebootMethod, ...]] = ("Kexec", "Reboot", "Reset", "PowerCycle")


def possible_methods(facts: MaintenanceFacts, action: MaintenanceAction) -> tuple[RebootMethod, ...]:
    """The methods that are open, the gentlest first or as the pool orders them. PowerCycle asks for that one alone."""
    chosen = (facts.pool.spec.maintenance.reboot_methods if facts.pool is not None else ()) or ALL_METHODS
    methods = ("PowerCycle",) if action == "PowerCycle" else chosen
    return tuple(m for m in methods if why_not(facts, m) is None)


def why_not(facts: MaintenanceFacts, method: RebootMethod) -> str | None:
    """Why that method is closed; None if it is open."""
    if method not in AGENT_METHODS:
        has_bmc = facts.server is not None and facts.server.spec.bmc is not None
        return None if has_bmc else "the Server has no BMC (spec.bmc)"
    node = facts.node
    if node is None or node.boot_id is None:
        return "no Node tells of a system that runs there"
    if node.facts is None:
        return "its agent has said nothing in this boot"
    return why_no_kexec(node, facts.pool) if method == "Kexec" else None


def why_no_kexec(node: NodeView, pool: NodePool | None) -> str | None:
    """Why the machine may not be rebooted by kexec; None if it may."""
    models = pool.spec.maintenance.kexec_models if pool is not None else ()
    product = node.facts.product if node.facts is not None else None
    if "*" not in models and product not in models:
        return f"model '{product}' is not in the pool's kexecModels"
    if node.facts is None or node.facts.kexec_supported is not True:
        reason = node.facts.kexec_reason if node.facts is not None else None
        return f"its agent says that it cannot: {reason or 'without a reason'}"
    return None


def next_method(facts: MaintenanceFacts, action: MaintenanceAction) -> RebootMethod | None:
    """The first open method that was not tried since the claim."""
    tried = {a.method for a in facts.maintenance.status.attempts}
    return next((m for m in possible_methods(facts, action) if m not in tried), None)


def explain_no_method(facts: MaintenanceFacts, action: MaintenanceAction) -> str:
    """Why no method is open, each in its words."""
    chosen = (facts.pool.spec.maintenance.reboot_methods if facts.pool is not None else ()) or ALL_METHODS
    methods = ("PowerCycle",) if action == "PowerCycle" else chosen
    return "; ".join(f"{m}: {why_not(facts, m)}" for m in methods)
