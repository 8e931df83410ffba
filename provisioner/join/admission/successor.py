"""Whether a boot was started by the system before it, on the same machine. Pure.

An agent that is told to kexec puts the request key of the next boot into the initramfs that it loads, and the key's
hash into its boot report, which a kubelet's certificate can write for its own Node alone. But for root on the old
system nobody has the key: not a neighbour, nor a pod of the old boot that speaks from the server's address.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from provisioner.api.machinery.meta import read_time
from provisioner.api.machinery.values import DIGEST_PATTERN, Sha256Digest
from provisioner.api.servers.server import BootOrder
from provisioner.rules.liveness import FRESH_TIME
from provisioner.rules.nodes import NodeView

SUCCESSOR_ONLY: Final = timedelta(seconds=120)
"""How long after the agent's act only the loaded kernel joins. After that the machine may have come up by its firmware
instead: the kernel did not start, or its stage-1 is from before there were such keys."""


@dataclass(frozen=True)
class Successor:
    """The boot that the old system's agent has prepared. `said_time`: when it said so, by the node's clock.
    `hand_over_sha256`: by what it extends PCR 14; None if it names no digest."""

    request_key_sha256: str
    said_time: datetime | None
    hand_over_sha256: Sha256Digest | None = None

    def asks(self, request_key_sha256: str) -> bool:
        """Whether it is the one that asks; compared in constant time."""
        return hmac.compare_digest(self.request_key_sha256.encode(), request_key_sha256.encode())

    def comes_until(self, armed: datetime, now: datetime) -> datetime:
        """How long nobody else joins. A time that cannot be is the order's: staging may take long between the two."""
        said = self.said_time
        return (said if said is not None and armed <= said <= now + FRESH_TIME else armed) + SUCCESSOR_ONLY


def find_successor(node: Mapping[str, Any] | None, order: BootOrder) -> Successor | None:
    """What the agent has said of it for this order; None if it has prepared none."""
    if order.method != "Kexec" or order.attempt_id is None or order.boot_id_before is None:
        return None
    report = NodeView(node).report if node is not None else None
    if report is None or report.id != order.attempt_id or report.boot_id.lower() != order.boot_id_before.lower():
        return None
    if report.next_request_key_sha256 is None:
        return None
    digest = report.next_hand_over_sha256 or ""
    hand_over = Sha256Digest(digest) if re.fullmatch(DIGEST_PATTERN, digest) else None
    return Successor(report.next_request_key_sha256, read_time(report.time), hand_over)
