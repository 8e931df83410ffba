"""One reboot of a lab's server by the maintenance executor, with the times of what was seen.

The Node is held, a Maintenance is filed, and what a waiting one prepares is done: for a kexec the image is staged. Then
the hold ends. The command is the boot intent that the executor writes on the Node: it has claimed and drained the
server by then, which takes the same time whichever path it goes.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

from provisioner.api import Maintenance, NodePool, Server
from provisioner.api.machinery.codec import from_json
from provisioner.api.machinery.meta import parse_time, rfc3339
from provisioner.api.machinery.schema import API_VERSION
from provisioner.api.nodes.contract import BOOT_INTENT_ANNOTATION, BOOT_REPORT_ANNOTATION, HOLD_REQUESTED
from provisioner.api.nodes.facts import BootIntent, BootReport
from provisioner.api.nodes.maintenance import FINAL_PHASES, RebootMethod
from provisioner.api.servers.server import ServerStatus
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import NODES, of
from tests.benchmarks.processor_time import ProcessorTime

STEP_SECONDS: Final = 600.0
LOOK_SECONDS: Final = 0.1
USED_AGAIN: Final = "Completed"
NEEDED: Final = ("Stage1", "Ready")
"""Stages without whose time a reboot cannot be compared; any other may have been missed."""

T = TypeVar("T")


@dataclass(frozen=True)
class Reboot:
    """Seconds from the boot intent's writing."""

    method: RebootMethod
    staging: float
    """How long fetching, verifying and loading took, before the command; 0 without."""
    stages: dict[str, float]
    """Until each stage of the new boot began as the Server's status tells, `Ready`, and the Maintenance's end."""
    processor: dict[str, float]
    """The same in processor seconds of the emulator, and of the TPM's."""


def reboot(cluster: Cluster, lab: Path, server: str, method: RebootMethod) -> Reboot:
    """Have the server's Node rebooted onto the image of its pool, and wait until it is in use again."""
    with ProcessorTime(*emulators_of(lab, server)) as processor:
        before = str(cluster.get(NODES, server)["status"]["nodeInfo"]["bootID"])
        pool = cluster.read(Server, server).spec.node_pool_ref
        settings = {"rebootMethods": [method], "kexecModels": ["*"]}
        cluster.patch(of(NodePool), str(pool), {"spec": {"maintenance": settings}})
        _hold(cluster, server, "True")
        name = _file(cluster, server)
        began = time.monotonic()
        if method == "Kexec":
            _wait("the image is staged", lambda: _staged(cluster, server, before))
        staging = time.monotonic() - began if method == "Kexec" else 0.0
        _wait("the Maintenance waits", lambda: _phase(cluster, name) == "Waiting" or None)
        _hold(cluster, server, "False")
        command = _wait("the command is given", lambda: _commanded(cluster, server, before))
        moments = {"Ready": _wait("the Node is Ready in another boot", lambda: _ready(cluster, server, before))}
        phase = _wait("the Maintenance ends", lambda: _ended(cluster, name))
        if phase != USED_AGAIN:
            sys.exit(
                f"kexec_bench: Maintenance {name} ended as {phase}: {cluster.get(of(Maintenance), name)['status']}"
            )
        moments[USED_AGAIN] = datetime.now(UTC)
        moments = stages_since(command, cluster.read(Server, server).status) | moments
        if missed := set(NEEDED) - set(moments):
            sys.exit(f"kexec_bench: Server {server} has no time of {', '.join(missed)} after {command}")
        stages = {stage: (moment - command).total_seconds() for stage, moment in moments.items()}
        start = command.timestamp()
        spent = {stage: processor.between(start, start + seconds) for stage, seconds in stages.items()}
        return Reboot(method, staging, stages, spent)


def stages_since(command: datetime, status: ServerStatus) -> dict[str, datetime]:
    """When each stage after the command began: as reported, and Kubelet as the join service wrote it.

    A report that somebody waits for the join configuration is not kept once it was handed out.
    """
    heard = {each.stage: each.time for each in status.progress.stage_times} if status.progress is not None else {}
    if status.join is not None and status.join.fetched_time is not None:
        heard["Kubelet"] = status.join.fetched_time
    moments = {str(stage): parse_time(moment) for stage, moment in heard.items()}
    return {stage: moment for stage, moment in moments.items() if moment > command}


def was_seen(stage: str, *runs: Sequence[Reboot]) -> bool:
    """Whether each of the reboots has a time of it."""
    return all(stage in run.stages for each in runs for run in each)


def save(runs: Mapping[str, Sequence[Reboot]], written: Path) -> None:
    """For the process that runs outside of the lab's network namespace."""
    written.write_text(json.dumps({name: [asdict(run) for run in each] for name, each in runs.items()}))


def load(written: Path) -> dict[str, list[Reboot]]:
    return {name: [Reboot(**run) for run in each] for name, each in json.loads(written.read_text()).items()}


def emulators_of(lab: Path, server: str) -> list[int]:
    """Process ids of the QEMU of a server of the lab in that folder, and of its swtpm, if it has one."""
    found: dict[str, list[int]] = {"qemu-system-x86_64": [], "swtpm": []}
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            program, *words = file.read_bytes().decode(errors="replace").split("\0")
            mine = any(f"{lab}/" in word and f"/{server}/" in word for word in words)
            if mine and (name := program.rpartition("/")[2]) in found:
                found[name].append(int(file.parent.name))
    if len(found["qemu-system-x86_64"]) != 1:
        sys.exit(f"server {server} of {lab} does not run")
    return [pid for pids in found.values() for pid in pids]


def _file(cluster: Cluster, server: str) -> str:
    taken = [m.name for m in cluster.read_all(Maintenance) if m.spec.server_ref == server]
    number = max((int(name.rpartition("-")[2]) for name in taken if name[-1].isdigit()), default=0) + 1
    body: dict[str, Any] = {
        "apiVersion": API_VERSION,
        "kind": "Maintenance",
        "metadata": {"name": f"{server}-{number}"},
        "spec": {"serverRef": server, "requestors": [{"name": "benchmark", "action": "Reboot", "policy": "Now"}]},
    }
    cluster.create(of(Maintenance), body)
    return f"{server}-{number}"


def _hold(cluster: Cluster, server: str, status: str) -> None:
    now = rfc3339(datetime.now(UTC))
    condition = {"type": HOLD_REQUESTED, "status": status, "reason": "Benchmark", "message": "until it is staged"}
    condition |= {"lastTransitionTime": now, "lastHeartbeatTime": now}
    cluster.strategic_patch(NODES, server, {"status": {"conditions": [condition]}}, subresource="status")


def _annotation(cluster: Cluster, server: str, name: str) -> dict[str, Any] | None:
    text = cluster.get(NODES, server)["metadata"].get("annotations", {}).get(name)
    return dict(json.loads(text)) if text else None


def _staged(cluster: Cluster, server: str, before: str) -> bool | None:
    told = _annotation(cluster, server, BOOT_REPORT_ANNOTATION)
    if told is None:
        return None
    report = from_json(BootReport, told)
    if report.boot_id == before and report.state == "Failed":
        sys.exit(f"kexec_bench: the image was not staged: {report.message}")
    return True if report.boot_id == before and report.state == "Staged" else None


def _commanded(cluster: Cluster, server: str, before: str) -> datetime | None:
    told = _annotation(cluster, server, BOOT_INTENT_ANNOTATION)
    intent = from_json(BootIntent, told) if told else None
    given = intent is not None and intent.boot_id_before == before and intent.action != "Stage"
    return datetime.now(UTC) if given else None


def _ready(cluster: Cluster, server: str, before: str) -> datetime | None:
    status = cluster.get(NODES, server).get("status", {})
    is_new = status.get("nodeInfo", {}).get("bootID") not in (None, "", before)
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions", []))
    return datetime.now(UTC) if is_new and ready else None


def _phase(cluster: Cluster, name: str) -> str | None:
    return cluster.read(Maintenance, name).status.phase


def _ended(cluster: Cluster, name: str) -> str | None:
    phase = _phase(cluster, name)
    return phase if phase in FINAL_PHASES else None


def _wait(what: str, found: Callable[[], T | None]) -> T:
    deadline = time.monotonic() + STEP_SECONDS
    while (result := found()) is None:
        if time.monotonic() > deadline:
            sys.exit(f"kexec_bench: after {STEP_SECONDS:.0f} s still not: {what}")
        time.sleep(LOOK_SECONDS)
    return result
