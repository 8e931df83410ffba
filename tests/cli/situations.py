"""Servers in situations that an operator meets, as the API server would tell of them at one moment."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from provisioner.api import Condition, Maintenance, NodePool, ObjectMeta, Server
from provisioner.api.machinery.meta import rfc3339, rfc3339_micro
from provisioner.api.nodes.maintenance import Blocker, MaintenanceSpec, RebootAttempt, Requestor, TimelineEntry
from provisioner.api.nodes.maintenance import MaintenanceStatus as Status
from provisioner.api.pools.node_pool import NodePoolSpec
from provisioner.api.servers.faults import FaultRecord
from provisioner.api.servers.server import BMC, ServerSpec, ServerStatus
from provisioner.api.servers.server_status import BootOrder, CheckResult, PowerStatus, Verification
from provisioner.cli.why.subject import ServerSubject
from provisioner.cluster.recent_events import RecentEvents

NOON = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)
NAME = "r01-u07"
DIGEST = "sha256:" + "ab" * 32


def before(**span: float) -> str:
    return rfc3339(NOON - timedelta(**span))


def condition(type_: str, status: Any, reason: str, message: str = "", **span: float) -> Condition:
    time = before(**(span or {"hours": 30}))
    return Condition(type=type_, status=status, reason=reason, message=message, last_transition_time=time)


def node_condition(type_: str, status: str, reason: str, message: str = "", **span: float) -> dict[str, str]:
    time = before(**(span or {"hours": 30}))
    return {"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": time}


def node(
    *conditions: dict[str, str], taints: tuple[dict[str, str], ...] = (), unschedulable: bool = False
) -> dict[str, Any]:
    ready = [node_condition("Ready", "True", "KubeletReady", "kubelet is posting ready status")]
    ready = [] if any(each["type"] == "Ready" for each in conditions) else ready
    return {
        "metadata": {"name": NAME},
        "spec": {"taints": list(taints), "unschedulable": unschedulable},
        "status": {"nodeInfo": {"bootID": "boot-7"}, "conditions": [*ready, *conditions]},
    }


def taint(key: str, effect: str, value: str = "") -> dict[str, str]:
    return {"key": f"provisioner.dev/{key}", "effect": effect} | ({"value": value} if value else {})


def verification(*checks: CheckResult, **more: Any) -> Verification:
    passed = CheckResult(name="ImageDigest", result="Passed", reason="AsOrdered", message="it is the ordered one")
    return Verification(
        boot_id="boot-7", attempt=more.pop("attempt", 1), started_time=before(hours=30), finished_time=before(hours=30),
        checks=(passed, *checks), **more,
    )  # fmt: skip


def server(**status: Any) -> Server:
    """One that booted yesterday, was verified, and is in production."""
    known: dict[str, Any] = {
        "address": "10.80.0.27",
        "node_ref": NAME,
        "boot_stage": "Ready",
        "boot_id": "boot-7",
        "image_ref": "gpu-node-1",
        "image_digest": DIGEST,
        "lifecycle": "InProduction",
        "order": BootOrder(
            id="o1", reason="FirstBoot", ordered_time=before(hours=31), attempt=1, image_ref="gpu-node-1"
        ),
        "power": PowerStatus(state="On", order_id="o1", order_time=before(hours=31)),
        "ready_time": before(hours=30, minutes=57),
        "verification": verification(),
        "conditions": (
            condition("PoweredOn", "True", "On"),
            condition("Ready", "True", "Ready"),
            condition("Verified", "True", "Passed", "all 1 checks of boot boot-7 passed (round 1)"),
        ),
    }
    spec = ServerSpec(
        boot_mac_address="52:54:00:80:01:07",
        rack_ref="r01",
        node_pool_ref="gpu",
        acceptance="Accepted",
        bmc=BMC(address="https://10.90.0.17"),
    )
    return Server(metadata=ObjectMeta(name=NAME), spec=spec, status=ServerStatus(**(known | status)))


def requestor(**more: Any) -> Requestor:
    said: dict[str, Any] = {
        "name": "user-alice",
        "user": "alice",
        "action": "Reimage",
        "policy": "WhenIdle",
        "message": "driver 590",
        "requested_time": before(hours=2, minutes=5),
    }
    return Requestor(**(said | more))


def entry(phase: Any, reason: str, message: str, **span: float) -> TimelineEntry:
    return TimelineEntry(time=rfc3339_micro(NOON - timedelta(**span)), phase=phase, reason=reason, message=message)


ASKED = entry("Waiting", "Requested", "user-alice: Reimage, WhenIdle, by user alice: driver 590", hours=2, minutes=5)


def maintenance(*requestors: Requestor, number: int = 3, **status: Any) -> Maintenance:
    known: dict[str, Any] = {"action": "Reimage", "policy": "WhenIdle", "image_ref": "gpu-node-2", "timeline": (ASKED,)}
    return Maintenance(
        metadata=ObjectMeta(name=f"{NAME}-{number}", creation_timestamp=before(hours=2, minutes=5)),
        spec=MaintenanceSpec(server_ref=NAME, requestors=requestors or (requestor(),)),
        status=Status(**(known | status)),
    )


def blocker(kind: Any, name: str, message: str, **span: float) -> Blocker:
    return Blocker(kind=kind, name=name, message=message, since_time=before(**span))


def attempt(
    method: Any, outcome: Any = None, message: str | None = None, *, began: float, lasted: float
) -> RebootAttempt:
    """began: seconds ago; lasted: its seconds, or those of its time-out while it is under way."""
    start = NOON - timedelta(seconds=began)
    return RebootAttempt(
        id=f"{method}-1",
        method=method,
        image_ref="gpu-node-2",
        image_digest=DIGEST,
        started_time=rfc3339_micro(start),
        deadline_time=rfc3339_micro(start + timedelta(seconds=lasted)),
        ended_time=rfc3339_micro(start + timedelta(seconds=lasted)) if outcome else None,
        outcome=outcome,
        message=message,
    )


def event(reason: str, message: str, *, type_: str = "Normal", count: int = 1, **span: float) -> dict[str, Any]:
    time = before(**span)
    return {
        "metadata": {"creationTimestamp": time},
        "type": type_,
        "reason": reason,
        "message": message,
        "lastTimestamp": time,
        "count": count,
    }


def subject(
    server_: Server | None = None,
    node_: dict[str, Any] | None = None,
    *maintenances: Maintenance,
    events: tuple[dict[str, Any], ...] | None = (),
    no_node: bool = False,
) -> ServerSubject:
    pool = NodePool(metadata=ObjectMeta(name="gpu"), spec=NodePoolSpec(image_ref="gpu-node-2"))
    return ServerSubject(
        server=server_ or server(),
        node=None if no_node else node_ or node(),
        pool=pool,
        maintenances=maintenances,
        events=RecentEvents(tuple(events)) if events is not None else None,
        now=NOON,
    )


def never_booted() -> ServerSubject:
    words = "no boot was ordered: Image gpu-node-2 is not available: publish it on a boot host"
    fresh = server(
        lifecycle="Accepted", order=None, boot_stage=None, boot_id=None, image_ref=None, image_digest=None,
        verification=None, power=PowerStatus(state="Off"),
        conditions=(
            condition("Ready", "False", "ImageUnavailable", words),
            condition("PoweredOn", "False", "PowerOff", "the BMC says Off"),
        ),
    )  # fmt: skip
    return subject(fresh, no_node=True)


def failed_verification() -> ServerSubject:
    failed = CheckResult(
        name="InfinibandPorts",
        result="Failed",
        reason="PortDown",
        message="port mlx5_3/1 is DOWN, expected ACTIVE; check cable, transceiver and switch port",
        time=before(minutes=20),
    )
    checked = server(
        lifecycle="Booted",
        verification=verification(failed, attempt=2),
        conditions=(
            condition("Ready", "True", "Ready"),
            condition("Verified", "False", "InfinibandPorts", failed.message, minutes=20),
        ),
    )
    return subject(checked, node(taints=(taint("verification", "NoExecute"),)))


def failed_maintenance() -> ServerSubject:
    words = "every reboot method was tried; the Node reports the old boot still: look at its console"
    ended = maintenance(
        requestor(name="condition-reimage", user=None),
        number=2,
        phase="Failed",
        finished_time=before(minutes=40),
        attempts=(
            attempt("Kexec", "TimedOut", "no new boot was seen", began=6000, lasted=180),
            attempt("Reset", "TimedOut", "no new boot was seen", began=5800, lasted=900),
        ),
        conditions=(condition("Succeeded", "False", "NeverReturned", words, minutes=40),),
    )
    lost = server(
        lifecycle="Booting",
        conditions=(condition("Ready", "False", "NodeNotReady", "Node 'r01-u07' is not Ready: no heartbeat", hours=1),),
    )
    unreachable = node(node_condition("Ready", "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status."))
    return subject(
        lost,
        unreachable,
        ended,
        events=(
            event("MaintenanceFailed", words, type_="Warning", minutes=40),
            event("BMCUnreachable", "no answer from https://10.90.0.17", type_="Warning", count=12, minutes=3),
        ),
    )


def waits_for_a_job() -> ServerSubject:
    waiting = maintenance(
        phase="Waiting",
        blockers=(
            blocker("PodGroup", "ml/train", "JobSet of 8 pods on 4 nodes runs", hours=2, minutes=5),
            blocker("SlurmJob", "4711", "Slurm job 4711 of bob is completing", minutes=2),
        ),
        next_step="is claimed as soon as no job runs; Image gpu-node-2 is staged already",
    )
    asked = node_condition("provisioner.dev/RebootRequested", "True", "WhenIdle", "please", minutes=30)
    return subject(None, node(asked), replace(waiting, spec=replace(waiting.spec, requestors=(
        *waiting.spec.requestors,
        requestor(name="condition-reboot", user=None, action="Reboot", message="please",
                  requested_time=before(minutes=30)),
    ))))  # fmt: skip


def deadline_announced() -> ServerSubject:
    told = maintenance(
        requestor(policy="Deadline", deadline_time=rfc3339(NOON + timedelta(minutes=10))),
        phase="Waiting",
        policy="Deadline",
        deadline_time=rfc3339(NOON + timedelta(minutes=10)),
        warned_time=before(minutes=5),
        blockers=(blocker("Pod", "ml/train-0", "is a job; it was warned", hours=2),),
        next_step="evicts what still runs at 2026-01-02T12:10:00Z",
        timeline=(ASKED, entry("Waiting", "JobsWarned", "1 pod was told of the deadline", minutes=5)),
    )
    return subject(None, None, told)


def blocked_by_a_budget() -> ServerSubject:
    draining = maintenance(
        phase="Draining",
        blockers=(
            blocker(
                "PodDisruptionBudget",
                "web/frontend",
                "allows no eviction of web/frontend-7 now (0 of 2 may be down); have another replica started",
                minutes=12,
            ),
        ),
        next_step="asks again until 2026-01-02T12:46:00Z, then gives up",
        timeline=(
            ASKED,
            entry("Claiming", "Claimed", "no job runs", minutes=14),
            entry("Draining", "Draining", "3 pods are to be evicted", minutes=14),
        ),
    )
    keeps_out = node(taints=(taint("maintenance", "NoSchedule", f"{NAME}-3"),), unschedulable=True)
    return subject(server(lifecycle="Maintenance"), keeps_out, draining)


def boots_by_kexec() -> ServerSubject:
    under_way = maintenance(
        phase="Rebooting",
        reboot=attempt("Kexec", began=40, lasted=180),
        next_step="waits for a new boot of the Node",
        timeline=(
            ASKED,
            entry("Claiming", "Claimed", "no job runs", seconds=52),
            entry("Rebooting", "RebootBegun", "by Kexec into Image gpu-node-2", seconds=40),
        ),
    )
    order = BootOrder(
        id="o2", reason="Requested", ordered_time=before(seconds=40), attempt=1, image_ref="gpu-node-2",
        method="Kexec", maintenance_ref=f"{NAME}-3", attempt_id="Kexec-1", message=f"Maintenance {NAME}-3 asks for it",
    )  # fmt: skip
    booting = server(
        lifecycle="Maintenance",
        order=order,
        boot_stage="Ordered",
        conditions=(condition("Ready", "False", "Ordered", "waits for the running system to boot anew", seconds=40),),
    )
    return subject(booting, node(taints=(taint("maintenance", "NoSchedule", f"{NAME}-3"),)), under_way)


def fell_back_to_reset() -> ServerSubject:
    second = maintenance(
        phase="Rebooting",
        attempts=(attempt("Kexec", "TimedOut", "no new boot was seen", began=230, lasted=180),),
        reboot=attempt("Reset", began=50, lasted=900),
        blockers=(blocker("Server", NAME, "has not booted yet", seconds=50),),
        next_step="waits for a new boot of the Node",
        timeline=(
            ASKED,
            entry("Rebooting", "RebootBegun", "by Kexec into Image gpu-node-2", seconds=230),
            entry("Rebooting", "RebootBegun", "by Reset into Image gpu-node-2: Kexec TimedOut", seconds=50),
        ),
    )
    return subject(server(lifecycle="Maintenance"), None, second)


def lost_its_image() -> ServerSubject:
    words = (
        "Image 'gpu-node-2' does not exist; remedy: on the boot host: provisioner image publish DIRECTORY --store "
        "IMAGE-STORE --key IMAGE.PUB"
    )
    waiting = maintenance(
        phase="Rebooting",
        reboot=attempt("Reset", began=3000, lasted=3600),
        image_ref="gpu-node-2",
        blockers=(blocker("Image", "gpu-node-2", words, seconds=2900),),
        next_step="is rebooted by Reset; its boot is awaited for longer while its Image is missing",
        timeline=(ASKED, entry("Rebooting", "RebootStarted", "Reset into Image gpu-node-2, attempt 1", seconds=3000)),
    )
    return subject(server(lifecycle="Maintenance"), None, waiting)


def held() -> ServerSubject:
    asked = node_condition("provisioner.dev/HoldRequested", "True", "Held", "ada: its fan", hours=3)
    return subject(server(lifecycle="Held"), node(asked, taints=(taint("hold", "NoSchedule"),)))


def idle() -> ServerSubject:
    done = maintenance(
        number=2,
        phase="Completed",
        finished_time=before(hours=30),
        attempts=(attempt("Kexec", "Booted", began=110000, lasted=31),),
        conditions=(condition("Succeeded", "True", "Done", "boot boot-7 runs Image gpu-node-1, and is verified"),),
    )
    return subject(None, None, done, events=(event("MaintenanceCompleted", "boot boot-7 runs it", hours=30),))


def without_bmc_credentials() -> ServerSubject:
    """Its boot is late, as its BMC cannot be told."""
    order = BootOrder(id="o1", reason="FirstBoot", ordered_time=before(minutes=5), attempt=1, image_ref="gpu-node-1")
    found = server(
        order=order,
        boot_stage="Ordered",
        boot_id=None,
        image_ref=None,
        lifecycle="Booting",
        power=None,
        ready_time=None,
        verification=None,
        conditions=(
            condition("Ready", "False", "StageTimedOut", "ordered has lasted longer than it may", minutes=3),
            condition(
                "PoweredOn",
                "Unknown",
                "CredentialsMissing",
                "Secret provisioner-bmcs/r01-bmc does not exist; remedy: kubectl -n provisioner-bmcs create secret "
                "generic r01-bmc --from-literal=username=… --from-file=password=FILE",
                minutes=5,
            ),
        ),
    )
    return subject(found, no_node=True)


def fault(code: str, **fields: Any) -> FaultRecord:
    known: dict[str, Any] = {
        "source": "KernelLog",
        "component": "GPU",
        "device": "0000:1b:00.0",
        "severity": "Critical",
        "first_time": before(hours=2),
        "last_time": before(minutes=12),
        "count": 1,
        "boot_id": "boot-7",
        "reported": True,
    }
    return FaultRecord(code=code, **(known | fields))


FAULTS = (
    fault("XID31", severity="Info", count=212, evidence="Xid 31"),
    fault("XID79", evidence="Xid 79", reported=False),
    fault("ModuleError", component="NIC", device="0000:18:00.0", severity="Degraded", first_time=before(days=3)),
)


def broken() -> ServerSubject:
    """In production, with faults on record."""
    return subject(server(faults=FAULTS), None)


SITUATIONS = {
    "broken": broken,
    "idle": idle,
    "waits-for-a-job": waits_for_a_job,
    "deadline-announced": deadline_announced,
    "blocked-by-a-budget": blocked_by_a_budget,
    "boots-by-kexec": boots_by_kexec,
    "fell-back-to-reset": fell_back_to_reset,
    "lost-its-image": lost_its_image,
    "failed-verification": failed_verification,
    "held": held,
    "failed-maintenance": failed_maintenance,
    "never-booted": never_booted,
    "without-bmc-credentials": without_bmc_credentials,
}
