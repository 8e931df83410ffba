"""Which cache a Rack's servers are told of. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from provisioner.api import Rack
from provisioner.api.machinery.conditions import find_condition
from provisioner.cluster.source import conditions_of

CACHE_AVAILABLE: Final = "CacheAvailable"
"""Condition of a Rack: whether its cache gives what it should as fast as it must; absent before anybody has looked."""


def usable_cache(rack: Rack) -> str | None:
    """The cache's URL, without a slash at its end; None where there is none, or it was taken out.

    What was said of an earlier spec does not count: it may have named another cache.
    """
    if rack.spec.cache_url is None:
        return None
    condition = find_condition(rack.status.conditions, CACHE_AVAILABLE)
    out = condition is not None and condition.status == "False"
    if out and condition is not None and condition.observed_generation == rack.metadata.generation:
        return None
    return rack.spec.cache_url.rstrip("/")


def verdict_on_cache(rack: Mapping[str, Any]) -> list[tuple[str, int]]:
    """What of a Rack's JSON `usable_cache` depends on, beside its spec."""
    return [(c["status"], c.get("observedGeneration", 0)) for c in conditions_of(rack, CACHE_AVAILABLE)]
