"""Programs for the kernel (classic BPF) that spread packets over the workers and let it, not Python, drop the surplus.

Two things decide where a packet goes:

- the client's MAC address decides the worker. Linux copies a *broadcast* datagram to every socket bound to the port,
  SO_REUSEPORT or not, so each worker's socket filters out what is another's. A *unicast* datagram goes to one socket of
  the reuseport group; the kernel would choose by source address, and all packets of a relay have the same one, so a
  program chooses instead.
- whether it is a DISCOVER decides which of the worker's two queues. Under overload a server that takes packets in turn
  answers many DISCOVERs whose REQUEST it then drops, and completes few exchanges. With two queues the exchange that has
  begun goes first, and what is dropped are DISCOVERs, which cost nothing and come again.

Source: Linux, Documentation/networking/filter.rst; net/core/filter.c and net/core/sock_reuseport.c.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from collections.abc import Sequence
from typing import Final

# asm-generic/socket.h; the socket module does not have them
SO_ATTACH_FILTER: Final = 26
SO_ATTACH_REUSEPORT_CBPF: Final = 51

# linux/bpf_common.h
_LD_WORD_ABS: Final = 0x20
_LD_LEN: Final = 0x80
_LD_MEM: Final = 0x60
_ST: Final = 0x02
_ADD_K: Final = 0x04
_MUL_K: Final = 0x24
_LSH_K: Final = 0x64
_RSH_K: Final = 0x74
_MOD_K: Final = 0x94
_JEQ_K: Final = 0x15
_JGE_K: Final = 0x35
_RET_K: Final = 0x06
_RET_A: Final = 0x16

_MAC_TAIL: Final = 30
"""Offset in the message of the last four bytes of chaddr."""
_FIRST_OPTION: Final = 240
_DISCOVER_FIRST: Final = 0x350101
"""Option 53, length 1, value 1: every client that was seen puts it first. One that does not still gets its answer."""
_MIX: Final = 0x9E3779B1
"""Knuth's multiplier: MAC addresses of one vendor's dual-port cards differ in steps of 2 or 4."""
_UDP_HEADER_BYTES: Final = 8
_ACCEPT: Final = 0xFFFFFFFF

Instruction = tuple[int, int, int, int]
"""code, jump if true, jump if false, constant"""


def broadcast_filter(worker: int, workers: int, *, discovers: bool) -> list[Instruction]:
    """Accepts what is for one queue of one worker. Sees the datagram from its UDP header on.

    Packets too short to steer go to worker 0, which counts them.
    """
    header = _UDP_HEADER_BYTES
    return [
        (_LD_LEN, 0, 0, 0),
        (_JGE_K, 1, 0, header + _FIRST_OPTION + 4),
        (_RET_K, 0, 0, _ACCEPT if worker == 0 and not discovers else 0),
        (_LD_WORD_ABS, 0, 0, header + _MAC_TAIL),
        (_MUL_K, 0, 0, _MIX),
        (_RSH_K, 0, 0, 16),
        (_MOD_K, 0, 0, workers),
        (_JEQ_K, 0, 5, worker),
        (_LD_WORD_ABS, 0, 0, header + _FIRST_OPTION),
        (_RSH_K, 0, 0, 8),
        (_JEQ_K, 0, 1, _DISCOVER_FIRST),
        (_RET_K, 0, 0, _ACCEPT if discovers else 0),
        (_RET_K, 0, 0, 0 if discovers else _ACCEPT),
        (_RET_K, 0, 0, 0),
    ]


def unicast_choice(workers: int) -> list[Instruction]:
    """Chooses a socket of the reuseport group, bound in the order worker 0 DISCOVERs, worker 0 others, worker 1…

    Sees the datagram from its payload on.
    """
    return [
        (_LD_LEN, 0, 0, 0),
        (_JGE_K, 1, 0, _FIRST_OPTION + 4),
        (_RET_K, 0, 0, 1),
        (_LD_WORD_ABS, 0, 0, _MAC_TAIL),
        (_MUL_K, 0, 0, _MIX),
        (_RSH_K, 0, 0, 16),
        (_MOD_K, 0, 0, workers),
        (_LSH_K, 0, 0, 1),
        (_ST, 0, 0, 0),
        (_LD_WORD_ABS, 0, 0, _FIRST_OPTION),
        (_RSH_K, 0, 0, 8),
        (_JEQ_K, 0, 2, _DISCOVER_FIRST),
        (_LD_MEM, 0, 0, 0),
        (_RET_A, 0, 0, 0),
        (_LD_MEM, 0, 0, 0),
        (_ADD_K, 0, 0, 1),
        (_RET_A, 0, 0, 0),
    ]


def attach(sock: socket.socket, option: int, program: Sequence[Instruction]) -> None:
    """Give a socket its program; `option` is SO_ATTACH_FILTER or SO_ATTACH_REUSEPORT_CBPF. Raises: OSError."""
    code = b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(code)
    # struct sock_fprog: a count and a pointer
    sock.setsockopt(socket.SOL_SOCKET, option, struct.pack("@HP", len(program), ctypes.addressof(buffer)))
