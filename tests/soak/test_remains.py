"""That a soak notices what was not mended: each rule is broken once."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from tests.soak.remains import Remains, what_is_wrong

NAME, BOOT, UID = "r01-u01", "5ee24d8a-0c7c-4e43-8a15-2bb92d1b2a01", "b1c4c1e2-1111-4111-8111-000000000001"
NOW = "2026-01-01T00:00:00Z"
SERVER: dict[str, Any] = {
    "apiVersion": "provisioner.dev/v1alpha1",
    "kind": "Server",
    "metadata": {"name": NAME},
    "spec": {"bootMACAddress": "52:54:00:80:01:01"},
    "status": {
        "lifecycle": "InProduction",
        "bootID": BOOT,
        "nodeUID": UID,
        "conditions": [
            {"type": type_, "status": "True", "reason": "Good", "message": "", "lastTransitionTime": NOW}
            for type_ in ("Ready", "Verified")
        ],
    },
}
NODE: dict[str, Any] = {
    "kind": "Node",
    "metadata": {"name": NAME, "uid": UID},
    "spec": {},
    "status": {"nodeInfo": {"bootID": BOOT}, "conditions": [{"type": "Ready", "status": "True"}]},
}
MAINTENANCE: dict[str, Any] = {
    "apiVersion": "provisioner.dev/v1alpha1",
    "kind": "Maintenance",
    "metadata": {"name": f"{NAME}-1"},
    "spec": {"serverRef": NAME},
    "status": {"phase": "Completed"},
}
REQUEST: dict[str, Any] = {
    "metadata": {"name": "csr-1"},
    "spec": {"username": "system:bootstrap:abcdef"},
    "status": {"conditions": [{"type": "Denied"}]},
}
CLEAN = Remains(servers=(SERVER,), nodes=(NODE,), maintenances=(MAINTENANCE,), requests=(REQUEST,))


def changed(body: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    copied = copy.deepcopy(body)
    *way, last = path.split(".")
    place = copied
    for step in way:
        place = place.setdefault(step, {})
    place[last] = value
    return copied


def test_a_fleet_as_if_nothing_had_happened_is_found_clean() -> None:
    assert what_is_wrong(CLEAN, [NAME]) == []


@pytest.mark.parametrize(
    ("remains", "words"),
    [
        (replace(CLEAN, servers=()), "Server r01-u01 is gone"),
        (replace(CLEAN, nodes=()), "Node r01-u01 is gone"),
        (replace(CLEAN, nodes=(NODE, changed(NODE, "metadata.name", "ghost"))), "Node ghost should not be there"),
        (replace(CLEAN, servers=(changed(SERVER, "status.lifecycle", "Booting"),)), "lifecycle is Booting"),
        (replace(CLEAN, servers=(changed(SERVER, "status.conditions", []),)), "is not in production"),
        (
            replace(CLEAN, nodes=(changed(NODE, "status.conditions", [{"type": "Ready", "status": "Unknown"}]),)),
            "is not Ready: Unknown",
        ),
        (replace(CLEAN, nodes=(changed(NODE, "status.nodeInfo.bootID", "another"),)), "runs boot another"),
        (replace(CLEAN, nodes=(changed(NODE, "metadata.uid", "another"),)), "Node r01-u01 is another"),
        (replace(CLEAN, nodes=(changed(NODE, "spec.unschedulable", True),)), "is cordoned"),
        (
            replace(
                CLEAN,
                nodes=(changed(NODE, "spec.taints", [{"key": "provisioner.dev/maintenance", "effect": "NoSchedule"}]),),
            ),
            "still has the taint provisioner.dev/maintenance:NoSchedule",
        ),
        (
            replace(
                CLEAN,
                nodes=(
                    changed(
                        NODE,
                        "status.conditions",
                        [{"type": "Ready", "status": "True"}, {"type": "DrainInProgress", "status": "True"}],
                    ),
                ),
            ),
            "still has DrainInProgress",
        ),
        (
            replace(CLEAN, maintenances=(changed(MAINTENANCE, "status.phase", "Claiming"),)),
            "Maintenance r01-u01-1 is still Claiming",
        ),
        (replace(CLEAN, maintenances=(changed(MAINTENANCE, "status", {}),)), "is still not looked at"),
        (replace(CLEAN, tokens=({"metadata": {"name": "bootstrap-token-abcdef"}},)), "bootstrap-token-abcdef is still"),
        (
            replace(CLEAN, requests=(changed(REQUEST, "status", {}),)),
            "csr-1 of system:bootstrap:abcdef was not decided",
        ),
        (
            replace(CLEAN, others=({"kind": "NodePool", "metadata": {"name": "x", "deletionTimestamp": "now"}},)),
            "NodePool x is being deleted, kept by nothing",
        ),
    ],
)
def test_whatever_was_not_mended_is_named(remains: Remains, words: str) -> None:
    (found,) = what_is_wrong(remains, [NAME])
    assert words in found
