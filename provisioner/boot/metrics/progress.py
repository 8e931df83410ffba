"""Reports of booting machines, on their way in and on to the API server. All of it is hearsay: it is counted and
shown. How long the stages of a boot took is the controller's `boot_stage_seconds`."""

from __future__ import annotations

from typing import Literal, get_args

from prometheus_client import CollectorRegistry, Counter

from provisioner.api.servers.boot_stage import HEARD_STAGES, BootStage
from provisioner.cluster.series import PREFIX, born

ReportResult = Literal["accepted", "unknown_machine", "malformed", "too_large", "rate_limited"]
WriteResult = Literal["written", "unchanged", "put_off", "dropped"]
"""put_off: the API server was away, and it is written later."""


class ProgressMeter:
    """What the routes and the recorder tell."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._reports = Counter(
            f"{PREFIX}_progress_reports", "Reports that machines sent over HTTP.", ("result",), registry=registry
        )
        self._writes = Counter(
            f"{PREFIX}_progress_writes", "Writes of the progress of a Server, by how they ended.", ("result",),
            registry=registry,
        )  # fmt: skip
        self._stages = Counter(
            f"{PREFIX}_boot_stages_seen", "Stages of boots that were seen here to begin.", ("stage",), registry=registry
        )
        born(self._reports, get_args(ReportResult))
        born(self._writes, get_args(WriteResult))
        born(self._stages, HEARD_STAGES)

    def reported(self, result: ReportResult) -> None:
        self._reports.labels(result).inc()

    def wrote(self, result: WriteResult) -> None:
        self._writes.labels(result).inc()

    def stage_began(self, stage: BootStage) -> None:
        self._stages.labels(stage).inc()
