"""The stages of a boot, in the order in which a server passes them."""

from __future__ import annotations

from typing import Final, Literal, get_args

BootStage = Literal["Ordered", "Firmware", "IPXE", "Stage1", "Root", "System", "Token", "Kubelet", "Ready"]
"""What each begins with:

Ordered   the controller decided that the server shall boot
Firmware  the BMC accepted the power-on or reset
IPXE      iPXE asked for an address
Stage1    the small initramfs runs and has network
Root      stage-1 begins to fetch the root image
System    stage-1 has verified the root and switches over to it
Token     the agent asks for its join configuration
Kubelet   the join configuration was handed out; the kubelet starts
Ready     the Node is Ready
"""

BOOT_STAGES: Final[tuple[BootStage, ...]] = get_args(BootStage)

HEARD_STAGES: Final[tuple[BootStage, ...]] = ("Firmware", "IPXE", "Stage1", "Root", "System", "Token")
"""The stages that are seen in DHCP or reported by the machine, neither of which is authenticated."""

STAGE_TIMEOUT_SECONDS: Final[dict[BootStage, int]] = {
    "Ordered": 120,
    "Firmware": 900,
    "IPXE": 180,
    "Stage1": 120,
    "Root": 600,
    "System": 300,
    "Token": 180,
    "Kubelet": 300,
}
"""How long a stage may take before it is called late; a pool may say otherwise. The boot is given up when all of them
together are over."""

LATE: Final = "StageTimedOut"
"""Reason of a boot that stays in a stage for longer than it may: a symptom, where a cause is known."""

WAITS_FOR: Final[dict[BootStage, str]] = {
    "Ordered": "the BMC to accept the power-on",
    "Firmware": "the firmware to start iPXE (its DHCP request has not been seen)",
    "IPXE": "the kernel and stage-1 to start (iPXE has an address; nothing was heard from stage-1)",
    "Stage1": "stage-1 to begin fetching the root image",
    "Root": "stage-1 to fetch and verify the root image",
    "System": "the agent in the root image to ask for its join configuration",
    "Token": "the join configuration to be handed out",
    "Kubelet": "the Node to become Ready",
    "Ready": "nothing",
}


def is_late(ready: str | None, booted: str | None) -> bool:
    """Whether a boot is late, or was given up as late, by the reasons of the conditions Ready and Booted of its Server.
    Where the cause is known, Ready has that one, and Booted alone says that the boot is late."""
    return LATE in (ready, booted)


def stage_order(stage: BootStage) -> int:
    """Position of a stage in a boot, from 0."""
    return BOOT_STAGES.index(stage)
