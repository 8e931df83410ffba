"""What the DPUs in a server ask of it. Pure.

Where a card goes, the network of its host goes. So a card that is to be rebooted asks for its host to be drained, once
that is all it waits for, and in its own words: as jobs end, at its deadline, or now. The host is kept drained until the
card is Ready again; then it is withdrawn. Card and host are out of use in one window, and no job is in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from provisioner.api import Maintenance, Server
from provisioner.api.machinery.conditions import is_true
from provisioner.api.machinery.meta import rfc3339
from provisioner.api.nodes.maintenance import DISTURBING_PHASES, Requestor, holding_maintenance
from provisioner.maintenance.requests.intake import FileRequestor, Withdraw, file_request
from provisioner.rules.requests import age, entry_of, is_active, is_judged, merge

PREFIX: Final = "dpu-"
"""Of the names of these requestors."""
MAX_NAME: Final = 63


@dataclass(frozen=True, kw_only=True)
class DpuMaintenances:
    """A DPU with its Maintenances."""

    server: Server
    maintenances: tuple[Maintenance, ...]


def ask_for_cards(
    host: str, maintenances: Iterable[Maintenance], cards: Sequence[DpuMaintenances], now: datetime
) -> FileRequestor | Withdraw | None:
    """The next thing to do about what the cards in `host` ask for; None if all is on record.

    maintenances: those of the host.
    """
    ordered = sorted(maintenances, key=age)
    entries = {r.name: r for m in ordered if is_active(m) for r in m.spec.requestors if r.name.startswith(PREFIX)}
    made = (_entry(host, card, entries, now) for card in cards)
    wanted = {requestor.name: requestor for requestor in made if requestor is not None}
    for name in sorted(entries.keys() - wanted.keys()):
        holder = next(m for m in ordered if is_active(m) and entry_of(m, name) is not None)
        if not is_judged(holder):  # else its end is decided, and who asked stays on record
            return Withdraw(requestor=name, target=holder)
    for name, requestor in sorted(wanted.items()):
        holders = [m for m in ordered if is_active(m) and entry_of(m, name) is not None]
        filing = file_request(requestor, entries.get(name), holders, ordered)
        if filing is not None:
            return filing
    return None


def requestor_name(dpu: str) -> str:
    """Under which a card asks for its host."""
    return PREFIX + dpu[-(MAX_NAME - len(PREFIX)) :].lstrip("-.")


def _entry(host: str, card: DpuMaintenances, entries: Mapping[str, Requestor], now: datetime) -> Requestor | None:
    name = requestor_name(card.server.name)
    before = entries.get(name)
    maintenance = holding_maintenance(card.maintenances, card.server.name)
    wanted = merge(maintenance) if maintenance is not None and not is_judged(maintenance) else None
    boots = wanted is not None and wanted.boots and not wanted.awaits_turn
    if maintenance is None or wanted is None or not boots:
        # A card that did not come back leaves its host without a network.
        return before if before is not None and not is_true(card.server.status.conditions, "Ready") else None
    blockers = maintenance.status.blockers
    waits_for_host_alone = bool(blockers) and all((each.kind, each.name) == ("Server", host) for each in blockers)
    is_its_turn = waits_for_host_alone or maintenance.status.phase in DISTURBING_PHASES
    if before is None and not is_its_turn:
        return None
    return Requestor(
        name=name,
        action="Drain",
        policy=wanted.policy,
        deadline_time=rfc3339(wanted.deadline) if wanted.policy == "Deadline" and wanted.deadline is not None else None,
        message=f"its DPU '{card.server.name}' is booted anew by Maintenance {maintenance.name}",
        requested_time=before.requested_time if before is not None else rfc3339(now),
    )
