"""A process that speaks IPMI with one BMC at a time, for `ipmi_processes`. Imports nothing of ours.

pyghmi keeps its sockets, its sessions and a thread for the whole process, and lets whichever thread waits handle the
packets of all sessions: it is made for coroutines, not for threads. Here it has a process to itself, and one caller.

Each line that comes in is a request, each line that goes out its answer, both JSON:

    {"host", "port", "username", "password", "commands": [{"netfn", "command", "data", "once", "optional"}…]}
    {"answers": [{"code", "data"}…]}   a command with a code is the last one unless it is optional
    {"error", "phase"}                 phase is Login or Command
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import struct
from typing import Any, Final

from pyghmi.exceptions import IpmiException
from pyghmi.ipmi.private import session

_NO_ANSWER_CODE: Final = 0xFFFF  # what pyghmi puts into the place of a completion code
_ONCE_SECONDS: Final = 10.0
_GOODBYE_SECONDS: Final = 1.0
_WAIT_SECONDS: Final = 0.05
_MEMORY_BYTES: Final = 512 << 20
"""Of address space: that of Python with pyghmi is about 150 MiB."""

_wait = session._io_wait  # noqa: SLF001 (pyghmi has no other place to mend it)


def _wait_briefly(timeout: float, *more: Any) -> None:
    """pyghmi begins to wait after it looked: an answer between the two is only seen when the wait is over."""
    _wait(min(timeout, _WAIT_SECONDS), *more)


session._io_wait = _wait_briefly  # noqa: SLF001


class Session(session.Session):  # type: ignore[misc]  # pyghmi has no types
    """One login by IPMI 2.0 (RAKP, cipher suite 17, else 3), never by 1.5, whatever the BMC claims."""

    once = False

    def _get_session_challenge(self) -> None:
        # The answer that says so is not authenticated: anybody could have sent it to get at a weaker login.
        self.onlogon({"error": "the BMC offers IPMI 1.5 only"})

    def _timedout(self) -> None:
        if self.once and self.logged and self.lastpayload:
            self.incommand = False  # or the goodbye would wait for the answer
            self._mark_broken("timeout")
        else:
            super()._timedout()

    def send(self, netfn: int, command: int, data: list[int], *, once: bool) -> dict[str, Any]:
        """The BMC's answer. With `once` the packet is sent a single time: what may have happened is not repeated."""
        self.once = once
        said = self.raw_command(netfn, command, data=data, timeout=_ONCE_SECONDS if once else None)
        if said is None or said.get("code", _NO_ANSWER_CODE) == _NO_ANSWER_CODE:
            raise IpmiException("timeout")
        return {"code": said["code"], "data": list(said["data"])}

    def say_goodbye(self) -> None:
        """Close the session, and wait for the answer: one that comes late would be taken for the next login's."""
        self.once = True
        number = list(struct.pack("<I", self.sessionid))
        self.raw_command(netfn=0x06, command=0x3C, data=number, timeout=_GOODBYE_SECONDS)
        self.logged = 0
        self.logout()


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Log in, send the commands one after another until one fails, log out."""
    _forget_sessions()
    try:
        bmc = Session(request["host"], request["username"], request["password"], port=request["port"])
    except MemoryError:
        os._exit(1)  # what it holds would be missing to the next call
    except Exception as error:
        return {"error": _words(error), "phase": "Login"}
    try:
        answers: list[dict[str, Any]] = []
        for one in request["commands"]:
            answers.append(bmc.send(one["netfn"], one["command"], one["data"], once=one["once"]))
            if answers[-1]["code"] and not one["optional"]:
                break
        return {"answers": answers}
    except MemoryError:
        os._exit(1)
    except Exception as error:
        return {"error": _words(error), "phase": "Command"}
    finally:
        with contextlib.suppress(Exception):  # a session that is broken has nothing to close
            bmc.say_goodbye()


def _forget_sessions() -> None:
    """pyghmi finds a login that has ended by its name and password, and takes it for one that is under way."""
    for kept in (
        session.Session.initting_sessions,
        session.Session.bmc_handlers,
        session.Session.waiting_sessions,
        session.Session.keepalive_sessions,
    ):
        kept.clear()
    session.sessionqueue.clear()


def _words(error: Exception) -> str:
    """What went wrong, without anything of the request: only what pyghmi and the system say in their own words."""
    if isinstance(error, IpmiException):
        return str(error.args[0] if error.args and error.args[0] else "timeout")
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return type(error).__name__


def main() -> None:
    """Serve the socket that stands in for standard input until it is closed."""
    # pyghmi takes in packets as long as they come; who floods it ends this process, and nothing else.
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    with socket.socket(fileno=0) as parent, parent.makefile("rw", encoding="utf-8") as lines:
        for line in lines:
            lines.write(json.dumps(answer(json.loads(line))) + "\n")
            lines.flush()


if __name__ == "__main__":
    main()
