"""A fleet as a site might have it, at one moment: racks of eight servers in every state, a rollout under way, boots
that took what boots take. The same numbers give the same fleet."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from provisioner.api.machinery.meta import rfc3339, rfc3339_micro
from provisioner.api.servers.boot_stage import BootStage
from provisioner.web.fleet import Fleet
from provisioner.web.row import ServerRow
from tests.api import objects

Object = dict[str, Any]
NOON = datetime(2026, 3, 4, 12, 0, 0, tzinfo=UTC)
API = "provisioner.dev/v1alpha1"
OLD, NEW = "gpu-node-5c21d09e77ab", "gpu-node-9f3c01234567"
DIGESTS = {OLD: "sha256:" + "5c" * 32, NEW: "sha256:" + "9f" * 32}
OF_RACK = 8
PHASES: tuple[tuple[BootStage, float], ...] = (
    ("Firmware", 92.0),
    ("IPXE", 4.0),
    ("Stage1", 3.0),
    ("Root", 11.0),
    ("System", 9.0),
    ("Token", 1.5),
    ("Kubelet", 14.0),
)
"""How long each usually takes on a server with eight GPUs, in seconds."""


@dataclass
class MadeUpFleet:
    """Each by kind, as JSON of the API server."""

    racks: list[Object] = field(default_factory=list)
    servers: list[Object] = field(default_factory=list)
    pools: list[Object] = field(default_factory=list)
    images: list[Object] = field(default_factory=list)
    maintenances: list[Object] = field(default_factory=list)
    nodes: list[Object] = field(default_factory=list)


def condition(type_: str, status: str, reason: str, message: str, at: datetime) -> Object:
    return {"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": rfc3339(at)}


def row_in(fleet: Fleet, server: str) -> ServerRow | None:
    """What the fleet shows of it; None if it is not there."""
    return next((row for row in fleet.rows() if row.name == server), None)


def make_fleet(servers: int, *, now: datetime = NOON, seed: int = 7) -> MadeUpFleet:
    """So many servers, of which the first racks hold one of everything, and the others are in production."""
    chance = random.Random(seed)
    fleet = MadeUpFleet(images=[image(OLD), image(NEW)])
    for number in range(servers):
        rack, slot = divmod(number, OF_RACK)
        if slot == 0:
            fleet.racks.append(
                {
                    "apiVersion": API,
                    "kind": "Rack",
                    "metadata": {"name": rack_name(rack)},
                    "spec": {
                        "site": "north-1",
                        "subnets": [{"name": "boot", "cidr": f"10.{80 + rack // 250}.{rack % 250}.0/24"}],
                    },
                    "status": {"servers": OF_RACK},
                }
            )
        situation = SITUATIONS.get((rack, slot), "production")
        body, node, maintenance = a_server(number, situation, now, chance)
        fleet.servers.append(body)
        fleet.nodes += [node] if node is not None else []
        fleet.maintenances += [maintenance] if maintenance is not None else []
    fleet.pools.append(a_pool(fleet, now))
    return fleet


SITUATIONS: dict[tuple[int, int], str] = {
    **dict.fromkeys(((0, 2), (1, 0), (1, 1), (4, 3)), "updated"),
    (0, 0): "updated",
    (0, 1): "updated",
    (0, 3): "booting",
    (0, 5): "job",
    (0, 6): "job",
    (1, 3): "failed",
    (1, 6): "checking",
    (2, 1): "held",
    (2, 2): "job",
    (2, 4): "late",
    (2, 7): "pending",
    (3, 0): "blocked",
    (3, 4): "booting",
    (3, 5): "off",
    (4, 6): "job",
    (5, 2): "kept",
}
"""By rack and slot, counted from 0."""


def rack_name(rack: int) -> str:
    return f"r{rack + 1:02d}" if rack < 99 else f"r{rack + 1:04d}"


def server_name(number: int) -> str:
    rack, slot = divmod(number, OF_RACK)
    return f"{rack_name(rack)}-u{slot * 5 + 1:02d}"


def image(name: str) -> Object:
    return objects.image(name, digest=DIGESTS[name])


def a_boot(began: datetime, chance: random.Random, order: str, *, slow: float = 1.0) -> tuple[Object, datetime]:
    """Status of a boot that became Ready, and when it did."""
    times, at = {}, began + timedelta(seconds=0.4)
    for stage, seconds in PHASES:
        times[stage] = at
        at += timedelta(seconds=seconds * chance.uniform(0.9, 1.15) * (slow if stage == "Root" else 1.0))
    heard = [{"stage": stage, "time": rfc3339_micro(times[stage])} for stage, _ in PHASES if stage != "Kubelet"]
    return {
        "order": {
            "id": order,
            "reason": "FirstBoot",
            "orderedTime": rfc3339_micro(began),
            "attempt": 1,
            "message": "it was never booted by the provisioner",
        },
        "power": {"orderID": order, "orderTime": rfc3339_micro(times["Firmware"]), "state": "On"},
        "progress": {"stage": "Token", "stageTimes": heard},
        "join": {"orderID": order, "fetchedTime": rfc3339_micro(times["Kubelet"])},
        "readyTime": rfc3339_micro(at),
    }, at


def a_server(
    number: int, situation: str, now: datetime, chance: random.Random
) -> tuple[Object, Object | None, Object | None]:
    """The Server, its Node, and the Maintenance that holds it."""
    rack, slot = divmod(number, OF_RACK)
    name, began = server_name(number), now - timedelta(days=12, seconds=number % 5000)
    spec: Object = {
        "rackRef": rack_name(rack),
        "position": f"u{slot * 5 + 1:02d}",
        "serialNumber": f"S{number + 48213:07d}",
        "architecture": "x86_64",
        "bootMACAddress": "52:54:00:" + ":".join(f"{number >> shift & 255:02x}" for shift in (16, 8, 0)),
        "nodePoolRef": "gpu",
        "acceptance": "Accepted",
        "powerState": "On",
    }
    runs = NEW if situation in ("updated", "checking") else OLD
    boot, ready_at = a_boot(began if runs == OLD else now - timedelta(hours=2), chance, f"o{number}")
    boot_id = f"{number:08x}-0000-4000-8000-000000000000"
    status: Object = {
        **boot,
        "address": f"10.{80 + rack // 250}.{rack % 250}.{slot + 11}",
        "nodeRef": name,
        "nodePoolRef": "gpu",
        "bootStage": "Ready",
        "bootID": boot_id,
        "imageRef": runs,
        "imageDigest": DIGESTS[runs],
        "assignedImageRef": runs,
        "lifecycle": "InProduction",
        "verification": {
            "bootID": boot_id,
            "attempt": 1,
            "startedTime": rfc3339(ready_at),
            "finishedTime": rfc3339(ready_at),
            "checks": [
                {"name": "ImageDigest", "result": "Passed", "reason": "AsOrdered", "message": "it is the ordered one"},
                {"name": "GPUs", "result": "Passed", "reason": "AsExpected", "message": "8 of 8 GPUs are there"},
            ],
        },
        "conditions": [
            condition("Accepted", "True", "Accepted", "accepted", began),
            condition("PoweredOn", "True", "On", "the BMC says On", began),
            condition("Ready", "True", "Ready", f"Node '{name}' is Ready", ready_at),
            condition("Verified", "True", "Passed", "all 2 checks passed (round 1)", ready_at),
        ],
    }
    body = {
        "apiVersion": API,
        "kind": "Server",
        "metadata": {"name": name, "generation": 1, "uid": f"uid-{number}", "creationTimestamp": rfc3339(began)},
        "spec": spec,
        "status": status,
    }
    node: Object | None = {
        "metadata": {"name": name},
        "spec": {},
        "status": {
            "nodeInfo": {"bootID": boot_id},
            "conditions": [condition("Ready", "True", "KubeletReady", "kubelet is posting ready status", ready_at)],
        },
    }
    change = CHANGES.get(situation)
    maintenance, has_node = change(body, now, chance) if change else (None, True)
    return body, node if has_node else None, maintenance


def _ready(body: Object, status: str, reason: str, message: str, at: datetime) -> None:
    kept = [c for c in body["status"]["conditions"] if c["type"] not in ("Ready", "Verified")]
    body["status"]["conditions"] = [*kept, condition("Ready", status, reason, message, at)]


def _under_way(body: Object, now: datetime, chance: random.Random, stages: int, ago: float) -> None:
    """A boot that has come so far, and whose last stage began `ago` seconds before."""
    status = body["status"]
    before = sum(seconds for _, seconds in PHASES[: stages - 1])
    boot, _ = a_boot(now - timedelta(seconds=before + ago), chance, "o-now")
    reached = [entry for entry in boot["progress"]["stageTimes"] if entry["stage"] in dict(PHASES[:stages])]
    boot["progress"] = {"stage": PHASES[stages - 1][0], "stageTimes": reached}
    boot["order"] |= {"reason": "Requested", "message": "Maintenance asked for it", "attempt": 1}
    del boot["readyTime"], boot["join"]
    status.pop("readyTime")
    status.pop("join")
    status |= boot | {"bootStage": PHASES[stages - 1][0]}


def maintenance_of(body: Object, now: datetime, *, phase: str, blockers: list[Object] = (), **status: Any) -> Object:  # type: ignore[assignment]
    name = body["metadata"]["name"]
    asked = {
        "name": "rollout",
        "action": "Reimage",
        "policy": "WhenIdle",
        "imageRef": NEW,
        "turn": "Granted",
        "message": f"NodePool 'gpu' moves to Image '{NEW}'",
        "requestedTime": rfc3339(now - timedelta(hours=3)),
    }
    entry = {
        "time": rfc3339_micro(now - timedelta(hours=3)),
        "phase": "Waiting",
        "reason": "Requested",
        "message": f"rollout: Reimage, WhenIdle, to Image {NEW}",
    }
    return {
        "apiVersion": API,
        "kind": "Maintenance",
        "metadata": {"name": f"{name}-1", "creationTimestamp": rfc3339(now - timedelta(hours=3))},
        "spec": {"serverRef": name, "requestors": [asked]},
        "status": {
            "phase": phase,
            "action": "Reimage",
            "policy": "WhenIdle",
            "imageRef": NEW,
            "startedTime": rfc3339(now - timedelta(hours=3)),
            "blockers": list(blockers),
            "timeline": [entry],
            **status,
        },
    }


def _booting(body: Object, now: datetime, chance: random.Random) -> tuple[Object | None, bool]:
    stages = 4 if body["metadata"]["name"].startswith("r01") else 1
    ago = 7.0 if stages == 4 else 41.0
    _under_way(body, now, chance, stages, ago)
    body["status"]["lifecycle"] = "Maintenance"
    _ready(body, "False", PHASES[stages - 1][0], "waits for stage-1 to fetch and verify the root image", now)
    attempt = {
        "id": "a1",
        "method": "Reset",
        "imageRef": NEW,
        "imageDigest": DIGESTS[NEW],
        "startedTime": rfc3339_micro(now - timedelta(seconds=120)),
        "deadlineTime": rfc3339_micro(now + timedelta(minutes=20)),
    }
    if stages == 1:
        body["status"]["lifecycle"] = "Booting"
        body["status"]["order"] |= {"reason": "PowerLost", "message": "its BMC said that it was off"}
        _ready(body, "False", "Firmware", "waits for the firmware to start iPXE", now)
        return None, True
    return maintenance_of(body, now, phase="Rebooting", reboot=attempt, nextStep="wait for the new boot"), True


def _late(body: Object, now: datetime, chance: random.Random) -> tuple[Object | None, bool]:
    _under_way(body, now, chance, 1, 1260.0)
    body["status"]["lifecycle"] = "Booting"
    body["status"]["order"] |= {"reason": "TimedOut", "attempt": 3, "message": "the boot before was given up"}
    words = (
        "stage Firmware takes 21 min, expected 15 min: no DHCP request was seen; look at its console, and at the port"
    )
    _ready(body, "False", "StageTimedOut", words, now - timedelta(minutes=6))
    return None, False


def _job(body: Object, now: datetime, chance: random.Random) -> tuple[Object | None, bool]:
    body["status"]["lifecycle"] = "Maintenance"
    number = 4711 + int(body["metadata"]["name"][1:3])
    blocker = {
        "kind": "SlurmJob",
        "name": str(number),
        "sinceTime": rfc3339(now - timedelta(hours=2)),
        "message": f"SlurmJob {number} runs there, and ends in 5 h at the latest",
    }
    return maintenance_of(body, now, phase="Waiting", blockers=[blocker], nextStep="claim it once no job runs"), True


def _failed(body: Object, now: datetime, chance: random.Random) -> tuple[Object | None, bool]:
    message = "7 of 8 GPUs are there, expected 8: 0000:9a:00.0 fell off the bus (XID 79); reseat or replace it"
    body["status"]["lifecycle"] = "Booted"
    body["status"]["verification"]["checks"][1] |= {"result": "Failed", "reason": "Missing", "message": message}
    body["status"]["conditions"][-1] = condition("Verified", "False", "GPUs", message, now - timedelta(minutes=20))
    return None, True


def _checking(body: Object, now: datetime, chance: random.Random) -> tuple[Object | None, bool]:
    body["status"]["lifecycle"] = "Booted"
    running = "check nccl-all-reduce runs, for 40 s"
    body["status"]["conditions"][-1] = condition("Verified", "Unknown", "Running", running, now)
    return None, True


def _held(body: Object, now: datetime, chance: random.Random) -> tuple[Object | None, bool]:
    body["status"]["lifecycle"] = "Held"
    return None, True


def _kept(body: Object, now: datetime, chance: random.Random) -> tuple[Object | None, bool]:
    body["status"]["lifecycle"] = "Verified"
    return None, True


def _pending(body: Object, now: datetime, chance: random.Random) -> tuple[Object | None, bool]:
    body["spec"] |= {"acceptance": "Pending"}
    body["spec"].pop("nodePoolRef")
    seen = rfc3339(now - timedelta(minutes=9))
    found = {"manufacturer": "Example", "product": "GX-8", "serialNumber": "S0048236", "firstSeenTime": seen}
    body["status"] = {"lifecycle": "Discovered", "discovery": found}
    return None, False


def _blocked(body: Object, now: datetime, chance: random.Random) -> tuple[Object | None, bool]:
    words = f"no boot was ordered: Image {NEW} is not available for its architecture: publish it on a boot host"
    body["status"] = {
        "lifecycle": "Accepted",
        "address": body["status"]["address"],
        "conditions": [condition("Ready", "False", "ImageUnavailable", words, now - timedelta(hours=1))],
    }
    return None, False


def _off(body: Object, now: datetime, chance: random.Random) -> tuple[Object | None, bool]:
    body["spec"]["powerState"] = "Off"
    body["status"] |= {"lifecycle": "Retired", "power": {"state": "Off"}}
    _ready(body, "False", "SwitchedOff", "it is meant to be off", now - timedelta(days=2))
    return None, False


CHANGES = {
    "booting": _booting,
    "late": _late,
    "job": _job,
    "failed": _failed,
    "checking": _checking,
    "held": _held,
    "kept": _kept,
    "pending": _pending,
    "blocked": _blocked,
    "off": _off,
}


def a_pool(fleet: MadeUpFleet, now: datetime) -> Object:
    """On its way from one image to the other."""
    in_pool = [body for body in fleet.servers if body["spec"].get("nodePoolRef") == "gpu"]
    updated = sum(1 for body in in_pool if (body["status"].get("imageRef")) == NEW)
    words = "wave 1 of 3: all servers of it may follow; 4 servers wait for their jobs"
    rollout = {
        "imageRef": NEW,
        "previousImageRef": OLD,
        "startedTime": rfc3339(now - timedelta(hours=3)),
        "stage": "Wave",
        "passed": 1,
        "message": words,
        "expectedTime": rfc3339(now + timedelta(hours=6)),
        "waits": [{"reason": "Job", "count": 4}, {"reason": "Wave", "count": max(0, len(in_pool) - updated - 6)}],
        "blockers": [
            {"job": "SlurmJob 4712", "servers": 2, "expectedTime": rfc3339(now + timedelta(hours=5))},
            {"job": "SlurmJob 4714", "servers": 1, "expectedTime": rfc3339(now + timedelta(hours=1, minutes=20))},
        ],
    }
    status = {
        "desired": len(in_pool) - 1,
        "updated": updated,
        "updating": 1,
        "waiting": len(in_pool) - updated - 4,
        "failed": 1,
        "unavailable": 4,
        "rollout": rollout,
        "conditions": [condition("Progressing", "True", "Moving", words, now) | {"observedGeneration": 1}],
    }
    spec = {"imageRef": NEW, "attestation": "Optional"}
    metadata = {"name": "gpu", "generation": 1}
    return {"apiVersion": API, "kind": "NodePool", "metadata": metadata, "spec": spec, "status": status}


def names_of(fleet: MadeUpFleet) -> Iterator[str]:
    return (body["metadata"]["name"] for body in fleet.servers)
