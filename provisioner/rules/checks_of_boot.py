"""Which of a pool's own checks a boot has to pass. Pure."""

from __future__ import annotations

from provisioner.api.pools.node_pool import NodePool
from provisioner.api.pools.pool_settings import JobCheck
from provisioner.rules.assigned_image import released_image_name


def checks_of_boot(pool: NodePool, image_name: str | None) -> tuple[JobCheck, ...]:
    """Those of every boot; and those of the canary, if it boots the pool's image before that has passed the canary."""
    usual = pool.spec.verification.checks
    if image_name != pool.spec.image_ref or image_name == released_image_name(pool):
        return usual
    names = {check.name for check in usual}
    return (*usual, *(check for check in pool.spec.upgrade_strategy.canary.checks if check.name not in names))
