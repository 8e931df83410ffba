"""Faults as sources report them, and as they are on record; each test changes what it is about."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from provisioner.api.machinery.meta import rfc3339
from provisioner.api.nodes.facts import ObservedFault
from provisioner.api.servers.faults import FaultRecord
from tests.health.objects import BOOT, NOON

GPU = "0000:1b:00.0"


def observed(code: str = "XID79", **fields: Any) -> ObservedFault:
    good = ObservedFault(
        source="KernelLog", component="GPU", device=GPU, code=code, severity="Critical", count=1, evidence="Xid"
    )
    return replace(good, **fields)


def record(code: str = "XID79", **fields: Any) -> FaultRecord:
    good = FaultRecord(
        source="KernelLog",
        component="GPU",
        device=GPU,
        code=code,
        severity="Critical",
        first_time=rfc3339(NOON),
        last_time=rfc3339(NOON),
        count=1,
        boot_id=BOOT,
        reported=True,
        evidence="Xid",
    )
    return replace(good, **fields)
