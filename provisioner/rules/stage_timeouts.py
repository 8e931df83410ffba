"""How long the stages of a boot may take, and how long what leads to it. Pure.

The boot controller and the executor give a boot up by it, and the join admits one by it: a boot that is not given up
yet may join.
"""

from __future__ import annotations

from datetime import timedelta

from provisioner.api.nodes.maintenance import RebootMethod
from provisioner.api.pools.node_pool import NodePool
from provisioner.api.pools.pool_settings import MethodTimeouts
from provisioner.api.servers.boot_stage import HEARD_STAGES, STAGE_TIMEOUT_SECONDS, BootStage


def stage_timeout_seconds(stage: BootStage, pool: NodePool | None) -> int | None:
    """How long a stage may take: the pool's word, else the built-in one; None for Ready, which lasts."""
    # Of Ordered and Ready a pool says nothing; the others are fields of its settings, in lower case.
    own: int | None = getattr(pool.spec.stage_timeout_seconds, stage.lower(), None) if pool is not None else None
    return own if own is not None else STAGE_TIMEOUT_SECONDS.get(stage)


def method_timeout_seconds(method: RebootMethod, pool: NodePool | None) -> int:
    """How long a reboot method may take until something of the new boot is seen."""
    times = pool.spec.maintenance.method_timeout_seconds if pool is not None else MethodTimeouts()
    return {"Kexec": times.kexec, "Reboot": times.reboot, "Reset": times.reset, "PowerCycle": times.power_cycle}[method]


def time_to_join(pool: NodePool | None, by_agent: RebootMethod | None = None) -> timedelta:
    """How long a boot may take from the BMC's word to its join configuration: all its stages together.

    No single stage counts: where the boot is, it says in reports that anybody can send. by_agent: the running system
    is to end itself first, from the order on; then no less than that method may take.
    """
    stages = sum(stage_timeout_seconds(stage, pool) or 0 for stage in HEARD_STAGES)
    return timedelta(seconds=max(stages, method_timeout_seconds(by_agent, pool) if by_agent is not None else 0))
