"""A slurmrestd on loopback: nodes that can be drained and resumed, jobs that are there; many on one port, by path.

With version v0.0.43 it makes and deletes reservations, as the source of Slurm 25.05 says: no test here asks a real one.

`hangs`: paths under which nothing is ever answered. `drips`: those that answer a byte now and then, for ever.
`says`: what is answered to all that is asked under a path, and its status. `loses`: methods whose requests are carried
out, and answered with a failure.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

VERSION = "v0.0.42"
RESERVES = "v0.0.43"
DRIP_SECONDS = 0.2


class FakeSlurmrestds:
    """By path, such as `/s001`; `asked` counts the requests of each kind."""

    def __init__(
        self, nodes: dict[str, list[str]], *, version: str = VERSION, now: Callable[[], float] = time.time
    ) -> None:
        self.version, self._now = version, now
        self.reservations: dict[str, dict[str, dict[str, Any]]] = {path: {} for path in nodes}
        self.loses: set[str] = set()
        self.nodes = {path: {name: (["IDLE"], "") for name in names} for path, names in nodes.items()}
        self.jobs: dict[str, list[dict[str, Any]]] = {path: [] for path in nodes}
        self.before_jobs: Callable[[], None] = lambda: None
        self.hangs: set[str] = set()
        self.drips: set[str] = set()
        self.says: dict[str, tuple[int, bytes]] = {}
        self.asked: list[tuple[str, str]] = []
        self._over = threading.Event()
        fake = self

        # Not pytest-httpserver: this one keeps connections, and drips a header byte by byte.
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else {}
                path, _, what = self.path[1:].partition("/")
                fake.asked.append((f"/{path}", f"{self.command} {what.removeprefix(f'slurm/{fake.version}/')}"))
                if fake._hold(self, f"/{path}"):
                    return
                status, data = fake.says.get(f"/{path}") or fake._answered(f"/{path}", self.command, what, body)
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

    def _answered(self, path: str, method: str, what: str, body: dict[str, Any]) -> tuple[int, bytes]:
        said = self._said(path, method, what, body)
        if method in self.loses:
            said = _failed(1800, "Unable to contact slurm controller (receive failure)")
        return 500 if said.get("errors") else 200, json.dumps(said).encode()

    def _said(self, path: str, method: str, what: str, body: dict[str, Any]) -> dict[str, Any]:
        nodes, words = self.nodes[path], what.removeprefix(f"slurm/{self.version}/")
        if what == "openapi/v3":
            return {"paths": _paths(self.version)}
        if words.startswith("reservation"):
            return self._reserved(self.reservations[path], method, words.partition("/")[2], body)
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

    def _reserved(
        self, there: dict[str, dict[str, Any]], method: str, name: str, body: dict[str, Any]
    ) -> dict[str, Any]:
        """Source: slurmrestd's reservations.c and slurmctld's reservation.c of Slurm 25.05."""
        if method == "GET":
            return {"reservations": list(there.values()), "errors": []}
        if self.version < RESERVES:
            return _failed(9003, "Unable to find requested URL endpoint")
        if method == "DELETE":
            return {} if there.pop(name, None) else _failed(2085, "Requested reservation is invalid")
        found, times = there.get(body["name"]), {key: body[key] for key in ("start_time", "end_time")}
        if found is not None and found["start_time"]["number"] <= self._now():
            return _failed(2104, "Reservation already started")
        if times["start_time"] < self._now() - 60 or times["start_time"] >= times["end_time"]:
            return _failed(2086, "Invalid time specified")
        if found is None and not (body.get("node_list") and body.get("users")):
            return _failed(2085, "Requested reservation is invalid")
        made = found or {"name": body["name"], "node_list": ",".join(body["node_list"]), "flags": body["flags"]}
        there[body["name"]] = made | {key: {"set": True, "number": number} for key, number in times.items()}
        return {"reservations": [body]}


def _paths(version: str) -> dict[str, Any]:
    found: dict[str, Any] = {f"/slurm/{version}/node/{{node_name}}": {"get": {}, "post": {}}}
    named = f"/slurm/{version}/reservation/{{reservation_name}}"
    if version >= RESERVES:
        return found | {f"/slurm/{version}/reservation": {"post": {}}, named: {"get": {}, "delete": {}}}
    return found | {named: {"get": {}}}


def _failed(number: int, words: str) -> dict[str, Any]:
    return {"errors": [{"error_number": number, "error": words}]}


def _node(name: str, state: list[str], reason: str) -> dict[str, Any]:
    return {"name": name, "state": state, "reason": reason}
