"""A fleet in use, made quickly: one server that the controllers themselves have brought there, and copies of it.

A copy has the model's Server and Node, status and owners of fields included, with a name, addresses and ids of its own;
and a pod that has all its GPUs. What the controllers would not have written so, they write anew when they start.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from provisioner.api import Server
from provisioner.api.machinery.meta import rfc3339
from provisioner.api.machinery.schema import API_VERSION
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import NAMESPACES, NODES, PODS, of
from tests.benchmarks.bare_writes import seconds_of_writes
from tests.benchmarks.fleet.agents import GPUS

PER_RACK: Final = 40
JOBS: Final = "jobs"
"""Namespace of the pods."""

Object = Mapping[str, Any]


@dataclass(frozen=True)
class Place:
    """Where the server of that number is."""

    number: int

    @property
    def rack(self) -> str:
        return f"r{self.number // PER_RACK:03d}"

    @property
    def name(self) -> str:
        return f"{self.rack}-u{self.number % PER_RACK:02d}"

    @property
    def network(self) -> str:
        rack = self.number // PER_RACK
        return f"10.{80 + rack // 256}.{rack % 256}"

    @property
    def address(self) -> str:
        return f"{self.network}.{10 + self.number % PER_RACK}"

    @property
    def mac(self) -> str:
        return f"52:54:00:{self.number >> 16 & 255:02x}:{self.number >> 8 & 255:02x}:{self.number & 255:02x}"

    @property
    def serial(self) -> str:
        return f"SN{self.number:08d}"


MODEL: Final = Place(0)


def make_racks(cluster: Cluster, servers: int) -> None:
    """Of 40 servers each, with a subnet of its own."""
    for number in range(0, servers, PER_RACK):
        place = Place(number)
        subnet = {"name": "boot", "cidr": f"{place.network}.0/24", "gateway": f"{place.network}.1"}
        body = {"apiVersion": API_VERSION, "kind": "Rack", "metadata": {"name": place.rack}}
        cluster.apply({**body, "spec": {"subnets": [subnet]}}, manager="bench")


def make_model(cluster: Cluster) -> None:
    """Register the server that the others will be copies of."""
    spec = {"bootMACAddress": MODEL.mac, "bootAddress": MODEL.address, "serialNumber": MODEL.serial}
    spec |= {"architecture": "x86_64", "rackRef": MODEL.rack, "nodePoolRef": "gpu", "acceptance": "Accepted"}
    cluster.apply(
        {"apiVersion": API_VERSION, "kind": "Server", "metadata": {"name": MODEL.name}, "spec": spec}, manager="bench"
    )


def make_jobs_namespace(cluster: Cluster) -> None:
    """With the account that a controller manager would make in it."""
    cluster.apply({"apiVersion": "v1", "kind": NAMESPACES.kind, "metadata": {"name": JOBS}}, manager="bench")
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": JOBS}}
    cluster.apply(account, manager="bench")


def copy_model(kubeconfig: Path, cluster: Cluster, numbers: Sequence[int]) -> float:
    """Make the servers of these numbers, over 8 connections; returns the seconds that it took."""
    server, node = cluster.get(of(Server), MODEL.name), cluster.get(NODES, MODEL.name)

    def make(client: Cluster, number: int) -> None:
        _make_copy(client, server, node, Place(number))

    return seconds_of_writes(kubeconfig, numbers, make)


def _make_copy(client: Cluster, server: Object, node: Object, place: Place) -> None:
    ids = {old: str(uuid.uuid4()) for old in (server["status"]["order"]["id"], node["status"]["nodeInfo"]["bootID"])}
    words = {**ids, MODEL.name: place.name, f'"{MODEL.rack}"': f'"{place.rack}"'}
    words |= {f"Rack {MODEL.rack}": f"Rack {place.rack}", MODEL.address: place.address}
    words |= {MODEL.mac: place.mac, MODEL.serial: place.serial}
    body = _renamed({"apiVersion": API_VERSION, "kind": "Server", "spec": server["spec"]}, words)
    created = client.create(of(Server), {**body, "metadata": {"name": place.name}}, manager="bench")
    words[server["metadata"]["uid"]] = created["metadata"]["uid"]
    metadata = {key: node["metadata"][key] for key in ("name", "labels", "annotations")}
    made = client.create(
        NODES,
        _renamed({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": node["spec"]}, words),
        manager="provisioner-join",
    )
    words[node["metadata"]["uid"]] = made["metadata"]["uid"]
    client.strategic_patch(NODES, place.name, _renamed({"status": node["status"]}, words), subresource="status")
    written = client.patch(of(Server), place.name, _renamed({"status": server["status"]}, words), subresource="status")
    # Only then, as a write of values makes its writer their owner.
    owners = [entry for entry in server["metadata"]["managedFields"] if entry.get("subresource") == "status"]
    specs = [entry for entry in written["metadata"]["managedFields"] if entry.get("subresource") != "status"]
    client.patch(of(Server), place.name, {"metadata": {"managedFields": [*specs, *owners]}})
    begin_job(client, place.name)


def _renamed(body: Object, words: Mapping[str, str]) -> dict[str, Any]:
    text = json.dumps(body)
    for old, new in words.items():
        text = text.replace(old, new)
    renamed: dict[str, Any] = json.loads(text)
    return renamed


def begin_job(client: Cluster, node: str) -> None:
    """A pod that has all GPUs of the server and runs."""
    gpus = {"nvidia.com/gpu": str(GPUS)}
    container = {"name": "main", "image": "example.invalid/train", "resources": {"limits": gpus, "requests": gpus}}
    spec = {"nodeName": node, "restartPolicy": "Never", "containers": [container]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"train-{node}", "namespace": JOBS}, "spec": spec}
    client.create(PODS, body)
    now = rfc3339(datetime.now(UTC))
    state = {"name": "main", "image": "example.invalid/train", "imageID": "", "ready": True, "restartCount": 0,
             "state": {"running": {"startedAt": now}}}  # fmt: skip
    status = {"phase": "Running", "startTime": now, "containerStatuses": [state]}
    client.patch(PODS, f"train-{node}", {"status": status}, namespace=JOBS, subresource="status")


def end_job(client: Cluster, node: str) -> None:
    """That pod has ended, in success."""
    now = rfc3339(datetime.now(UTC))
    ended = {"name": "main", "image": "example.invalid/train", "imageID": "", "ready": False, "restartCount": 0,
             "state": {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": now}}}  # fmt: skip
    status = {"phase": "Succeeded", "containerStatuses": [ended]}
    client.patch(PODS, f"train-{node}", {"status": status}, namespace=JOBS, subresource="status")
