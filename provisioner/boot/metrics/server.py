"""The address where Prometheus reads metrics, and people why a check fails: for the management network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from http import HTTPStatus
from urllib.parse import parse_qs
from wsgiref.simple_server import WSGIServer
from wsgiref.types import StartResponse, WSGIEnvironment

from prometheus_client import CollectorRegistry, make_wsgi_app

from provisioner.cluster.health.checks import Check, answer
from provisioner.cluster.metrics_server import bounded_server


def telemetry_server(
    registry: CollectorRegistry, liveness: Sequence[Check], readiness: Sequence[Check], address: str, port: int
) -> WSGIServer:
    """Answers /metrics, /healthz and /readyz once it is made to. Raises: OSError if the address is taken."""
    metrics = make_wsgi_app(registry)
    pages = {"/healthz": ("healthz", liveness), "/readyz": ("readyz", readiness)}

    def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == "/metrics":
            found: Iterable[bytes] = metrics(environ, start_response)
            return found
        if path not in pages:
            return _say(start_response, 404, "there are /metrics, /healthz and /readyz\n")
        title, checks = pages[path]
        query = parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True, max_num_fields=50)
        status, body = answer(title, checks, verbose="verbose" in query, excluded=query.get("exclude", ()))
        return _say(start_response, status, body)

    return bounded_server(application, address, port)


def _say(start_response: StartResponse, status: int, body: str) -> list[bytes]:
    data = body.encode()
    headers = [
        ("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(data))), ("Cache-Control", "no-store")
    ]  # fmt: skip
    start_response(f"{status} {HTTPStatus(status).phrase}", headers)
    return [data]
