"""A program of its own: reads LIDs, one a line, and prints of each port there its GUID and its P_Key table.

`smpquery` is started for each port, which takes a thousand times as long as the question. This asks all of them through
libibmad, as smpquery does, apart from the agent: what a library in C does wrong ends this process alone.
Standard library only; it is run by its path. A line of the answer: LID, GUID, entries in hexadecimal; a port that does
not answer ends it with `LID -`.
Source: InfiniBand Architecture Specification 1.7, 14.2.5.3 (NodeInfo) and 14.2.5.7 (P_KeyTable, 32 entries a block).
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any, Final

LIBRARY: Final = "libibmad.so.5"
CLASS_SMI: Final = 1
NODE_INFO: Final = 0x11
PKEY_TABLE: Final = 0x16
BLOCK_ENTRIES: Final = 32
BLOCK_BYTES: Final = 64
PORT_ID_BYTES: Final = 512
"""More than an ib_portid_t has. Its first member is the LID; all others are zero for what is routed by LID."""
TIMEOUT_MILLISECONDS: Final = 1000

Query = Callable[[int, int, int], bytes | None]
"""LID, attribute and its modifier; the 64 bytes of the answer, None if there was none."""


def open_port() -> Query:
    """Ask through the first port of this host that is up. Raises: OSError."""
    library: Any = ctypes.CDLL(LIBRARY, use_errno=True)
    library.mad_rpc_open_port.restype = ctypes.c_void_p
    library.mad_rpc_open_port.argtypes = [
        ctypes.c_char_p,
        ctypes.c_int,
        ctypes.POINTER(ctypes.c_int),
        ctypes.c_int,
    ]
    library.smp_query_via.restype = ctypes.c_void_p
    library.smp_query_via.argtypes = [
        *(ctypes.c_void_p, ctypes.c_void_p),
        *(ctypes.c_uint, ctypes.c_uint, ctypes.c_uint, ctypes.c_void_p),
    ]
    port = library.mad_rpc_open_port(None, 0, (ctypes.c_int * 1)(CLASS_SMI), 1)
    if not port:
        raise OSError(ctypes.get_errno(), "no port of this host can be opened")

    def query(lid: int, attribute: int, modifier: int) -> bytes | None:
        where = ctypes.create_string_buffer(lid.to_bytes(4, sys.byteorder), PORT_ID_BYTES)
        answer = ctypes.create_string_buffer(BLOCK_BYTES)
        if not library.smp_query_via(answer, where, attribute, modifier, TIMEOUT_MILLISECONDS, port):
            return None
        return answer.raw

    return query


def read_table(query: Query, lid: int) -> tuple[str, list[int]] | None:
    """GUID of the port at `lid` and all entries of its table; None if it does not answer."""
    node = query(lid, NODE_INFO, 0)
    if node is None:
        return None
    guid, capacity = f"0x{node[20:28].hex()}", int.from_bytes(node[28:30], "big")
    entries: list[int] = []
    for block in range(-(-capacity // BLOCK_ENTRIES)):
        table = query(lid, PKEY_TABLE, block)
        if table is None:
            return None
        entries += [int.from_bytes(table[at : at + 2], "big") for at in range(0, BLOCK_BYTES, 2)]
    return guid, entries[:capacity]


def main() -> int:
    try:
        query = open_port()
    except OSError as error:
        print(f"{LIBRARY}: {error}", file=sys.stderr)
        return 1
    for line in sys.stdin:
        lid = int(line)
        found = read_table(query, lid)
        if found is None:
            print(lid, "-")
            return 0
        print(lid, found[0], *(f"{entry:04x}" for entry in found[1] if entry))
    return 0


if __name__ == "__main__":
    sys.exit(main())
