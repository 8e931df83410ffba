"""Whether a boot was started by the system before it, on the same machine. Pure.

An agent that is told to kexec puts the request key of the next boot into the initramfs that it loads, and the key's
hash into its boot report, which only the kubelet's certificate can write. Nobody but the loaded kernel has the key: not
a neighbour, nor a pod of the old boot that speaks from the server's address.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from provisioner.api.codec import read_annotation
from provisioner.api.node_contract import BOOT_REPORT_ANNOTATION
from provisioner.api.node_facts import BootReport
from provisioner.api.server import BootOrder

SUCCESSOR_ONLY: Final = timedelta(seconds=120)
"""How long only the loaded kernel joins. After that the machine may have come up by its firmware instead: the kernel
did not start, or its stage-1 is from before there were such keys."""


def awaited_key(node: Mapping[str, Any] | None, order: BootOrder) -> str | None:
    """SHA-256 of the request key that the loaded kernel has, if the agent has said one for this order."""
    if order.method != "Kexec" or order.request_id is None or order.boot_id_before is None:
        return None
    annotations = ((node or {}).get("metadata") or {}).get("annotations") or {}
    report = read_annotation(BootReport, annotations.get(BOOT_REPORT_ANNOTATION))
    if report is None or report.id != order.request_id or report.boot_id.lower() != order.boot_id_before.lower():
        return None
    return report.next_request_key_sha256


def is_successor(awaited: str, request_key_sha256: str) -> bool:
    """Compared in constant time."""
    return hmac.compare_digest(awaited.encode(), request_key_sha256.encode())


def is_reserved(armed: datetime, now: datetime) -> bool:
    """Whether only the loaded kernel may join still."""
    return now <= armed + SUCCESSOR_ONLY
