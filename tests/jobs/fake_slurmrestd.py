"""A slurmrestd on loopback: nodes that can be drained and resumed, jobs that are there; many on one port, by path.

`hangs`: paths under which nothing is ever answered. `drips`: those that answer a byte now and then, for ever.
`says`: what is answered to all that is asked under a path, and its status.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

VERSION = "v0.0.42"
_PATHS = {f"/slurm/{VERSION}/node/{{node_name}}": {"get": {}, "post": {}}}
DRIP_SECONDS = 0.2


class FakeSlurmrestds:
    """By path, such as `/s001`; `asked` counts the requests of each kind."""

    def __init__(self, nodes: dict[str, list[str]]) -> None:
        self.nodes = {path: {name: (["IDLE"], "") for name in names} for path, names in nodes.items()}
        self.jobs: dict[str, list[dict[str, Any]]] = {path: [] for path in nodes}
        self.before_jobs: Callable[[], None] = lambda: None
        self.hangs: set[str] = set()
        self.drips: set[str] = set()
        self.says: dict[str, tuple[int, bytes]] = {}
        self.asked: list[tuple[str, str]] = []
        self._over = threading.Event()
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else {}
                path, _, what = self.path[1:].partition("/")
                fake.asked.append((f"/{path}", f"{self.command} {what.removeprefix(f'slurm/{VERSION}/')}"))
                if fake._hold(self, f"/{path}"):
                    return
                status, data = fake.says.get(f"/{path}") or (
                    200,
                    json.dumps(fake._said(f"/{path}", self.command, what, body)).encode(),
                )
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_DELETE = _answer  # noqa: N815 (http.server's names)

            def log_message(self, *arguments: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            request_queue_size = 512
            daemon_threads = True

            def handle_error(self, *arguments: Any) -> None:
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}{path}"

    def let_go(self) -> None:
        """Break off what hangs and drips."""
        self._over.set()

    def close(self) -> None:
        self.let_go()
        self._server.shutdown()
        self._server.server_close()

    def _hold(self, handler: BaseHTTPRequestHandler, path: str) -> bool:
        """Answer nothing, or a byte now and then, until the test is over; whether it was to be held."""
        if path in self.hangs:
            self._over.wait()
        elif path in self.drips:
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
            while not self._over.wait(DRIP_SECONDS):
                handler.wfile.write(b"a")
        else:
            return False
        handler.close_connection = True
        return True

    def _said(self, path: str, method: str, what: str, body: dict[str, Any]) -> dict[str, Any]:
        nodes, words = self.nodes[path], what.removeprefix(f"slurm/{VERSION}/")
        if what == "openapi/v3":
            return {"paths": _PATHS}
        if words == "jobs":
            self.before_jobs()
            return {"jobs": self.jobs[path]}
        if words == "nodes":
            return {"nodes": [_node(name, *said) for name, said in nodes.items()]}
        name = words.partition("/")[2]
        if method == "POST":
            state = [*(["IDLE"]), *(["DRAIN"] if body["state"] == ["DRAIN"] else [])]
            nodes[name] = (state, body.get("reason", "") if len(state) > 1 else "")
            return {}
        return {"nodes": [_node(name, *nodes[name])] if name in nodes else []}


def _node(name: str, state: list[str], reason: str) -> dict[str, Any]:
    return {"name": name, "state": state, "reason": reason}
