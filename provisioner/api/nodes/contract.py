"""The names by which people, controllers and the agent in the image speak through a Node.

docs/operator-guide.md tells administrators of them. `provisioner.node`, which imports nothing of ours, repeats the two
annotations that it needs; tests/node compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

# What a person asks for: Node conditions with status True, reason WhenIdle, Deadline or Now (Hold and the two of the
# verification: any reason). `provisioner.maintenance.requests.request` reads their messages.
REBOOT_REQUESTED: Final = "provisioner.dev/RebootRequested"
REIMAGE_REQUESTED: Final = "provisioner.dev/ReimageRequested"
POWER_CYCLE_REQUESTED: Final = "provisioner.dev/PowerCycleRequested"
DRAIN_REQUESTED: Final = "provisioner.dev/DrainRequested"
HOLD_REQUESTED: Final = "provisioner.dev/HoldRequested"
"""Keep the node out of use and let nothing disturb it: a person is looking at it."""
VERIFICATION_RETRY_REQUESTED: Final = "provisioner.dev/VerificationRetryRequested"
VERIFICATION_RELEASE_REQUESTED: Final = "provisioner.dev/VerificationReleaseRequested"
"""Let the node in as it is, for this boot; its message should say who answers for it."""

REQUEST_CONDITIONS: Final = (
    REBOOT_REQUESTED,
    REIMAGE_REQUESTED,
    POWER_CYCLE_REQUESTED,
    DRAIN_REQUESTED,
    HOLD_REQUESTED,
    VERIFICATION_RETRY_REQUESTED,
    VERIFICATION_RELEASE_REQUESTED,
)

REQUEST_REFUSED: Final = "provisioner.dev/RequestRefused"
"""True while a request condition cannot be understood; its message says what was expected."""

# What the maintenance executor says on the Node, named after KEP-5683.
MAINTENANCE_PLANNED: Final = "MaintenancePlanned"
DRAIN_IN_PROGRESS: Final = "DrainInProgress"
DRAINED: Final = "Drained"
MAINTENANCE_IN_PROGRESS: Final = "MaintenanceInProgress"

MAINTENANCE_CONDITIONS: Final = (MAINTENANCE_PLANNED, DRAIN_IN_PROGRESS, DRAINED, MAINTENANCE_IN_PROGRESS)

# Taints. Each has one owner among the controllers; `spec.unschedulable` is people's, and is never touched.
MAINTENANCE_TAINT: Final = "provisioner.dev/maintenance"
"""Value: the Maintenance's name. Put on by the claim, or earlier where the server is closed while jobs end there; taken
off by the release."""
MaintenanceEffect = Literal["NoSchedule", "PreferNoSchedule"]
"""NoSchedule: no new job comes. PreferNoSchedule: one comes only where no other server takes it."""
VERIFICATION_TAINT: Final = "provisioner.dev/verification"
"""NoExecute. Put on with every boot order, taken off once the checks of that boot have passed."""
HOLD_TAINT: Final = "provisioner.dev/hold"
"""NoSchedule. On the Node while HOLD_REQUESTED is True."""

# Annotations of the Node between the maintenance executor and the agent in the image; both are JSON.
BOOT_INTENT_ANNOTATION: Final = "provisioner.dev/boot-intent"
BOOT_REPORT_ANNOTATION: Final = "provisioner.dev/boot-report"
NODE_FACTS_ANNOTATION: Final = "provisioner.dev/node-facts"
"""What the agent found on its machine, once a boot and when it changed. See `provisioner.api.nodes.facts`."""

PREPARED_ORDER_ANNOTATION: Final = "provisioner.dev/prepared-order"
"""Id of the boot order (Server.status.order.id) for which the join controller has prepared the Node. Only then does an
ordered boot join, so an agent is told to boot only once it is the current order's."""

# Annotations of pods whose node is about to be disturbed.
POD_WARNING_ANNOTATION: Final = "provisioner.dev/maintenance-deadline"
"""RFC 3339. A pod that mounts its annotations by a downward API volume reads it from a file, and checkpoints."""
DO_NOT_DISRUPT_ANNOTATION: Final = "provisioner.dev/do-not-disrupt"
FOREIGN_DO_NOT_DISRUPT_ANNOTATIONS: Final = (
    "karpenter.sh/do-not-disrupt",
    "cluster-autoscaler.kubernetes.io/safe-to-evict",
)
"""Honoured, too: the first when it is true, the second when it is false."""

MAX_BOOT_ID: Final = 63
"""Characters. A kernel's has 36; what is longer was made up, and could not even be put on record."""


def read_boot_id(node: Mapping[str, Any]) -> str | None:
    """The kernel boot id that the Node's kubelet has reported, in lower case; None while there is none that can be."""
    info = (node.get("status") or {}).get("nodeInfo") or {}
    boot_id = str(info.get("bootID") or "").lower()
    return boot_id if 0 < len(boot_id) <= MAX_BOOT_ID else None
