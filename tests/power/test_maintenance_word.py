"""Which Maintenance asks for a boot order, and what is said of the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from provisioner.api.machinery.meta import ObjectMeta
from provisioner.api.nodes.maintenance import Maintenance, MaintenanceSpec, MaintenanceStatus, RebootAttempt
from provisioner.api.servers.server import BootOrder
from provisioner.power.preflight import what_differs

TRY = RebootAttempt(
    id="try-1",
    method="Reset",
    image_ref="gpu",
    image_digest="sha256:" + "ab" * 32,
    started_time="2026-01-02T03:04:05Z",
    deadline_time="2026-01-02T03:14:05Z",
)
ORDER = BootOrder(
    id="order-1",
    reason="Requested",
    ordered_time="2026-01-02T03:04:06Z",
    attempt=1,
    method="Reset",
    maintenance_ref="r01-u01-1",
    attempt_id="try-1",
)


def maintenance(
    *, server: str = "r01-u01", phase: Any = "Rebooting", reboot: RebootAttempt | None = TRY
) -> Maintenance:
    return Maintenance(
        metadata=ObjectMeta(name="r01-u01-1"),
        spec=MaintenanceSpec(server_ref=server),
        status=MaintenanceStatus(phase=phase, reboot=reboot),
    )


def test_a_maintenance_that_reboots_asks_for_the_order_that_answers_its_try() -> None:
    assert what_differs(maintenance(), "r01-u01", ORDER) is None


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (maintenance(server="r01-u02"), "it is for Server r01-u02"),
        (maintenance(phase="Verifying"), "its phase is Verifying, not Rebooting"),
        (maintenance(phase="Cancelled"), "its phase is Cancelled, not Rebooting"),
        (maintenance(phase=None), "its phase is not set, not Rebooting"),
        (maintenance(reboot=None), "its attempt is not begun, not try-1"),
        (maintenance(reboot=replace(TRY, id="try-2")), "its attempt is try-2, not try-1"),
        (maintenance(reboot=replace(TRY, method="PowerCycle")), "its attempt try-1 is by PowerCycle, not Reset"),
        (maintenance(reboot=replace(TRY, ended_time="2026-01-02T03:05:05Z")), "its attempt try-1 has ended"),
        (maintenance(reboot=replace(TRY, outcome="TimedOut")), "its attempt try-1 has ended"),
    ],
)
def test_any_other_does_not(found: Maintenance, words: str) -> None:
    assert what_differs(found, "r01-u01", ORDER) == words


def test_an_order_without_a_try_is_asked_for_by_nobody() -> None:
    assert what_differs(maintenance(), "r01-u01", replace(ORDER, attempt_id=None)) == "its attempt is try-1, not None"
