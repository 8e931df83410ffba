"""One reboot of a lab's server in the way that the maintenance executor does it, with the times of what was seen.

The executor itself waits, drains and verifies; here only what lies between its two writes counts: the try in
Maintenance.status, which arms the join, and the boot intent on the Node, which is the command.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

from provisioner.api import Image, Maintenance, Server
from provisioner.api.codec import from_json, to_json
from provisioner.api.conditions import find_condition
from provisioner.api.maintenance import MaintenanceStatus, RebootAttempt, RebootMethod
from provisioner.api.meta import parse_time, rfc3339_micro
from provisioner.api.node_contract import BOOT_INTENT_ANNOTATION, BOOT_REPORT_ANNOTATION
from provisioner.api.node_facts import BootIntent, BootReport, IntentAction
from provisioner.api.schema import API_VERSION
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import NODES, of
from tests.benchmarks.processor_time import ProcessorTime

MANAGER: Final = "provisioner-maintenance"
STEP_SECONDS: Final = 300.0
LOOK_SECONDS: Final = 0.1

T = TypeVar("T")


@dataclass(frozen=True)
class Reboot:
    """Seconds from the boot intent's writing."""

    method: RebootMethod
    staging: float
    """How long fetching, verifying and loading took, before the command; 0 without."""
    stages: dict[str, float]
    """Until each progress report of the new boot was heard, and `Ready`."""
    processor: dict[str, float]
    """The same in processor seconds of the emulator."""


def reboot(cluster: Cluster, server: str, method: RebootMethod) -> Reboot:
    """Reboot the server's Node onto the image that it runs, and wait until it is Ready in its new boot."""
    with ProcessorTime(emulator_of(server)) as processor:
        return _reboot(cluster, server, method, processor)


def emulator_of(server: str) -> int:
    """Process id of the server's QEMU."""
    wanted = ["qemu-system-x86_64", "-name", server]
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if file.read_bytes().decode(errors="replace").split("\0")[:3] == wanted:
                return int(file.parent.name)
        except OSError:
            continue
    sys.exit(f"kexec_bench: server {server} does not run")


def _reboot(cluster: Cluster, server: str, method: RebootMethod, processor: ProcessorTime) -> Reboot:
    image_ref = cluster.read(Server, server).status.image_ref
    image = cluster.read(Image, str(image_ref))
    before = _boot_id(cluster, server)
    staging = 0.0
    if method == "Kexec":
        began = time.monotonic()
        _intend(cluster, server, "Stage", f"stage-{uuid.uuid4()}", before, image)
        _wait("the image is staged", lambda: _staged(cluster, server))
        staging = time.monotonic() - began
    attempt = f"try-{uuid.uuid4()}"
    name = f"{server}-bench-{attempt[-12:]}"
    _file_maintenance(cluster, name, server, method, attempt, image)
    _wait("the boot is ordered and the Node prepared", lambda: _prepared(cluster, server, attempt))
    command = datetime.now(UTC)
    action: IntentAction = "Kexec" if method == "Kexec" else "Reboot"
    _intend(cluster, server, action, attempt, before, image)
    ready = _wait("the Node is Ready in another boot", lambda: _ready(cluster, server, before))
    stages = _stages(cluster, server, command) | {"Ready": (ready - command).total_seconds()}
    cluster.patch(NODES, server, {"metadata": {"annotations": {BOOT_INTENT_ANNOTATION: None}}})
    cluster.apply_status(Maintenance, name, {"phase": "Completed"}, manager=MANAGER)
    cluster.delete(of(Maintenance), name)
    begin = command.timestamp()
    spent = {stage: processor.between(begin, begin + seconds) for stage, seconds in stages.items()}
    return Reboot(method, staging, stages, spent)


def _file_maintenance(
    cluster: Cluster, name: str, server: str, method: RebootMethod, attempt: str, image: Image
) -> None:
    requestor = {"name": "benchmark", "action": "Reboot", "policy": "Now"}
    body: dict[str, Any] = {
        "apiVersion": API_VERSION,
        "kind": "Maintenance",
        "metadata": {"name": name},
        "spec": {"serverRef": server, "requestors": [requestor]},
    }
    cluster.create(of(Maintenance), body)
    now = datetime.now(UTC)
    status = MaintenanceStatus(
        phase="Rebooting",
        reboot=RebootAttempt(
            id=attempt,
            method=method,
            image_ref=image.name,
            image_digest=image.spec.digest,
            started_time=rfc3339_micro(now),
            deadline_time=rfc3339_micro(now + timedelta(seconds=STEP_SECONDS)),
        ),
    )
    cluster.apply_status(Maintenance, name, to_json(status), manager=MANAGER)


def _intend(cluster: Cluster, server: str, action: IntentAction, name: str, before: str, image: Image) -> None:
    intent = BootIntent(
        id=name,
        action=action,
        boot_id_before=before,
        image=image.name,
        image_digest=image.spec.digest,
        kernel_arguments=image.spec.kernel_arguments,
    )
    text = json.dumps(to_json(intent))
    cluster.patch(NODES, server, {"metadata": {"annotations": {BOOT_INTENT_ANNOTATION: text}}})


def _staged(cluster: Cluster, server: str) -> bool | None:
    annotations = cluster.get(NODES, server)["metadata"].get("annotations", {})
    intent = json.loads(annotations[BOOT_INTENT_ANNOTATION])
    if BOOT_REPORT_ANNOTATION not in annotations:
        return None
    report = from_json(BootReport, json.loads(annotations[BOOT_REPORT_ANNOTATION]))
    if report.id == intent["id"] and report.state == "Failed":
        sys.exit(f"kexec_bench: the image was not staged: {report.message}")
    return True if report.id == intent["id"] and report.state == "Staged" else None


def _prepared(cluster: Cluster, server: str, attempt: str) -> bool | None:
    status = cluster.read(Server, server).status
    prepared = find_condition(status.conditions, "NodePrepared")
    if status.order is None or status.order.request_id != attempt or prepared is None or prepared.status != "True":
        return None
    annotations = cluster.get(NODES, server)["metadata"].get("annotations", {})
    return True if annotations.get("provisioner.dev/prepared-order") == status.order.id else None


def _ready(cluster: Cluster, server: str, before: str) -> datetime | None:
    status = cluster.get(NODES, server).get("status", {})
    is_new = status.get("nodeInfo", {}).get("bootID") not in (None, "", before)
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions", []))
    return datetime.now(UTC) if is_new and ready else None


def _stages(cluster: Cluster, server: str, command: datetime) -> dict[str, float]:
    progress = cluster.read(Server, server).status.progress
    assert progress is not None
    times = {stage.stage: (parse_time(stage.time) - command).total_seconds() for stage in progress.stage_times}
    return {stage: seconds for stage, seconds in times.items() if seconds > 0}


def _boot_id(cluster: Cluster, server: str) -> str:
    return str(cluster.get(NODES, server)["status"]["nodeInfo"]["bootID"])


def _wait(what: str, found: Callable[[], T | None]) -> T:
    deadline = time.monotonic() + STEP_SECONDS
    while (result := found()) is None:
        if time.monotonic() > deadline:
            sys.exit(f"kexec_bench: after {STEP_SECONDS:.0f} s still not: {what}")
        time.sleep(LOOK_SECONDS)
    return result
