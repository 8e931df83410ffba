"""Requests: which Maintenance takes one, under which name, and what several in one Maintenance want together. Pure.

The strongest action, the most urgent policy, the earliest deadline. Of two who name different Images the one that asked
first is heard, for one boot cannot land on two images: the other is filed apart, in a Maintenance of its own, which
waits; one that was written into the same Maintenance is named in `refused`, and counts for nothing.

Who asks for many servers gives each its turn (`Requestor.turn`). One whose turn has not come is not heard: it waits in
the same Maintenance as others, whatever Image they want, and neither hastens nor changes what is done for them. Once
its turn has come, whoever asked without turns for another Image is heard before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from provisioner.api.machinery.conditions import find_condition
from provisioner.api.machinery.meta import parse_time
from provisioner.api.nodes.contract import MaintenanceEffect
from provisioner.api.nodes.maintenance import (
    ACTIONS,
    FINAL_PHASES,
    POLICIES,
    SUCCEEDED,
    Maintenance,
    MaintenanceAction,
    MaintenancePolicy,
    RebootAttempt,
    Requestor,
)

MAX_REQUESTORS: Final = 16
LAST_NUMBER: Final = 999_999_999
"""The last that admission lets people give; see provisioner/cli/data/requests.yaml."""


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where a request goes: the name of a Maintenance, which there may not be yet.

    entry: the request as it is written; asked for before in the same words, it keeps the time at which it was.
    joined: others ask there, too. misplaced: others that hold an entry of the same asker, which is to be withdrawn.
    """

    name: str
    entry: Requestor
    joined: bool
    misplaced: tuple[Maintenance, ...] = ()


def place(maintenances: Iterable[Maintenance], server: str, wanted: Requestor, taken: Iterable[str] = ()) -> Placement:
    """The Maintenance of `server` into which `wanted` goes. taken: names already in use."""
    own = [m for m in maintenances if m.spec.server_ref == server]
    target = find_target(own, wanted)
    before = entry_of(target, wanted.name) if target is not None else None
    return Placement(
        name=target.name if target is not None else next_name(server, (*(m.name for m in own), *taken)),
        entry=before if before is not None and is_same(before, wanted) else wanted,
        joined=target is not None and any(r.name != wanted.name for r in target.spec.requestors),
        misplaced=tuple(m for m in own if m is not target and is_open(m) and entry_of(m, wanted.name) is not None),
    )


def find_target(maintenances: Iterable[Maintenance], wanted: Requestor) -> Maintenance | None:
    """Of one server's Maintenances the one that takes `wanted`: where its asker is already, else the oldest that can.

    One in which a reboot has begun, or that boots another Image, takes nothing more: a new one then waits behind it.
    """
    open_ = sorted((m for m in maintenances if is_open(m) and takes(m, wanted)), key=age)
    return min(open_, key=lambda m: entry_of(m, wanted.name) is None, default=None)


def is_same(before: Requestor, wanted: Requestor) -> bool:
    """Whether the same is asked for, whenever it was asked."""
    return replace(before, requested_time=wanted.requested_time) == wanted


def answered_until(action: MaintenanceAction, boot: RebootAttempt | None, over: datetime) -> datetime:
    """Until when one may have asked for `action` to be answered by what ended at `over`, with `boot` as last attempt.

    A request that comes during a boot is answered by a boot that begins after it: who asks for a reboot or a power
    cycle has seen what runs there, or hangs. Who asks for an Image alone is answered by the boot under way that brings
    it.
    """
    if action in ("Reboot", "PowerCycle") and boot is not None and boot.outcome == "Booted":
        return parse_time(boot.started_time)
    return over


def is_before(asked: datetime, until: datetime) -> bool:
    """Whether it was asked before that moment. A time of whole seconds may be of their end."""
    return (asked if asked.microsecond else asked + timedelta(seconds=1)) <= until


def asked_time(requestor: Requestor, maintenance: Maintenance) -> datetime | None:
    """When it was asked for; None if nobody knows."""
    text = _asked(requestor, maintenance)[0]
    return parse_time(text) if text else None


def is_active(maintenance: Maintenance) -> bool:
    """Whether it has not ended."""
    return maintenance.status.phase not in FINAL_PHASES


def is_judged(maintenance: Maintenance) -> bool:
    """Whether its end, or its way back to waiting, is decided."""
    return find_condition(maintenance.status.conditions, SUCCEEDED) is not None


def has_begun(maintenance: Maintenance) -> bool:
    """Whether what is asked of it changes nothing any more: a reboot was begun, or its end is decided."""
    return maintenance.status.reboot is not None or is_judged(maintenance)


def is_open(maintenance: Maintenance) -> bool:
    """Whether it may take requests at all."""
    going = maintenance.metadata.deletion_timestamp is not None
    return is_active(maintenance) and not has_begun(maintenance) and not going


def takes(maintenance: Maintenance, wanted: Requestor) -> bool:
    """Whether an open Maintenance has room for `wanted`, in place of an entry of its asker, and boots what it wants.

    What those want whose turn has not come is no reason to refuse it, and such a one is taken whatever is booted first.
    """
    others = tuple(r for r in maintenance.spec.requestors if r.name != wanted.name)
    heard = merge(replace(maintenance, spec=replace(maintenance.spec, requestors=others)))
    image = heard.image if heard is not None and not heard.awaits_turn and wanted.has_turn else None
    return len(others) < MAX_REQUESTORS and (image is None or wanted.image_ref in (None, image))


def entry_of(maintenance: Maintenance, requestor: str) -> Requestor | None:
    return next((r for r in maintenance.spec.requestors if r.name == requestor), None)


def age(maintenance: Maintenance) -> tuple[str, int, str]:
    """The oldest first; names count where the times are equal, by their length first: n-9 is older than n-10."""
    meta = maintenance.metadata
    return meta.creation_timestamp or "", len(meta.name), meta.name


def next_name(server: str, names: Iterable[str]) -> str:
    """Name of the next Maintenance of `server`: one more than the highest number there is, which people may set.

    Beyond the last number the lowest free one is taken.
    """
    pattern = re.compile(rf"{re.escape(server)}-(\d{{1,9}})", re.ASCII)
    numbers = {int(found[1]) for name in names if (found := pattern.fullmatch(name))}
    number = max(numbers, default=0) + 1
    if number > LAST_NUMBER:
        number = next(n for n in range(1, len(numbers) + 2) if n not in numbers)
    return f"{server}-{number}"


@dataclass(frozen=True, kw_only=True)
class NodeRequest:
    """What is wanted. `image`: the one that was named; None for the assigned one; so is `node_pool`. `since`: when the
    first one asked.

    heard: whom the rest speaks for. waiting: those whose turn has not come. Only where it has come for nobody does it
    speak for them, so that the status can say what they want: `awaits_turn`, and nothing of it is done.
    """

    action: MaintenanceAction
    policy: MaintenancePolicy
    deadline: datetime | None
    image: str | None
    since: datetime | None
    heard: tuple[Requestor, ...]
    refused: tuple[Requestor, ...] = ()
    waiting: tuple[Requestor, ...] = ()
    node_pool: str | None = None

    @property
    def awaits_turn(self) -> bool:
        return not any(r.has_turn for r in self.heard)

    @property
    def boots(self) -> bool:
        return self.action != "Drain"

    @property
    def keeps_drained(self) -> bool:
        """Whether somebody wants the server out of use until further notice, whatever else is done."""
        return any(r.action == "Drain" and r.has_turn for r in self.heard)

    @property
    def closing(self) -> MaintenanceEffect | None:
        """How those who use turns want the server closed while its jobs go on: the strictest of them.

        A turn that is Granted in so many words closes it, too: else it would open between Closed and its claim.
        """
        turns = {r.turn for r in (*self.heard, *self.waiting)}
        if not turns.isdisjoint(("Closed", "Granted")):
            return "NoSchedule"
        return "PreferNoSchedule" if "Steered" in turns else None

    @property
    def closing_time(self) -> datetime | None:
        """The moment for which all who want the server closed have named one; the earliest. None: it is closed now."""
        closers = [r for r in (*self.heard, *self.waiting) if r.turn in ("Closed", "Granted")]
        moments = [parse_time(r.closing_time) for r in closers if r.closing_time is not None]
        return min(moments) if moments and len(moments) == len(closers) else None


def merge(maintenance: Maintenance) -> NodeRequest | None:
    """What its requestors want; None without any."""
    requestors = sorted(maintenance.spec.requestors, key=lambda r: _asked(r, maintenance))
    granted = [r for r in requestors if r.has_turn]
    # Who uses turns may ask anew for a server that came to nothing; a person's request is not lost for it.
    first_named = sorted(granted or requestors, key=lambda r: r.turn is not None)
    image = next((r.image_ref for r in first_named if r.image_ref is not None), None)
    heard = tuple(r for r in granted or requestors if r.image_ref in (None, image))
    if not heard:
        return None
    deadlines = [parse_time(r.deadline_time) for r in heard if r.deadline_time is not None]
    first = _asked(heard[0], maintenance)[0]
    return NodeRequest(
        action=max((r.action for r in heard), key=ACTIONS.index),
        policy=max((r.policy for r in heard), key=POLICIES.index),
        deadline=min(deadlines, default=None),
        image=image,
        since=parse_time(first) if first else None,
        heard=heard,
        refused=tuple(r for r in granted if r.image_ref not in (None, image)),
        waiting=tuple(r for r in requestors if not r.has_turn),
        node_pool=next((r.node_pool_ref for r in heard if r.node_pool_ref is not None), None),
    )


def _asked(requestor: Requestor, maintenance: Maintenance) -> tuple[str, str]:
    return requestor.requested_time or maintenance.metadata.creation_timestamp or "", requestor.name
