"""The Event that keeps on record what a person did by a command. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from provisioner.api.machinery.meta import rfc3339
from provisioner.cli.kubectl.connection import MANAGER


def person_event(
    regarding: Mapping[str, str], what: str, reason: str, message: str, now: datetime, suffix: str
) -> dict[str, Any]:
    """About the object that `regarding` names. what, and suffix: make its name another one each time."""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{regarding['name'][:200].rstrip('.-')}.{what}-{suffix}", "namespace": "default"},
        "involvedObject": dict(regarding),
        "type": "Warning",
        "reason": reason,
        "message": message[:1024],
        "count": 1,
        "firstTimestamp": rfc3339(now),
        "lastTimestamp": rfc3339(now),
        "source": {"component": MANAGER},
        "reportingComponent": MANAGER,
        "reportingInstance": MANAGER,
    }
