"""What a claim waits for: each a blocker, with the words that an operator reads. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from provisioner.api.machinery.backoff import backoff_seconds, unspread
from provisioner.api.machinery.meta import parse_time, rfc3339
from provisioner.api.machinery.wording import quantity
from provisioner.api.nodes.maintenance import TimelineEntry
from provisioner.maintenance.model.facts import MaintenanceFacts, host_obstacle, image_obstacle
from provisioner.maintenance.phases.reboot_methods import explain_no_method, possible_methods
from provisioner.maintenance.requests.effective import may_interrupt, protected_jobs
from provisioner.maintenance.status.record import Blocked, is_over
from provisioner.rules.boot_order import is_settled
from provisioner.rules.bootability import (
    find_duplicate,
    find_excluded,
    find_switched_off,
    find_unaccepted,
    find_without_pool,
)
from provisioner.rules.pool_of_server import current_pool_name

TURN_SECONDS: Final = 20.0
"""How long a free slot is left to those that asked earlier: one of them may be unable to claim without saying so."""
MAX_NAMES: Final = 8
FIRST_CLAIM_SECONDS: Final = 60.0
"""After a claim that the API server did not let us make; twice as long after each that follows."""
LAST_CLAIM_SECONDS: Final = 1800.0


def unturned(facts: MaintenanceFacts) -> list[Blocked]:
    """Whose turn is waited for, where it has come for nobody."""
    if facts.wanted is None or not facts.wanted.awaits_turn:
        return []
    return [
        ("Rollout", r.name, r.message or f"{r.name} takes few servers at a time, and has not come to this one yet")
        for r in facts.wanted.waiting
    ]


def obstacles(facts: MaintenanceFacts) -> list[Blocked]:
    """What no policy overcomes."""
    server, node, wanted = facts.server, facts.node, facts.wanted
    if server is None or wanted is None:
        return []
    found: list[Blocked] = []
    of_server = [find_without_pool(server, facts.pool, current_pool_name(server)), find_unaccepted(server)]
    if any(r.turn is not None for r in wanted.heard):
        # Its rollout withdraws the request; until it has looked, a turn that came before would be taken.
        of_server.append(find_excluded(server))
    if wanted.boots:
        named = facts.next_pool_name
        if named != current_pool_name(server):
            of_server.append(find_without_pool(server, facts.next_pool, named))
        of_server += [find_switched_off(server), find_duplicate(server)]
    found.extend(("Server", server.name, obstacle.words) for obstacle in of_server if obstacle is not None)
    if node is not None and node.held:
        found.append(
            ("Hold", node.name, f"Node '{node.name}' is held by a person: kubectl provision release {node.name}")
        )
    if not wanted.boots:
        if node is None:
            found.append(("Server", server.name, f"Server '{server.name}' has no Node that could be drained"))
        return found
    words = image_obstacle(facts)
    if words is not None:
        found.append(("Image", facts.image_name or "", words))
    if facts.pool is not None and not possible_methods(facts, wanted.action):
        words = explain_no_method(facts, wanted.action)
        found.append(("Agent", server.name, f"Server '{server.name}' cannot be rebooted by any method: {words}"))
    return found


def refused_before(facts: MaintenanceFacts, now: datetime) -> list[Blocked]:
    """Claims that the API server did not let us make, one after the other, until it is time for the next one."""
    refused: list[TimelineEntry] = []
    for entry in reversed(facts.maintenance.status.timeline):
        if entry.reason == "DrainStarted":
            break
        if entry.reason == "NodeRefused" and entry.phase != "Waiting":
            refused.append(entry)
    if not refused or facts.node is None:
        return []
    seconds = backoff_seconds(len(refused), first=FIRST_CLAIM_SECONDS, cap=LAST_CLAIM_SECONDS, jitter=unspread)
    until = parse_time(refused[0].time) + timedelta(seconds=seconds)
    if not now < until <= now + timedelta(seconds=seconds):  # later only by a clock that was ahead
        return []
    tried = f"tried {quantity(len(refused), 'time')}, and again at {rfc3339(until)}"
    return [("Node", facts.node.name, f"{refused[0].message[:800]}; {tried}")]


def running_jobs(facts: MaintenanceFacts, now: datetime) -> list[Blocked]:
    """What runs there and may not be ended now."""
    server, work, wanted = facts.server, facts.work, facts.wanted
    if server is None or wanted is None:
        return []
    # Where no system runs there is nobody to be warned of a deadline.
    due = may_interrupt(facts, now) or (wanted.deadline is not None and now >= wanted.deadline)
    # A boot that is over and whose Node is gone is none to wait for: somebody deleted the Node, for which Kubernetes
    # ends its pods. Those that are still bound to it, and Slurm's jobs, are waited for as everywhere.
    booting = not is_settled(server)
    if (facts.node is None or facts.node.boot_id is None) and wanted.boots and not due and booting:
        if wanted.action == "PowerCycle" or server.status.order is None:
            return []
        words = f"Server '{server.name}' boots, or tries to; ask with policy Now to reboot it nevertheless"
        return [("Server", server.name, words)]
    found: list[Blocked] = [(j.kind, j.name, _job_words(facts, j.message, now)) for j in protected_jobs(facts, now)]
    if wanted.policy != "Now":
        if work is None:
            found.append(("Server", server.name, "what runs there was not looked at yet"))
        else:
            found += work_not_known(facts, work.unknown)
    return found


def work_not_known(facts: MaintenanceFacts, unknown: Iterable[str]) -> list[Blocked]:
    """What could not be asked, in the words of `Work.unknown`."""
    return [("Slurm", facts.server_name, f"not known whether jobs run there: {words}") for words in unknown]


def _job_words(facts: MaintenanceFacts, message: str, now: datetime) -> str:
    wanted = facts.wanted
    if wanted is None or wanted.policy != "Deadline" or wanted.deadline is None:
        return f"{message}; WhenIdle waits for its end"
    if may_interrupt(facts, now):
        return f"{message}; its owner forbids eviction: it is waited for, or ask with policy Now"
    return f"{message}; it may go on until {rfc3339(wanted.deadline)}"


def host_in_use(facts: MaintenanceFacts) -> list[Blocked]:
    """The server in which a DPU sits. Looked at last: it is asked to be drained where nothing else is waited for."""
    words = host_obstacle(facts)
    return [("Server", facts.host.name, words)] if facts.host is not None and words is not None else []


def over_budget(facts: MaintenanceFacts) -> list[Blocked]:
    """The pool's budget, where it is used up."""
    budget, pool = facts.budget, facts.pool
    if budget is None or pool is None or budget.has_room:
        return []
    # The same words whoever has the slots: they stand in the status of each that waits.
    words = f"Maintenances of NodePool '{pool.name}' are paused: spec.maintenance.maxUnavailable is 0"
    if budget.allowed:
        words = (
            f"NodePool '{pool.name}' allows {budget.allowed} of its servers to be out of use at once "
            f"(spec.maintenance.maxUnavailable), and as many are: kubectl get maintenances"
        )
    return [("Budget", pool.name, words)]


def earlier_askers(facts: MaintenanceFacts, now: datetime) -> list[Blocked]:
    """Those that asked earlier and wait for the same budget: they claim first, if they do so soon."""
    budget = facts.budget
    if budget is None or not budget.before:
        return []
    since = {b.name: parse_time(b.since_time) for b in facts.maintenance.status.blockers if b.kind == "Maintenance"}
    patient = [name for name in budget.before if since.get(name, now) <= now]  # else by a clock that was ahead
    patient = [name for name in patient if not is_over(since.get(name), TURN_SECONDS, now)]
    if len(patient) < budget.allowed - len(budget.taken):
        return []
    words = f"asked earlier and waits for the same budget: it comes first, if it does within {TURN_SECONDS:.0f} s"
    return [("Maintenance", name, f"Maintenance {name} {words}") for name in budget.before[:MAX_NAMES]]
