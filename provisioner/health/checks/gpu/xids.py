"""The driver's errors by number: what each means, what it asks for, and whether a machine that had it may be used.

Numbers, names and actions are those of NVIDIA's catalogue of XIDs for data-center GPUs (docs.nvidia.com, "XID Errors");
the words are ours. An XID that is not here is shown and does not fail: newer drivers bring new ones, and a pool can
name it in failingXids.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Action(Enum):
    """What NVIDIA's catalogue asks for first. `fails`: whether a machine with such an error is kept out of use."""

    NOTHING = ("nothing", False)
    RESTART_JOB = ("the job restarts; look at the job first", False)
    RESET = ("reset the GPU: reboot the server", True)
    REBOOT = ("reboot the server", True)
    POWER_CYCLE = ("power-cycle the server; if it comes back, reseat or replace the GPU", True)
    CABLES = ("check power cables and the board's power", True)
    NVLINK = ("reboot the server; if it comes back, look at NVLink bridges, baseboard or cables", True)
    REPLACE = ("have the GPU tested (dcgmi diag -r 4) and replaced", True)
    SUPPORT = ("reboot the server; if it comes back, ask NVIDIA's support, with nvidia-bug-report", True)

    def __init__(self, remedy: str, fails: bool) -> None:
        self.remedy = remedy
        self.fails = fails


@dataclass(frozen=True)
class Xid:
    """One entry of the catalogue."""

    meaning: str
    action: Action


_A: Final = Action
XIDS: Final[dict[int, Xid]] = {
    8: Xid("a channel stopped making progress", _A.RESTART_JOB),
    11: Xid("invalid or corrupted push buffer stream", _A.RESTART_JOB),
    13: Xid("graphics engine exception, mostly a fault of the job's kernel", _A.RESTART_JOB),
    25: Xid("invalid or illegal push buffer stream", _A.RESTART_JOB),
    31: Xid("memory page fault, mostly an illegal address of the job's", _A.RESTART_JOB),
    32: Xid("invalid or corrupted push buffer stream, at times PCIe", _A.RESTART_JOB),
    37: Xid("driver error while a context was created", _A.RESTART_JOB),
    38: Xid("driver firmware error", _A.SUPPORT),
    39: Xid("copy engine exception", _A.RESTART_JOB),
    40: Xid("copy engine exception", _A.RESTART_JOB),
    41: Xid("copy engine exception", _A.RESTART_JOB),
    42: Xid("video processor exception", _A.RESTART_JOB),
    43: Xid("a job's channel was reset after its own fault", _A.RESTART_JOB),
    44: Xid("graphics engine fault at a context switch", _A.RESET),
    45: Xid("a job's channels were cleaned up, by its end or after another error", _A.RESTART_JOB),
    46: Xid("the GPU stopped processing", _A.RESET),
    48: Xid("double-bit ECC error: memory could not be corrected", _A.RESET),
    54: Xid("auxiliary power is not connected", _A.CABLES),
    56: Xid("display engine error", _A.RESET),
    57: Xid("error programming the video memory interface", _A.RESET),
    58: Xid("unstable video memory interface", _A.RESET),
    60: Xid("video processor exception", _A.RESTART_JOB),
    61: Xid("internal micro-controller breakpoint", _A.RESET),
    62: Xid("internal micro-controller halted", _A.RESET),
    63: Xid("a row remapping, or a page retirement, was recorded", _A.RESET),
    64: Xid("a row remapping, or a page retirement, could not be recorded", _A.REPLACE),
    65: Xid("video processor exception", _A.RESTART_JOB),
    66: Xid("illegal access by the driver", _A.SUPPORT),
    67: Xid("illegal access by the driver", _A.SUPPORT),
    68: Xid("video processor exception", _A.RESTART_JOB),
    69: Xid("graphics engine class error", _A.RESTART_JOB),
    70: Xid("unknown copy engine error", _A.RESTART_JOB),
    71: Xid("unknown copy engine error", _A.RESTART_JOB),
    72: Xid("unknown copy engine error", _A.RESTART_JOB),
    73: Xid("encoder error", _A.RESTART_JOB),
    74: Xid("NVLink error", _A.NVLINK),
    78: Xid("a virtual GPU did not start", _A.RESET),
    79: Xid("the GPU fell off the bus", _A.POWER_CYCLE),
    80: Xid("corrupted data was sent to the GPU", _A.RESTART_JOB),
    81: Xid("error of the VGA subsystem", _A.SUPPORT),
    82: Xid("JPEG decoder error", _A.RESTART_JOB),
    83: Xid("video decoder error", _A.RESTART_JOB),
    84: Xid("video decoder error", _A.RESTART_JOB),
    85: Xid("unknown copy engine error", _A.RESTART_JOB),
    88: Xid("video decoder error", _A.RESTART_JOB),
    92: Xid("high rate of corrected ECC errors", _A.REPLACE),
    93: Xid("the GPU's configuration memory was written too often", _A.NOTHING),
    94: Xid("contained ECC error: the job that had the memory ended, others did not notice", _A.RESET),
    95: Xid("uncontained ECC error: every job on the GPU may have wrong data", _A.RESET),
    96: Xid("video decoder error", _A.RESTART_JOB),
    97: Xid("video decoder error", _A.RESTART_JOB),
    98: Xid("video decoder error", _A.RESTART_JOB),
    99: Xid("video decoder error", _A.RESTART_JOB),
    100: Xid("video decoder error", _A.RESTART_JOB),
    101: Xid("video decoder error", _A.RESTART_JOB),
    109: Xid("a context switch took too long", _A.RESET),
    110: Xid("security fault", _A.SUPPORT),
    111: Xid("display bundle error", _A.SUPPORT),
    112: Xid("display supervisor error", _A.SUPPORT),
    113: Xid("DisplayPort link training error", _A.NOTHING),
    114: Xid("display pipeline underflow", _A.NOTHING),
    115: Xid("display core channel error", _A.NOTHING),
    116: Xid("display window channel error", _A.NOTHING),
    117: Xid("display cursor channel error", _A.NOTHING),
    118: Xid("display pipeline error", _A.NOTHING),
    119: Xid("the GPU's system processor (GSP) did not answer the driver", _A.RESET),
    120: Xid("error of the GPU's system processor (GSP)", _A.RESET),
    121: Xid("corrected error of the link between CPU and GPU (C2C)", _A.NOTHING),
    122: Xid("the board's flash memory could not be read", _A.SUPPORT),
    123: Xid("the board's flash memory could not be written", _A.SUPPORT),
    124: Xid("the board's flash memory could not be erased", _A.SUPPORT),
    125: Xid("the board's configuration memory has no room", _A.SUPPORT),
    136: Xid("link training failed", _A.RESET),
    137: Xid("NVLink privilege error: a job on another GPU reached for memory that is not its own", _A.RESTART_JOB),
    140: Xid("unrecovered ECC error", _A.RESET),
    143: Xid("the GPU did not initialize", _A.RESET),
    144: Xid("NVLink: error of SAW", _A.NVLINK),
    145: Xid("NVLink: error of RLW", _A.NVLINK),
    146: Xid("NVLink: error of TLW", _A.NVLINK),
    147: Xid("NVLink: error of TREX", _A.NVLINK),
    148: Xid("NVLink: error of NVLPW_CTRL", _A.NVLINK),
    149: Xid("NVLink: error of NETIR", _A.NVLINK),
    150: Xid("NVLink: error of MSE", _A.NVLINK),
    151: Xid("a key could not be rotated (confidential computing)", _A.RESET),
    154: Xid("the driver named the action that recovers the GPU", _A.RESET),
    155: Xid("NVLink: an error that the driver's software defined", _A.NVLINK),
    156: Xid("a part of the GPU was retired", _A.RESET),
    157: Xid("a part of the GPU could not be retired", _A.REPLACE),
    158: Xid("fatal time-out of the GPU", _A.RESET),
    159: Xid("error of the link between CPU and GPU (CHI)", _A.REBOOT),
    160: Xid("a channel of memory was retired", _A.RESET),
    161: Xid("a channel of memory could not be retired", _A.REPLACE),
    162: Xid("power smoothing is available again", _A.NOTHING),
    163: Xid("power smoothing was switched off", _A.NOTHING),
    164: Xid("power smoothing is near its end of life", _A.NOTHING),
    165: Xid("power smoothing is at its end of life", _A.REPLACE),
    166: Xid("traffic was seen before its encryption was set up (confidential computing)", _A.SUPPORT),
    167: Xid("fatal time-out of PCIe", _A.RESET),
    168: Xid("errors of the memory's write-protected region", _A.RESET),
    169: Xid("an internal micro-controller halted", _A.RESET),
    170: Xid("an interrupt that confidential computing does not allow", _A.SUPPORT),
    171: Xid("more uncorrectable errors of DRAM, told beside XID 48", _A.RESET),
    172: Xid("more uncorrectable errors of SRAM, told beside XID 48", _A.RESET),
    173: Xid("error of the link between CPU and GPU (C2C)", _A.REBOOT),
}
"""From 8 on; lower numbers, and those between that are missing, are not used or concern GPUs without a data center."""
