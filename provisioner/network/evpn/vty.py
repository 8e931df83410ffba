"""bgpd's own socket for commands, as vtysh uses it: a question without a process for it.

A command ends with a zero byte; an answer with three and the status, of which 0 is success.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

LARGEST_ANSWER_BYTES: Final = 64 << 20
PATIENCE_SECONDS: Final = 20.0
_AT_ONCE: Final = 1 << 16
_SHORTEST_SECONDS: Final = 0.001
"""A socket that is to wait for less does not wait at all."""
_END: Final = b"\0\0\0"
_DONE: Final = (0, 1)
"""1 is a warning, as where nothing is configured yet: what came of it is read back by who asked."""


class BgpdFailed(Exception):
    """bgpd did not do as it was told: what was asked, what it answered."""


class BgpdMissing(BgpdFailed):
    """There is none."""


def ask(path: Path, commands: Sequence[str], patience_seconds: float = PATIENCE_SECONDS) -> str:
    """Carry them out in one session, as an administrator; what the last one answers.

    Raises: BgpdFailed at the first that fails; those before it have been carried out.
    """
    deadline = time.monotonic() + patience_seconds
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as session:
            session.settimeout(patience_seconds)
            session.connect(str(path))
            answer = ""
            for command in ("enable", *commands):
                session.sendall(command.encode() + b"\0")
                answer, status = _answer(session, command, deadline)
                if status not in _DONE:
                    raise BgpdFailed(f"`{command}` was refused with {status}: {answer[:500].strip()}")
            return answer
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise BgpdMissing(f"no bgpd listens at {path}: start FRR's bgpd there") from error
    except OSError as error:
        raise BgpdFailed(f"bgpd does not answer at {path}: {error}; is it running?") from error


def _answer(session: socket.socket, command: str, deadline: float) -> tuple[str, int]:
    heard = bytearray()
    while not (len(heard) >= len(_END) + 1 and heard[-len(_END) - 1 : -1] == _END):
        session.settimeout(max(deadline - time.monotonic(), _SHORTEST_SECONDS))
        some = session.recv(_AT_ONCE)
        if not some:
            raise BgpdFailed(f"`{command}`: bgpd went away in the middle of its answer")
        heard += some
        if len(heard) > LARGEST_ANSWER_BYTES or time.monotonic() > deadline:
            raise BgpdFailed(f"`{command}` was not answered in time, or by more than 64 MiB")
    return heard[: -len(_END) - 1].rstrip(b"\0").decode(errors="replace"), heard[-1]
