"""A boot that ends while controllers lead, on a real API server, is told to the collector once."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

from prometheus_client import CollectorRegistry, generate_latest

from provisioner.api import Server
from provisioner.api.machinery.meta import rfc3339_micro
from provisioner.cli.service.controllers import run_controllers
from provisioner.cluster.client import Cluster
from provisioner.cluster.metrics import Meters
from provisioner.cluster.resources import of
from provisioner.cluster.tracing.boot_trace import BootTrace
from provisioner.cluster.tracing.tracer import BootTracer
from tests.api import objects
from tests.people import until


def test_the_boot_of_a_server_is_told_when_it_is_ready(cluster: Cluster, unique: str) -> None:
    told: list[BootTrace] = []
    meters, stop = Meters(causes=(), checks=(), groups=("health",)), threading.Event()
    tracer = BootTracer(lambda traces: bool(told.extend(traces)) or True, CollectorRegistry())
    mac = f"52:54:00:0e:{unique[1:3]}:{unique[3:5]}"
    cluster.create(of(Server), objects.server(unique, bootMACAddress=mac))
    began = datetime.now(UTC) - timedelta(minutes=2)
    order = {"id": f"order-{unique}", "reason": "FirstBoot", "orderedTime": rfc3339_micro(began), "attempt": 1}
    cluster.apply_status(Server, unique, {"order": order}, manager="tests")
    settings = {"boot_url": "http://10.80.0.1", "power_poll_seconds": 600.0, "clock": lambda: datetime.now(UTC)}
    working = threading.Thread(
        target=run_controllers,
        args=(cluster, stop),
        kwargs=settings | {"meters": meters, "groups": ("health",), "tracer": tracer},
    )
    working.start()
    try:
        until(lambda: 'provisioner_leads{group="health"} 1.0' in generate_latest(meters.registry).decode())
        ready = {"order": order, "readyTime": rfc3339_micro(began + timedelta(seconds=90))}
        cluster.apply_status(Server, unique, ready, manager="tests")
        until(lambda: bool(told))
        cluster.apply_status(Server, unique, ready | {"nodeRef": unique}, manager="tests")
    finally:
        stop.set()
        working.join(180)
        cluster.delete(of(Server), unique)
    assert not working.is_alive()
    tracer.close()
    (trace,) = told
    assert trace.spans[0].attributes["host.name"] == unique
    assert (trace.spans[0].ended - trace.spans[0].began).total_seconds() == 90
