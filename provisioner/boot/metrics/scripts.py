"""The scripts of iPXE: how many there are, how they are written, and what waits to be."""

from __future__ import annotations

from typing import Final, Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Histogram

from provisioner.cluster.series import PREFIX, born

RenderResult = Literal["written", "unchanged", "removed", "unreadable"]
"""unreadable: an object of that server cannot be read, and its machine is told to wait."""
SECONDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0)


class ScriptMeter:
    """What the renderer tells."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._rendered = Counter(
            f"{PREFIX}_scripts_rendered", "Scripts that were looked at, by what came of it.", ("result",),
            registry=registry,
        )  # fmt: skip
        self._seconds = Histogram(
            f"{PREFIX}_script_render_seconds", "How long one script took, from the objects to its file.",
            buckets=SECONDS, registry=registry,
        )  # fmt: skip
        self._failures = Counter(
            f"{PREFIX}_script_write_failures", "Attempts at which scripts could not be written.", registry=registry
        )
        born(self._rendered, get_args(RenderResult))

    def rendered(self, result: RenderResult, seconds: float) -> None:
        self._rendered.labels(result).inc()
        self._seconds.observe(seconds)

    def failed(self) -> None:
        self._failures.inc()
