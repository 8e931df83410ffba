"""What is put on record of a server's faults, and which Events tell of it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from provisioner.api import Server
from provisioner.api.machinery.codec import to_json
from provisioner.api.machinery.wording import quantity
from provisioner.api.nodes.facts import ObservedFault
from provisioner.api.servers.faults import FaultRecord
from provisioner.api.servers.server import Lifecycle
from provisioner.cluster.events import Happened
from provisioner.cluster.reconciler import Said
from provisioner.health.faults.catalogue import meaning_of
from provisioner.health.faults.merge import merge, news
from provisioner.health.faults.sources import observe
from provisioner.rules.nodes import NodeView

IN_USE: Final[frozenset[Lifecycle | None]] = frozenset(("Verified", "InProduction"))
"""Where a server is expected to work as a node: in these its kubelet has no reason to be silent. Whoever holds one may
switch it off."""
FOUND: Final = "FaultFound"
MOST_EVENTS: Final = 8
"""Of one change; what is more is counted in one Event."""


@dataclass(frozen=True, kw_only=True)
class FaultDecision(Said):
    """new: the records that are new, or more severe than before."""

    new: tuple[FaultRecord, ...] = ()


def decide(
    server: Server, node: NodeView | None, now: datetime, lasting: Sequence[ObservedFault] = ()
) -> FaultDecision:
    """lasting: what PATIENT_SOURCES have found for long enough. A server without a Node, or whose Node no kubelet has
    reported on, keeps its records as they are."""
    if node is None or node.boot_id is None:
        return FaultDecision()
    before = server.status.faults
    after = merge(before, (*observe(node), *lasting), node.boot_id, now)
    new = news(before, after)
    status = {"faults": to_json(after)} if after else {}
    return FaultDecision(status=status, events=tuple(_events(server.name, new)), new=new)


def _events(server: str, new: Sequence[FaultRecord]) -> Iterator[Happened]:
    told = [record for record in new if record.severity != "Info"]
    for record in told[:MOST_EVENTS]:
        yield Happened(type="Warning", reason=FOUND, message=_words(record))
    if len(told) > MOST_EVENTS:
        more = quantity(len(told) - MOST_EVENTS, "more fault")
        yield Happened(type="Warning", reason=FOUND, message=f"{more}: kubectl provision health {server}")


def _words(record: FaultRecord) -> str:
    known = meaning_of(record.component, record.code, record.source)
    where = f"{record.component} {record.device}".rstrip()
    return f"{record.severity} {where} {record.code}: {known.meaning}; remedy: {known.remedy}"
