"""Puts the project's kinds into a cluster."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from provisioner.api.errors import Retryable
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import CRDS


def apply_crds(cluster: Cluster, crds: Iterable[Mapping[str, Any]], *, timeout_seconds: float = 30) -> None:
    """Apply CustomResourceDefinitions and wait until the API server serves them.

    Raises: Refused if a schema is not acceptable; Retryable if one is not served after `timeout_seconds`.
    """
    names = [cluster.apply(crd, manager="provisioner-install")["metadata"]["name"] for crd in crds]
    deadline = time.monotonic() + timeout_seconds
    for name in names:
        while waits_for := _waits_for(cluster.get(CRDS, name)):
            if time.monotonic() > deadline:
                raise Retryable(f"CRD {name} is not served after {timeout_seconds:.0f} s: {waits_for}")
            time.sleep(0.05)


def _waits_for(crd: Mapping[str, Any]) -> str | None:
    conditions = {condition["type"]: condition for condition in (crd.get("status") or {}).get("conditions") or []}
    established = conditions.get("Established")
    if established is not None and established["status"] == "True":
        return None
    refused = conditions.get("NamesAccepted", {})
    return str(refused.get("message") or "it is not Established yet")
