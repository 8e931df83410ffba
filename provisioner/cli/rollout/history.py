"""`rollout history`: where a pool has been. Pure."""

from __future__ import annotations

from typing import Final

from provisioner.api import NodePool
from provisioner.cli.kubectl.printing import clip, table

HEADER: Final = ("IMAGE", "FROM", "STARTED", "ENDED", "OUTCOME", "UPDATED", "FAILED", "MESSAGE")
MESSAGE_LENGTH: Final = 60


def render_history(pool: NodePool) -> str:
    """The rollout under way first, then those that are over, the last one first."""
    rollout = pool.status.rollout
    rows: list[tuple[str | None, ...]] = []
    if rollout is not None and rollout.completed_time is None:
        outcome = "Stopped" if rollout.stopped is not None else "UnderWay"
        status = pool.status
        rows.append(
            (
                rollout.image_ref,
                rollout.previous_image_ref,
                rollout.started_time,
                None,
                outcome,
                None if status.updated is None else str(status.updated),
                None if status.failed is None else str(status.failed),
                clip(rollout.message, MESSAGE_LENGTH),
            )
        )
    rows += [
        (
            record.image_ref,
            record.previous_image_ref,
            record.started_time,
            record.ended_time,
            record.outcome,
            str(record.updated),
            str(record.failed),
            clip(record.message, MESSAGE_LENGTH),
        )
        for record in pool.status.history
    ]
    if not rows:
        return f"{pool.name} was never moved to another image: it has had Image {pool.spec.image_ref} from the begin\n"
    return table(HEADER, rows)
