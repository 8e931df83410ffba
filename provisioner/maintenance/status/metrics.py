"""What the executor measures. `provisioner.cluster.metrics` turns it into Prometheus metrics."""

from __future__ import annotations

from typing import Protocol

from provisioner.api.maintenance import MaintenanceAction, MaintenancePhase, MaintenancePolicy, RebootMethod


class MaintenanceMetrics(Protocol):
    """Told after the status that says so was written; a crash in between loses a measurement, never repeats one."""

    def phase_ended(self, phase: MaintenancePhase, action: MaintenanceAction, seconds: float) -> None:
        """A Maintenance left `phase` after `seconds`."""

    def wait_ended(self, blocker_kind: str, seconds: float) -> None:
        """Something of that kind (Blocker.kind) was waited for `seconds`, and is no longer."""

    def attempt_ended(self, method: RebootMethod, outcome: str, seconds: float) -> None:
        """An attempt at a reboot method ended: Booted, TimedOut, Failed or WrongImage."""

    def finished(
        self,
        phase: MaintenancePhase,
        reason: str,
        action: MaintenanceAction,
        policy: MaintenancePolicy,
        seconds: float,
    ) -> None:
        """A Maintenance ended (Completed, Failed, Cancelled) `seconds` after it was first seen; why, in one word."""


class NoMetrics:
    """Measures nothing."""

    def phase_ended(self, phase: MaintenancePhase, action: MaintenanceAction, seconds: float) -> None:
        return

    def wait_ended(self, blocker_kind: str, seconds: float) -> None:
        return

    def attempt_ended(self, method: RebootMethod, outcome: str, seconds: float) -> None:
        return

    def finished(
        self,
        phase: MaintenancePhase,
        reason: str,
        action: MaintenanceAction,
        policy: MaintenancePolicy,
        seconds: float,
    ) -> None:
        return
