"""Where a server stands in its pool's rollout: read from its Server, its Node and its Maintenances. Pure.

What the machine says of itself decides nothing here but whether another server may begin to fetch the image ahead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from provisioner.api import Image, Maintenance, NodePool, Server
from provisioner.api.machinery.conditions import find_condition
from provisioner.api.machinery.meta import parse_time
from provisioner.api.nodes.maintenance import DISTURBING_PHASES, FINAL_PHASES, MaintenanceStatus, Requestor
from provisioner.api.servers.server_status import UpgradeFailure
from provisioner.rollout.fleet import MemberState
from provisioner.rollout.wait import MemberWait
from provisioner.rules.bootability import find_excluded
from provisioner.rules.nodes import NodeView
from provisioner.rules.pool_of_server import current_pool_name
from provisioner.rules.requests import entry_of

REQUESTOR: Final = "rollout"
"""Name of the rollout's entry in a Maintenance."""
OUT_SECONDS: Final = 300.0
"""A server with the new image that is out of use for so long has failed with it; a kubelet may restart in less."""


@dataclass(frozen=True, kw_only=True)
class RolloutTarget:
    """The pool, and the image that its servers shall run. digest, architecture: None while there is no such Image.

    since: when the pool began to move to it; None: it begins now."""

    pool: str
    name: str
    digest: str | None = None
    architecture: str | None = None
    since: str | None = None


def target_of(pool: NodePool, image: Image | None) -> RolloutTarget:
    """What that pool wants; its Image may not be there."""
    wanted, rollout, released = pool.spec.image_ref, pool.status.rollout, pool.status.released
    since = None
    if rollout is not None:
        since = rollout.started_time if rollout.image_ref == wanted else None
    elif released is not None and released.image_ref == wanted:
        since = released.time
    return RolloutTarget(
        pool=pool.name,
        name=wanted,
        digest=image.spec.digest if image is not None else None,
        architecture=image.spec.architecture if image is not None else None,
        since=since,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class MemberFacts:
    """in_use: jobs may come. has_image: it runs the wanted image, in use or not. since: since when it is in use.

    moves_from: the pool that it is in still. own: the Maintenance that has not ended and holds the rollout's entry.
    entry: what the rollout asks for by it. failure: the last one, to be kept on record; None takes it off the record.
    is_disturbed: a Maintenance has claimed it; returns: and boots it. again: when time alone changes the state, in
    seconds since the epoch.
    """

    server: Server
    state: MemberState
    in_use: bool
    has_image: bool = False
    since: float | None = None
    moves_from: str | None = None
    own: Maintenance | None = None
    entry: Requestor | None = None
    excluded: MemberWait | None = None
    failure: UpgradeFailure | None = None
    staged: bool = False
    is_disturbed: bool = False
    returns: bool = False
    again: float | None = None

    @property
    def is_told(self) -> bool:
        """Whether what runs there was told by when it ends for the rollout: the server keeps its place from then on."""
        entry = self.entry
        granted = entry is not None and entry.turn == "Granted" and entry.policy == "Deadline"
        return self.state == "Outdated" and granted

    @property
    def is_to_follow(self) -> bool:
        """Whether it is on its way to the image, or waits for its turn: what the rollout still has to do."""
        return self.state == "Updating" or (self.state == "Outdated" and self.excluded is None)


def judge_standing(
    server: Server,
    node: NodeView | None,
    maintenances: tuple[Maintenance, ...],
    target: RolloutTarget,
    *,
    retried: float | None,
    now: float,
) -> MemberFacts:
    """`maintenances`: all of the server. `retried`: what failed before then is forgotten."""
    status = server.status
    in_use, since, out = _use(server, node)
    runs_target = status.image_digest == target.digest if target.digest is not None else False
    current = current_pool_name(server)
    runs_target = (runs_target or status.image_ref == target.name) and current == target.pool
    active = [m for m in maintenances if m.status.phase not in FINAL_PHASES]
    own = next((m for m in active if entry_of(m, REQUESTOR) is not None), None)
    disturbing = next((m for m in active if m.status.phase in DISTURBING_PHASES), None)
    failure = _failure(server, maintenances, target, retried)
    excluded, again = None, None
    state: MemberState
    if disturbing is not None:
        state = "Updating" if _brings(disturbing, target, current, has_image=runs_target) else "Down"
    elif in_use and runs_target:
        state, failure = "Updated", None
    elif failure is not None:
        state = "Failed"
    elif in_use or _is_left_behind(server, node):
        state = "Outdated"
        excluded = _exclusion(server, node, target) or _wish_of_a_person(server, maintenances, target)
    elif node is None or node.boot_id is None:
        state = "Absent"
    elif runs_target and not _is_off(server):
        again = None if out is None else out + OUT_SECONDS
        state = "Down" if again is not None and now < again else "Failed"
        again = again if state == "Down" else None
    else:
        state = "Down"
    return MemberFacts(
        server=server,
        state=state,
        in_use=in_use and disturbing is None,
        has_image=runs_target,
        since=since if in_use else None,
        moves_from=current if current != target.pool else None,
        own=own,
        entry=entry_of(own, REQUESTOR) if own is not None else None,
        excluded=excluded,
        failure=failure or (status.upgrade_failure if state != "Updated" else None),
        staged=_has_staged(node, target),
        is_disturbed=disturbing is not None,
        returns=disturbing is not None and not _keeps_drained(disturbing.status),
        again=again,
    )


def _has_staged(node: NodeView | None, target: RolloutTarget) -> bool:
    """Whether its agent has staged the target, or could not: another may begin to fetch it."""
    report = node.report if node is not None else None
    if report is None or report.state not in ("Staged", "Failed") or target.digest is None:
        return False
    return f"-{target.digest[7:19]}-" in report.id


def without_records(standing: MemberFacts) -> MemberFacts:
    """What is remembered of a standing between two looks: who has judged it reads neither the server's checks and
    conditions again nor its Maintenance's history, and they are most of both."""
    server, own = standing.server, standing.own
    if own is not None:
        own = replace(own, status=replace(own.status, timeline=(), blockers=()))
    return replace(
        standing, server=replace(server, status=replace(server.status, verification=None, conditions=())), own=own
    )


def _use(server: Server, node: NodeView | None) -> tuple[bool, float | None, float | None]:
    """Whether jobs may come, by what boot and health controllers say of the boot that runs; since when; or since when
    not, as far as that is known."""
    found = [find_condition(server.status.conditions, type_) for type_ in ("Ready", "Verified")]
    holds = [c for c in found if c is not None and c.status == "True"]
    times = [parse_time(c.last_transition_time).timestamp() for c in holds]
    if len(holds) == len(found):
        checked = server.status.verification
        is_checked = node is not None and checked is not None and checked.boot_id.lower() == node.boot_id
        return (True, max(times), None) if is_checked else (False, None, max(times))
    lost = [parse_time(c.last_transition_time).timestamp() for c in found if c is not None and c not in holds]
    return False, None, min(lost, default=None)


def _is_left_behind(server: Server, node: NodeView | None) -> bool:
    """Whether it lives, out of use, with an image that it failed with and that nobody wants any more."""
    failure, ready = server.status.upgrade_failure, find_condition(server.status.conditions, "Ready")
    lives = node is not None and node.boot_id is not None and ready is not None and ready.status == "True"
    return lives and failure is not None and failure.image_ref == server.status.image_ref


def _brings(disturbing: Maintenance, target: RolloutTarget, current: str | None, *, has_image: bool) -> bool:
    """Whether that Maintenance brings its server to the target: by its turn in the rollout, or since an ordered reboot
    boots what the pool has released."""
    entry = entry_of(disturbing, REQUESTOR)
    if entry is not None and entry.turn in (None, "Granted"):
        return True
    status = disturbing.status
    image = status.reboot.image_ref if status.reboot is not None else status.image_ref
    return image == target.name and current == target.pool and not has_image


def _keeps_drained(status: MaintenanceStatus) -> bool:
    return status.action == "Drain" or (status.phase == "Drained" and status.boot_id_after is not None)


def _exclusion(server: Server, node: NodeView | None, target: RolloutTarget) -> MemberWait | None:
    if node is not None and node.held:
        return MemberWait("Held", f"it is held by a person: kubectl provision release {server.name}")
    excluded = find_excluded(server)
    if excluded is not None:
        return MemberWait("Excluded", excluded.words)
    if target.architecture not in (None, server.spec.architecture):
        words = f"Image '{target.name}' is for {target.architecture}, and it is {server.spec.architecture}"
        return MemberWait("Architecture", f"{words}: move it: kubectl provision move {server.name} --to POOL")
    return None


def _wish_of_a_person(
    server: Server, maintenances: tuple[Maintenance, ...], target: RolloutTarget
) -> MemberWait | None:
    """Why it runs another image than the one that is assigned to it, if a person asked for that after the pool began to
    move, while it is on record who did: it is not undone behind that person's back. A rollout that begins later takes
    it along."""
    order, running = server.status.order, server.status.image_ref
    if order is None or order.image_ref != running or running == server.status.assigned_image_ref:
        return None
    if target.since is None or parse_time(order.ordered_time) < parse_time(target.since):
        return None
    asked = next((m for m in maintenances if m.name == order.maintenance_ref), None)
    if asked is None or all(r.name == REQUESTOR or r.image_ref != running for r in asked.spec.requestors):
        return None
    return MemberWait(
        "Once",
        f"it runs Image '{running}' once, by Maintenance {asked.name}; at its next boot it comes back to its pool: "
        f"kubectl provision reboot {server.name}",
    )


def _is_off(server: Server) -> bool:
    power = server.status.power
    return server.spec.power_state == "Off" or (power is not None and power.state == "Off")


def _failure(
    server: Server, maintenances: tuple[Maintenance, ...], target: RolloutTarget, retried: float | None
) -> UpgradeFailure | None:
    """The last failure with `target` that a person has not decided on."""
    found = [_failed_with(m, server, target) for m in maintenances]
    known = (each for each in (*found, server.status.upgrade_failure) if each is not None)
    failures = [f for f in known if f.image_ref == target.name and f.node_pool_ref in (None, target.pool)]
    if retried is not None:
        failures = [f for f in failures if parse_time(f.time).timestamp() > retried]
    return max(failures, key=lambda f: parse_time(f.time), default=None)


def _failed_with(maintenance: Maintenance, server: Server, target: RolloutTarget) -> UpgradeFailure | None:
    """The failure that a Maintenance of the rollout ended with, once it had begun to boot that image; or an ordered
    reboot that was to bring it, of which nobody named an image."""
    status = maintenance.status
    if status.phase != "Failed" or status.reboot is None or status.finished_time is None:
        return None
    entry, boot = entry_of(maintenance, REQUESTOR), status.reboot
    moves_to = entry.node_pool_ref if entry is not None else boot.node_pool_ref
    if boot.image_ref != target.name or moves_to not in (None, target.pool):
        return None
    if entry is None and (
        target.since is None  # it begins now: nothing has failed on the way
        or parse_time(status.finished_time) < parse_time(target.since)
        or server.status.assigned_image_ref == target.name
        or any(requestor.image_ref is not None for requestor in maintenance.spec.requestors)
    ):
        return None
    ended = find_condition(status.conditions, "Succeeded")
    words = f"{ended.reason}: {ended.message}" if ended is not None else "it did not get there"
    return UpgradeFailure(
        image_ref=target.name,
        node_pool_ref=moves_to if entry is not None else None,
        time=status.finished_time,
        maintenance_ref=maintenance.name,
        message=words[:1024],
    )
