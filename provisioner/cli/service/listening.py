"""Where a service tells of itself: metrics for Prometheus, health for who starts and stops it."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Sequence
from typing import Final, TypeVar
from wsgiref.simple_server import WSGIServer

import click
from prometheus_client import CollectorRegistry, make_wsgi_app

from provisioner.api.machinery.errors import NeedsHuman
from provisioner.cluster.health.checks import Check, answer
from provisioner.cluster.health.server import HealthServer
from provisioner.cluster.metrics_server import serve_in_background

T = TypeVar("T")

METRICS: Final = "--metrics-address"


def serve_metrics(registry: CollectorRegistry, where: str) -> int:
    """Answer `GET /metrics` at `where` in the background; returns the port. Raises: as `listen_at`."""
    application = make_wsgi_app(registry)
    server = listen_at(where, METRICS, lambda address, port: serve_in_background(application, address, port))
    return server.server_port


def serve_health(liveness: Sequence[Check], readiness: Sequence[Check], where: str) -> HealthServer:
    """Answer `/healthz` and `/readyz` at `where` in the background. Raises: as `listen_at`."""
    pages = {
        "/healthz": lambda verbose, excluded: answer("healthz", liveness, verbose=verbose, excluded=excluded),
        "/readyz": lambda verbose, excluded: answer("readyz", readiness, verbose=verbose, excluded=excluded),
    }
    return listen_at(where, "--health-address", lambda address, port: HealthServer(address, port, pages))


def serve_telemetry(
    registry: CollectorRegistry, liveness: Sequence[Check], readiness: Sequence[Check], where: str
) -> WSGIServer:
    """Answer `/metrics`, `/healthz` and `/readyz` at `where` in the background. Raises: as `listen_at`."""
    from provisioner.boot.metrics.server import telemetry_server

    server = listen_at(
        where, METRICS, lambda address, port: telemetry_server(registry, liveness, readiness, address, port)
    )
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server


def listen_at(where: str, option: str, listen: Callable[[str, int], T]) -> T:
    """Raises: click.BadParameter if `where` is no ADDRESS:PORT, NeedsHuman if nothing can be served there."""
    address, colon, port = where.rpartition(":")
    if not colon or not port.isdigit() or not 0 < int(port) < 65536:
        raise click.BadParameter(f"{where!r} is not ADDRESS:PORT, such as 127.0.0.1:9464", param_hint=option)
    host = address.strip("[]") or "0.0.0.0"  # noqa: S104 - `:9464` asks for it
    try:
        try:
            return listen(host, int(port))
        except OSError as error:
            if host != "::" or error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                raise
            return listen("0.0.0.0", int(port))  # noqa: S104 - all addresses, on a host without IPv6
    except OSError as error:
        what = option.strip("-").partition("-")[0]
        raise NeedsHuman(
            f"{option}: {what} cannot be served at {where}: {error}", hint="name another address or port"
        ) from error
