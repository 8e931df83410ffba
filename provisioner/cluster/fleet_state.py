"""Boots that are late, and images that are wanted and missing: counted when Prometheus asks."""

from __future__ import annotations

from collections import Counter as Count
from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from provisioner.cluster.outcome_meter import STAGES, late_stage
from provisioner.cluster.series import gauge
from provisioner.cluster.source import Source, conditions_of

Json = Mapping[str, Any]


class LateBootCollector(Collector):
    def __init__(self, servers: Source) -> None:
        self._servers = servers

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterable[Metric]:
        late = Count(stage for server in self._servers.items() if (stage := late_stage(server)) is not None)
        words = "Servers whose boot has been in that stage for longer than it may, or was given up there."
        yield gauge("boots_late", words, ("stage",), {(stage,): late[stage] for stage in STAGES})


class ImageCollector(Collector):
    """Images by whether a boot host has them; and those that are wanted and cannot be booted."""

    def __init__(self, images: Source, pools: Source, servers: Source) -> None:
        self._images = images
        self._pools = pools
        self._servers = servers

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterable[Metric]:
        available = {str(image["metadata"]["name"]): _available(image) for image in self._images.items()}
        states = Count(available.values())
        words = "Images by condition Available: whether a boot host has every file."
        yield gauge(
            "images", words, ("available",), {(state,): states[state] for state in ("True", "False", "Unknown")}
        )
        wanted = {str((pool.get("spec") or {}).get("imageRef") or "") for pool in self._pools.items()}
        wanted |= {str((server.get("status") or {}).get("assignedImageRef") or "") for server in self._servers.items()}
        missing: dict[tuple[str, ...], float] = {("Absent",): 0, ("Unavailable",): 0}
        for name in wanted - {""}:
            if available.get(name) != "True":
                missing["Unavailable" if name in available else "Absent",] += 1
        words = (
            "Images that a NodePool or a Server names and that cannot be booted: no such Image, or no boot host has it."
        )
        yield gauge("images_missing", words, ("state",), missing)


def _available(image: Json) -> str:
    said = next((str(each.get("status")) for each in conditions_of(image, "Available")), "Unknown")
    return said if said in ("True", "False") else "Unknown"
