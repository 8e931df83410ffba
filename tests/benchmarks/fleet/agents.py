"""Agents, kubelets and the join of a fleet, played by threads: they obey what their Node is told, and report a boot.

A real agent fetches and verifies an image for minutes, reports twice (Staging, Staged), and its machine takes minutes
to boot; these answer once, and boot after `BOOT_SECONDS`.
"""

from __future__ import annotations

import json
import queue
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from provisioner.api import Server
from provisioner.api.machinery.codec import to_json
from provisioner.api.machinery.meta import rfc3339, rfc3339_micro
from provisioner.api.nodes.contract import BOOT_INTENT_ANNOTATION, BOOT_REPORT_ANNOTATION, NODE_FACTS_ANNOTATION
from provisioner.cluster.client import Cluster
from provisioner.cluster.informer import Informer
from provisioner.cluster.resources import LEASES, NODE_LEASES, NODES
from tests.health.objects import good_facts, nic

WORKERS: Final = 6
BOOT_SECONDS: Final = 2.0
RENEWALS: Final = 3
"""Of a Lease after a boot, a second apart: by two of them the health controller knows the node's clock."""
GPUS: Final = 8

Object = Mapping[str, Any]


@dataclass(frozen=True, order=True)
class _Told:
    due: float
    name: str
    intent: dict[str, Any] = field(compare=False)


class Agents:
    """Of all Nodes, until `stop` is set. errors: what went wrong in one of them, in words."""

    def __init__(self, kubeconfig: Path, stop: threading.Event) -> None:
        self._kubeconfig, self._stop = kubeconfig, stop
        self._told: queue.PriorityQueue[_Told] = queue.PriorityQueue()
        self._obeyed: set[tuple[str, str]] = set()
        self._nodes = Informer(Cluster.connect(kubeconfig, user_agent="agents"), NODES)
        self.errors: list[str] = []

    def start(self) -> None:
        self._nodes.subscribe(self._node_changed)
        self._nodes.start(self._stop)
        if not self._nodes.wait_for_sync(120):
            raise TimeoutError("the agents do not see their Nodes")
        for number in range(WORKERS):
            threading.Thread(target=self._work, name=f"agents-{number}", daemon=True).start()

    def _node_changed(self, name: str, old: Object | None, new: Object | None) -> None:
        text = ((new or {}).get("metadata", {}).get("annotations") or {}).get(BOOT_INTENT_ANNOTATION)
        intent = json.loads(text) if text else None
        if intent is not None and (name, intent["id"]) not in self._obeyed:
            self._obeyed.add((name, intent["id"]))
            self._tell(name, intent)

    def _tell(self, name: str, intent: dict[str, Any], after_seconds: float = 0.0) -> None:
        self._told.put(_Told(time.monotonic() + after_seconds, name, intent))

    def _work(self) -> None:
        cluster = Cluster.connect(self._kubeconfig, user_agent="agents")
        while not self._stop.is_set():
            try:
                told = self._told.get(timeout=1.0)
            except queue.Empty:
                continue
            if (rest := told.due - time.monotonic()) > 0:
                self._told.put(told)
                time.sleep(min(rest, 0.1))
                continue
            try:
                self._obey(cluster, told.name, told.intent)
            except Exception as error:  # the bench says so, and fails by what does not come
                self.errors.append(f"{told.name}: {told.intent.get('action')}: {error!r}")

    def _obey(self, cluster: Cluster, name: str, intent: dict[str, Any]) -> None:
        match intent["action"]:
            case "Stage":
                report(cluster, name, intent, "Staged")
            case "Kexec" | "Reboot":
                report(cluster, name, intent, "Rebooting")
                not_ready = {"type": "Ready", "status": "False", "reason": "Kexec", "message": "starts it"}
                cluster.strategic_patch(NODES, name, {"status": {"conditions": [not_ready]}}, subresource="status")
                self._tell(name, {**intent, "action": "Boots"}, BOOT_SECONDS)
            case "Boots":
                boot(cluster, name, intent["imageDigest"])
                self._tell(name, {"action": "Renew", "left": RENEWALS - 1}, 1.0)
            case "Renew":
                renew_lease(cluster, name)
                if intent["left"] > 1:
                    self._tell(name, {**intent, "left": intent["left"] - 1}, 1.0)


def report(cluster: Cluster, name: str, intent: Object, state: str) -> None:
    """What the agent says of what it was told."""
    said = {"id": intent["id"], "state": state, "imageDigest": intent["imageDigest"], "bootID": intent["bootIDBefore"],
            "message": state, "time": rfc3339(datetime.now(UTC))}  # fmt: skip
    annotate(cluster, name, BOOT_REPORT_ANNOTATION, said)


def boot(cluster: Cluster, name: str, digest: str) -> str:
    """The join of the current order, a Node that is Ready, its facts, its Lease; returns the new boot id."""
    boot_id, server, now = str(uuid.uuid4()), cluster.read(Server, name), datetime.now(UTC)
    if server.status.order is None:
        raise ValueError(f"{name} has no boot order")
    join = {"orderID": server.status.order.id, "bootID": boot_id, "fetchedTime": rfc3339_micro(now)}
    cluster.apply_status(Server, name, {"join": join}, manager="provisioner-join")
    cluster.strategic_patch(NODES, name, {"status": node_status(boot_id, now)}, subresource="status")
    facts = good_facts(
        nics=(nic(server.spec.boot_mac_address),),
        boot_id=boot_id,
        image_digest=digest,
        kexec_supported=True,
        time=rfc3339(now),
    )
    annotate(cluster, name, NODE_FACTS_ANNOTATION, to_json(facts))
    renew_lease(cluster, name)
    return boot_id


def node_status(boot_id: str, now: datetime) -> dict[str, Any]:
    """What a kubelet says of a server with eight GPUs that is well."""
    words = ("machineID", "systemUUID", "kernelVersion", "osImage", "kubeletVersion", "kubeProxyVersion")
    resources = {"cpu": "128", "memory": "2064384Mi", "pods": "110", "nvidia.com/gpu": str(GPUS)}
    said = {"Ready": "True", "MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False"}
    return {
        "nodeInfo": {
            **dict.fromkeys((*words, "operatingSystem", "architecture"), "x"),
            "containerRuntimeVersion": "containerd://2.1",
            "bootID": boot_id,
        },
        "capacity": resources,
        "allocatable": resources,
        "conditions": [
            {"type": type_, "status": status, "reason": "Kubelet", "message": "as the kubelet says"}
            | {"lastTransitionTime": rfc3339(now), "lastHeartbeatTime": rfc3339(now)}
            for type_, status in said.items()
        ],
    }


def annotate(cluster: Cluster, name: str, key: str, value: Object) -> None:
    text = json.dumps(value, separators=(",", ":"))
    cluster.patch(NODES, name, {"metadata": {"annotations": {key: text}}}, manager="agent")


def renew_lease(cluster: Cluster, name: str) -> None:
    spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": rfc3339_micro(datetime.now(UTC))}
    body = {"apiVersion": LEASES.api_version, "kind": "Lease", "spec": spec}
    cluster.apply(body | {"metadata": {"name": name, "namespace": NODE_LEASES}}, manager="kubelet")
