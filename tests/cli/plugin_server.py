"""kubectl's plugin answered by this process: a program that kubectl starts asks it through a socket.

A start of the plugin costs most of a second of processor time, and the guide has dozens. `test_operator_guide.py`
starts the shipped program once.
"""

from __future__ import annotations

import contextlib
import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from click.testing import Result

PROGRAM = """#!/usr/bin/python3 -SE
import json, socket, sys
line = socket.socket(socket.AF_UNIX)
line.connect({socket!r})
line.sendall(json.dumps(sys.argv[1:]).encode() + b"\\n")
code, out, err = json.loads(line.makefile().read())
sys.stdout.write(out)
sys.stderr.write(err)
sys.exit(code)
"""


@contextlib.contextmanager
def plugin_in_this_process(directory: Path, run: Callable[..., Result]) -> Iterator[Path]:
    """A folder for the PATH with a `kubectl-provision` that has `run` called here with its arguments."""
    socket = directory / "plugin.sock"
    program = directory / "kubectl-provision"
    program.write_text(PROGRAM.format(socket=str(socket)))
    program.chmod(0o755)

    class Answer(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            result = run(*json.loads(self.rfile.readline()))
            self.wfile.write(json.dumps([result.exit_code, result.stdout, result.stderr]).encode())

    with socketserver.UnixStreamServer(str(socket), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield directory
        finally:
            server.shutdown()
            thread.join()
