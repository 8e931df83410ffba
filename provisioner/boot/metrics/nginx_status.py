"""What nginx says of its connections, over a socket that no machine reaches; whether it answers at all, too."""

from __future__ import annotations

import re
import socket
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

ANSWER_SECONDS: Final = 3.0
_LARGEST: Final = 4096
_STATES: Final = re.compile(r"Reading: (\d{1,9}) Writing: (\d{1,9}) Waiting: (\d{1,9})")


class Connections(NamedTuple):
    """How many there are: whose request is being read, whose answer is being sent, and that are idle."""

    reading: int
    writing: int
    waiting: int


def read_connections(path: Path) -> Connections:
    """Ask nginx at the unix socket `path`. Raises: OSError if it does not answer as it should within seconds."""
    with closing(socket.socket(socket.AF_UNIX)) as asked:
        asked.settimeout(ANSWER_SECONDS)
        asked.connect(str(path))
        asked.sendall(b"GET /status HTTP/1.0\r\n\r\n")
        answer = b""
        while len(answer) < _LARGEST and (piece := asked.recv(_LARGEST)):
            answer += piece
    found = _STATES.search(answer.decode("latin-1"))
    if found is None:
        raise OSError(f"it said {answer[:60]!r}")
    # The request that asks is one of those whose answer is sent.
    return Connections(int(found[1]), max(0, int(found[2]) - 1), int(found[3]))
