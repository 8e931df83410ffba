"""Maintenance: one disturbance of one server, from the request to its proven end. Its status is the audit record."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from provisioner.api.machinery.meta import Condition, Resource
from provisioner.api.machinery.rules import NAME_RULES, PRINTABLE_RULES
from provisioner.api.machinery.schema import CelRule, Column, FieldSchema, Kind, described, listed, optional

MaintenanceAction = Literal["Drain", "Reboot", "Reimage", "PowerCycle"]
MaintenancePolicy = Literal["WhenIdle", "Deadline", "Now"]
RebootMethod = Literal["Kexec", "Reboot", "Reset", "PowerCycle"]
MaintenancePhase = Literal[
    "Waiting", "Claiming", "Draining", "Drained", "Rebooting", "Verifying", "Completed", "Failed", "Cancelled"
]
RequestTurn = Literal["Waits", "Steered", "Closed", "Granted"]
StagingTurn = Literal["Later", "Now"]
BlockerKind = Literal[
    "Pod",
    "PodGroup",
    "SlurmJob",
    "PodDisruptionBudget",
    "Budget",
    "Hold",
    "Maintenance",
    "Rollout",
    "Server",
    "Node",
    "Image",
    "Slurm",
    "Agent",
    "Checks",
    "Person",
]
AttemptOutcome = Literal["Booted", "TimedOut", "Failed", "WrongImage"]

ACTIONS: tuple[MaintenanceAction, ...] = ("Drain", "Reboot", "Reimage", "PowerCycle")
"""From the mildest to the strongest."""
POLICIES: tuple[MaintenancePolicy, ...] = ("WhenIdle", "Deadline", "Now")
"""From the most patient to the most urgent."""
AGENT_METHODS: tuple[RebootMethod, ...] = ("Kexec", "Reboot")
"""Carried out by the agent in the running system, not by the BMC."""
FINAL_PHASES: tuple[MaintenancePhase, ...] = ("Completed", "Failed", "Cancelled")
DISTURBING_PHASES: tuple[MaintenancePhase, ...] = ("Claiming", "Draining", "Drained", "Rebooting", "Verifying")
"""In these the server is out of use, and counts against its pool's budget."""

RELEASE_FINALIZER = "provisioner.dev/release"


@dataclass(frozen=True, kw_only=True)
class Requestor:
    """Somebody who wants the disturbance. Several are merged: the strongest action, the most urgent policy."""

    RULES: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "self.policy != 'Deadline' || has(self.deadlineTime)",
            "policy Deadline needs deadlineTime, the moment until which running jobs may go on",
            field=".deadlineTime",
        ),
        CelRule(
            "self.policy == 'Deadline' || !has(self.deadlineTime)",
            "deadlineTime is only for policy Deadline: leave it out, or set policy to Deadline",
            field=".deadlineTime",
        ),
        CelRule(
            "self.action != 'Drain' || !has(self.imageRef)",
            "action Drain boots nothing: leave imageRef out, or ask for action Reimage",
            field=".imageRef",
        ),
        CelRule(
            "!has(self.nodePoolRef) || self.name == 'rollout' && has(self.imageRef)",
            "nodePoolRef is for rollouts, which move servers together with their image: to move a server, set "
            "spec.nodePoolRef of the Server (kubectl provision move)",
            field=".nodePoolRef",
        ),
        CelRule(
            "!has(self.turn) || self.turn == 'Granted' || self.policy != 'Now'",
            "policy Now does not wait for a turn: leave turn out, or ask with another policy",
            field=".turn",
        ),
        CelRule(
            "!has(self.closingTime) || (has(self.turn) && self.turn == 'Closed')",
            "closingTime is only for turn Closed: leave it out, or set turn to Closed",
            field=".closingTime",
        ),
    )
    name: str = described(
        "Who asks, unique in this Maintenance, such as user-alice, condition-reboot or rollout.",
        max_length=63,
        rules=NAME_RULES,
    )
    user: str | None = optional(
        "User name that the API server knew the asker by. An admission policy refuses another person's.", max_length=253
    )
    action: MaintenanceAction = described(
        "Drain: take it out of use until the request is withdrawn. Reboot, PowerCycle: boot anew, on the image that "
        "is assigned to it. Reimage: as Reboot, and it counts as done only on that image."
    )
    policy: MaintenancePolicy = described(
        "WhenIdle: never interrupts a job. Deadline: warns jobs, and evicts them at deadlineTime. Now: evicts at once.",
        server_default="WhenIdle",
    )
    deadline_time: str | None = optional("With policy Deadline: when running jobs are evicted.", format="date-time")
    image_ref: str | None = optional(
        "Image to boot once; the assigned one if absent.", max_length=253, rules=NAME_RULES
    )
    node_pool_ref: str | None = optional(
        "NodePool that the server moves to with that boot; the one that it is assigned to if absent.",
        max_length=63,
        rules=NAME_RULES,
    )
    message: str | None = optional("Why, in words.", max_length=1024)
    requested_time: str | None = optional("When it was asked for.", format="date-time")
    turn: RequestTurn | None = optional(
        "For who asks for many servers, of which few at a time may go. Until it is Granted the request is not carried "
        "out. Waits: nothing is done for it. Steered: pods are placed there only where no other server takes them. "
        "Closed: no new job is taken; those that run end by themselves. Granted if absent."
    )
    closing_time: str | None = optional(
        "With turn Closed: where Slurm can reserve a node for a moment to come (25.05 or newer), jobs that end by then "
        "still start, and none from then on. Elsewhere none starts from now on, and no pod does anywhere.",
        format="date-time",
    )
    staging: StagingTurn | None = optional(
        "Whether the agent fetches the image ahead while jobs run: Later spares the network until Now. Now if absent."
    )

    @property
    def has_turn(self) -> bool:
        """Whether it is carried out; else it is kept for later, and counts for nothing that is done now."""
        return self.turn in (None, "Granted")


@dataclass(frozen=True, kw_only=True)
class MaintenanceSpec:
    """Which server, and who wants what of it. Without requestors it is withdrawn."""

    server_ref: str = described(
        "Server to disturb, and so the Node of that name.",
        max_length=63,
        rules=(*NAME_RULES, CelRule("self == oldSelf", "a Maintenance keeps its server: make another one")),
    )
    requestors: tuple[Requestor, ...] = listed(
        "Who wants what. Each writes its own entry, and takes it away to withdraw.",
        max_items=16,
        list_map_keys=("name",),
    )


SUCCEEDED: Final = "Succeeded"
"""Condition that holds how a Maintenance ends, or that it goes back to waiting (Unknown)."""


@dataclass(frozen=True, kw_only=True)
class Blocker:
    """Something that is waited for."""

    kind: BlockerKind = described("What it is.")
    name: str = described("Its name, with its namespace where it has one.", max_length=512)
    message: str = described("Why it is waited for, and what a person can do.", max_length=1024)
    since_time: str = described("Since when it is waited for.", format="date-time")


@dataclass(frozen=True, kw_only=True)
class RebootAttempt:
    """One attempt at one reboot method. Written before anything is done about it."""

    id: str = described("Identifies the attempt; the boot order repeats it.", max_length=63)
    method: RebootMethod = described(
        "Kexec: the agent starts the staged image. Reboot: the agent asks its system to. Reset and PowerCycle: the BMC."
    )
    image_ref: str = described("Image that it shall boot.", max_length=253)
    image_digest: str = described("Digest of that image.", max_length=71)
    node_pool_ref: str | None = optional("NodePool whose Node it shall become.", max_length=63)
    started_time: str = described("When it was begun.", format="date-time")
    deadline_time: str = described("When the next method is tried unless a new boot was seen.", format="date-time")
    ended_time: str | None = optional("When it was over.", format="date-time")
    outcome: AttemptOutcome | None = optional("How it ended.")
    message: str | None = optional("What is known of its end.", max_length=1024)


@dataclass(frozen=True, kw_only=True)
class SlurmDrain:
    """What was done to the server in Slurm, so that only that is undone."""

    node: str = described("Name of the node in Slurm.", max_length=253)
    reason: str = described("Drain reason that we set; only a drain with it is lifted.", max_length=253)
    node_pool_ref: str | None = optional(
        "NodePool whose Slurm cluster it is in, should the server be gone when it is lifted.", max_length=63
    )
    reserved_time: str | None = optional(
        "From when on it is reserved, by a reservation named provisioner- and this Maintenance's name; that is deleted "
        "when the drain is lifted. Absent if none was asked for.",
        format="date-time",
    )


@dataclass(frozen=True, kw_only=True)
class TimelineEntry:
    """One step of the record."""

    time: str = described("When it happened, to the microsecond.", format="date-time")
    phase: MaintenancePhase = described("Phase in which it happened.")
    reason: str = described("One CamelCase word of a small set.", max_length=63, rules=PRINTABLE_RULES)
    message: str = described("In words.", max_length=1024)
    about: tuple[str, ...] = listed(
        "What it is about, for programs: a requestor and a fingerprint of its request, pods, an intent's id.",
        max_items=16,
        item=FieldSchema(doc="A name or an id.", max_length=512),
    )


@dataclass(frozen=True, kw_only=True)
class MaintenanceStatus:
    """Where it is, what it waits for, what was done. The executor alone writes it."""

    phase: MaintenancePhase | None = optional("Where it is.")
    action: MaintenanceAction | None = optional("What the requestors together want.")
    policy: MaintenancePolicy | None = optional("The most urgent of the requestors' policies.")
    deadline_time: str | None = optional("The earliest of their deadlines.", format="date-time")
    image_ref: str | None = optional("Image that it shall boot.", max_length=253)
    node_uid: str | None = optional("Node that was claimed.", max_length=64)
    boot_id_before: str | None = optional("Kernel boot id when it was claimed.", max_length=63)
    boot_id_after: str | None = optional("Kernel boot id in which it ended.", max_length=63)
    slurm: SlurmDrain | None = optional("What was drained or reserved in Slurm.")
    warned_time: str | None = optional("When running jobs were warned.", format="date-time")
    reboot: RebootAttempt | None = optional("The attempt under way, or the last one.")
    attempts: tuple[RebootAttempt, ...] = listed("Attempts since the claim that are over.", max_items=16)
    blockers: tuple[Blocker, ...] = listed("What it waits for.", max_items=32)
    next_step: str | None = optional("What comes next, in words.", max_length=1024)
    started_time: str | None = optional("When it was first seen.", format="date-time")
    claimed_time: str | None = optional("When the server was claimed.", format="date-time")
    drained_time: str | None = optional("When nothing was left to wait for.", format="date-time")
    finished_time: str | None = optional("When it ended.", format="date-time")
    timeline: tuple[TimelineEntry, ...] = listed("The record: what was done and seen, oldest first.", max_items=128)
    conditions: tuple[Condition, ...] = listed(
        "MaintenancePlanned, DrainInProgress, Drained, MaintenanceInProgress (after KEP-5683), Succeeded, and "
        "SlurmDrained while the drain in Slurm outlives the Maintenance, until the server is verified.",
        max_items=32,
        list_map_keys=("type",),
    )


@dataclass(frozen=True, kw_only=True)
class Maintenance(Resource):
    KIND: ClassVar[Kind] = Kind(
        kind="Maintenance",
        short="mnt",
        description="One disturbance of one server, from the request to its proven end; the record of what was done.",
        columns=(
            Column("Server", ".spec.serverRef"),
            Column("Action", ".status.action"),
            Column("Policy", ".status.policy"),
            Column("Phase", ".status.phase"),
            Column("Image", ".status.imageRef", priority=1),
            Column("Next", ".status.nextStep", priority=1),
            Column("Age", ".metadata.creationTimestamp", type="date"),
            Column("Waits-For", ".status.blockers[0].message"),
        ),
        rules=(CelRule("self.metadata.name.size() <= 253", "a Maintenance's name has at most 253 characters"),),
        selectable=(".spec.serverRef", ".status.phase"),
    )
    spec: MaintenanceSpec
    status: MaintenanceStatus = MaintenanceStatus()


def holding_maintenance(maintenances: Iterable[Maintenance], server: str) -> Maintenance | None:
    """The one Maintenance of `server` that holds it: not final, one that has begun before one that has not, else the
    most urgent, else the oldest. None if there is none.

    Urgent before old: a patient request for an image that never comes must not keep somebody's Now waiting. One in
    which nobody's turn has come is the least urgent: it may wait for days.

    Names count where the times are equal, by their length first: n-9 is older than n-10.
    """
    active = [m for m in maintenances if m.spec.server_ref == server and m.status.phase not in FINAL_PHASES]
    return min(active, key=_seniority, default=None)


def _seniority(maintenance: Maintenance) -> tuple[bool, int, str, int, str]:
    meta = maintenance.metadata
    has_begun = maintenance.status.phase in DISTURBING_PHASES
    requestors = maintenance.spec.requestors
    urgency = max((POLICIES.index(r.policy) for r in requestors if r.has_turn), default=-1 if requestors else 0)
    return (not has_begun, 0 if has_begun else -urgency, meta.creation_timestamp or "", len(meta.name), meta.name)
