"""A server's cable, through which the requests that would end a stage of its boot do not come.

The filter is on from before the boot: a server that is kept in a stage cannot have slipped out of it.
"""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self

from lab.network import LabNetwork, tap_name
from provisioner.api.servers.boot_stage import BootStage
from provisioner.image.finished.manifest import Manifest

# linux/bpf_common.h, over a frame from its Ethernet header on
_LD_BYTE, _LD_HALF = 0x30, 0x28
_LD_BYTE_X, _LD_HALF_X, _LD_WORD_X = 0x50, 0x48, 0x40
_LDX_IP_HEADER_BYTES, _TAX, _ADD_X, _AND, _RSH = 0xB1, 0x07, 0x0C, 0x54, 0x74
_JEQ, _RET = 0x15, 0x06
_ETHERNET_BYTES: Final = 14
_IPV4, _TCP, _UDP = 0x0800, 6, 17
_PASS, _DROP = 0, 2  # TC_ACT_OK, TC_ACT_SHOT

Instruction = tuple[int, int, int, int]
"""code, jump if true, jump if false, constant"""


def _to_port(protocol: int, port: int) -> list[Instruction]:
    return [
        (_LD_BYTE, 0, 0, _ETHERNET_BYTES + 9),
        (_JEQ, 0, 4, protocol),
        (_LDX_IP_HEADER_BYTES, 0, 0, _ETHERNET_BYTES),
        (_LD_HALF_X, 0, 0, _ETHERNET_BYTES + 2),
        (_JEQ, 0, 1, port),
        (_RET, 0, 0, _DROP),
    ]


def _get(before: int, then: str) -> list[Instruction]:
    """A request whose bytes at `before` are `then`, in words of four. A frame that is too short ends the program, and
    passes."""
    words = struct.unpack(f"!{len(then) // 4}I", then.encode())
    compared: list[Instruction] = []
    for number, word in enumerate(words):
        behind = 2 * (len(words) - number) - 1  # up to the end, but for the verdict
        compared += [(_LD_WORD_X, 0, 0, _ETHERNET_BYTES + before + 4 * number), (_JEQ, 0, behind, word)]
    return [
        (_LD_BYTE, 0, 0, _ETHERNET_BYTES + 9),
        (_JEQ, 0, 7 + len(compared), _TCP),
        (_LDX_IP_HEADER_BYTES, 0, 0, _ETHERNET_BYTES),
        (_LD_BYTE_X, 0, 0, _ETHERNET_BYTES + 12),
        (_AND, 0, 0, 0xF0),
        (_RSH, 0, 0, 2),  # four times the upper half: the TCP header's bytes
        (_ADD_X, 0, 0, 0),
        (_TAX, 0, 0, 0),
        *compared,
        (_RET, 0, 0, _DROP),
    ]


def _ends(image: Manifest) -> dict[BootStage, list[Instruction]]:
    """What ends a stage. Ordered ends by the BMC, System by nothing that comes from outside; Root by the lowest layer,
    without which there is none."""
    parts = len("GET /images/parts/sha256-")
    return {
        "Firmware": _to_port(_UDP, 67),
        "Token": _to_port(_TCP, 8443),
        "Kubelet": _to_port(_TCP, 6443),
        "IPXE": _get(parts, image.kernel.sha256[:8]),
        "Stage1": _get(len("GET /images/sha256-/") + 64, "manifest"),
        "Root": _get(parts, image.layers[0].file.sha256[:8]),
    }


@dataclass(frozen=True)
class Cable:
    """The cable of the server called `server` in the lab's network. After a `with` it lets everything through.

    `image`: what the server boots, or another one with the same kernel and lowest layer.
    """

    network: LabNetwork
    server: str
    image: Manifest

    def keep_in(self, stages: Iterable[BootStage]) -> None:
        """Let nothing through that ends one of these stages, and all else."""
        kept = set(stages)
        program: list[Instruction] = [(_LD_HALF, 0, 0, 12), (_JEQ, 1, 0, _IPV4), (_RET, 0, 0, _PASS)]
        for stage, block in _ends(self.image).items():
            program += block if stage in kept else []
        program.append((_RET, 0, 0, _PASS))
        words = ",".join([str(len(program)), *(" ".join(map(str, instruction)) for instruction in program)])
        self._tc("qdisc", "replace", "dev", tap_name(self.server), "clsact")
        self._tc(
            *("filter", "replace", "dev", tap_name(self.server), "ingress", "prio", "1", "handle", "1"),
            *("protocol", "all", "bpf", "direct-action", "bytecode", words),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.keep_in(())

    def _tc(self, *arguments: str) -> None:
        subprocess.run(self.network.command(["tc", *arguments]), check=True)
