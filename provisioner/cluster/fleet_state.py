"""Boots that are late, and images that are wanted and missing: counted when Prometheus asks."""

from __future__ import annotations

from collections import Counter as Count
from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client.core import Metric

from provisioner.cluster.outcome_meter import STAGES, late_stage
from provisioner.cluster.series import Values, counts_of, gauge
from provisioner.cluster.source import Source, conditions_of, spec_of

Json = Mapping[str, Any]


def late_boots(servers: Source) -> Iterable[Metric]:
    late = Count(stage for server in servers.items() if (stage := late_stage(server)) is not None)
    words = "Servers whose boot has been in that stage for longer than it may, or was given up there."
    yield gauge("boots_late", words, ("stage",), counts_of(late, STAGES))


def images_by_state(images: Source, pools: Source, servers: Source) -> Iterable[Metric]:
    """Images by whether a boot host has them; and those that are wanted and cannot be booted."""
    available = {str(image["metadata"]["name"]): _available(image) for image in images.items()}
    words = "Images by condition Available: whether a boot host has every file."
    states = counts_of(Count(available.values()), ("True", "False", "Unknown"))
    yield gauge("images", words, ("available",), states)
    wanted = {str(spec_of(pool).get("imageRef") or "") for pool in pools.items()}
    wanted |= {str((server.get("status") or {}).get("assignedImageRef") or "") for server in servers.items()}
    missing: Values = {("Absent",): 0, ("Unavailable",): 0}
    for name in wanted - {""}:
        if available.get(name) != "True":
            missing["Unavailable" if name in available else "Absent",] += 1
    words = "Images that a NodePool or a Server names and that cannot be booted: no such Image, or no boot host has it."
    yield gauge("images_missing", words, ("state",), missing)


def _available(image: Json) -> str:
    said = next((str(each.get("status")) for each in conditions_of(image, "Available")), "Unknown")
    return said if said in ("True", "False") else "Unknown"
