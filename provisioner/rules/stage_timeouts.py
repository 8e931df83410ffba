"""How long the stages of a boot may take. Pure.

The boot controller gives a boot up by it, and the join admits one by it: a boot that is not given up yet may join.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from provisioner.api.boot_stage import HEARD_STAGES, STAGE_TIMEOUT_SECONDS, BootStage
from provisioner.api.node_pool import NodePool

_POOL_FIELDS: Final[dict[BootStage, str]] = {
    "Firmware": "firmware",
    "IPXE": "ipxe",
    "Stage1": "stage1",
    "Root": "root",
    "System": "system",
    "Token": "token",
    "Kubelet": "kubelet",
}


def stage_timeout_seconds(stage: BootStage, pool: NodePool | None) -> int | None:
    """How long a stage may take: the pool's word, else the built-in one; None for Ready, which lasts."""
    field = _POOL_FIELDS.get(stage)
    own = getattr(pool.spec.stage_timeout_seconds, field) if pool is not None and field is not None else None
    return own if own is not None else STAGE_TIMEOUT_SECONDS.get(stage)


def time_to_join(pool: NodePool | None) -> timedelta:
    """How long a boot may take from the BMC's word to its join configuration: all its stages together.

    No single stage counts: where the boot is, it says in reports that anybody can send.
    """
    return timedelta(seconds=sum(stage_timeout_seconds(stage, pool) or 0 for stage in HEARD_STAGES))
