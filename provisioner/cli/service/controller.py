"""`provisioner controller`: the controllers, behind a leader election."""

from __future__ import annotations

import socket
import threading
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from provisioner.cli.options import kubeconfig_option
from provisioner.node.stop_signals import stop_on_signals

if TYPE_CHECKING:
    from provisioner.cluster.client import Cluster
    from provisioner.cluster.metrics import Meters
    from provisioner.cluster.process import Process
    from provisioner.cluster.tracing.tracer import BootTracer

NAMES: Final = (
    "inventory",
    "orders",
    "join",
    "approver",
    "health",
    "maintenance",
    "rollout",
    "power",
    "network",
    "infiniband",
)
"""Those of `provisioner.cli.service.groups`, which takes a second to import."""


@click.command("controller")
@kubeconfig_option
@click.option("--boot-url", required=True, help="Where servers reach the boot service, such as http://10.80.0.1.")
@click.option(
    "--controllers",
    "chosen",
    metavar="GROUP,…",
    help=f"Run these groups alone, each behind a Lease of its own: {', '.join(NAMES)} [all, behind one Lease].",
)
@click.option("--namespace", default="provisioner-system", show_default=True, help="Namespace of the Leases.")
@click.option("--identity", help="Name of this replica in the Lease [host name and a random id].")
@click.option(
    "--power-poll-seconds", default=10.0, show_default=True, help="How often the power state of each server is read."
)
@click.option(
    "--metrics-address",
    metavar="ADDRESS:PORT",
    help="Where Prometheus reads metrics, such as 127.0.0.1:9464 or [::]:9464 [nowhere].",
)
@click.option(
    "--health-address",
    metavar="ADDRESS:PORT",
    help="Where /healthz and /readyz are answered, such as 0.0.0.0:8081 in a pod [nowhere].",
)
@click.option(
    "--trace-endpoint",
    metavar="URL",
    help="OpenTelemetry collector that gets a trace of each boot by OTLP/HTTP, such as http://collector:4318 [none].",
)
def controller(
    kubeconfig: Path | None,
    boot_url: str,
    chosen: str | None,
    namespace: str,
    identity: str | None,
    power_poll_seconds: float,
    metrics_address: str | None,
    health_address: str | None,
    trace_endpoint: str | None,
) -> None:
    """Run the controllers: addresses, boots, power, Nodes, checks, maintenance, rollouts, tenant networks. Of any
    replicas one leads."""
    from provisioner.cli.service.controllers import connect_groups, run_controllers
    from provisioner.cli.service.listening import serve_health, serve_metrics
    from provisioner.cli.service.served_kinds import wait_for_kinds
    from provisioner.cluster.client import Cluster
    from provisioner.cluster.metrics import Meters
    from provisioner.cluster.process import Process
    from provisioner.health.look import ALL_CHECKS
    from provisioner.maintenance.status.verdict import FINAL_PHASE_OF

    groups = _groups(chosen)
    meters = Meters(causes=FINAL_PHASE_OF.items(), checks=ALL_CHECKS, groups=groups)
    candidate = identity or f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
    tracer = _tracer(trace_endpoint, candidate, meters)
    if metrics_address is not None:
        serve_metrics(meters.registry, metrics_address)
    process = Process(meters.requests.answered_ago)
    if health_address is not None:
        serve_health(process.liveness(), process.readiness(), health_address)
    cluster = Cluster.connect(kubeconfig, user_agent="provisioner-controller", patient=True, meter=meters.requests)
    meters.tell_of(process, cluster)
    stop = stop_on_signals()

    def work(lost: threading.Event) -> None:
        run_controllers(
            cluster,
            lost,
            boot_url=boot_url,
            power_poll_seconds=power_poll_seconds,
            clock=lambda: datetime.now(UTC),
            meters=meters,
            groups=groups,
            process=process,
            tracer=tracer,
        )

    # Before a Lease is taken: what may not act would hold it, and keep out who may.
    if connect_groups(cluster, groups, stop) is None or not wait_for_kinds(cluster, stop):
        return
    process.may_act()
    leases = ("provisioner-controller",) if chosen is None else tuple(f"provisioner-{group}" for group in groups)
    _lead(cluster, namespace, leases, candidate, stop, work, process, meters)
    if tracer is not None:
        tracer.close()


def _tracer(endpoint: str | None, identity: str, meters: Meters) -> BootTracer | None:
    """Raises: NeedsHuman, Refused."""
    if endpoint is None:
        return None
    from provisioner.cluster.tracing.otlp import otlp_sender
    from provisioner.cluster.tracing.tracer import BootTracer

    return BootTracer(otlp_sender(endpoint, service="provisioner-controller", instance=identity), meters.registry)


def _groups(chosen: str | None) -> tuple[str, ...]:
    """In their order: who wants several of the Leases takes them in the same one. Raises: click.BadParameter."""
    if chosen is None:
        return NAMES
    named = [name.strip() for name in chosen.split(",")]
    if unknown := [name for name in named if name not in NAMES]:
        raise click.BadParameter(
            f"{unknown[0]!r} is none of {', '.join(NAMES)}; name one or more, with commas between",
            param_hint="--controllers",
        )
    return tuple(name for name in NAMES if name in named)


def _lead(
    cluster: Cluster,
    namespace: str,
    leases: Sequence[str],
    identity: str,
    stop: threading.Event,
    work: Callable[[threading.Event], None],
    process: Process | None = None,
    meters: Meters | None = None,
) -> None:
    """Work while all `leases` are held, until `stop` is set."""
    from provisioner.cluster.leader import LeaderElector

    if not leases:
        work(stop)
        return
    observer = meters.leases if meters is not None else None
    if observer is not None:
        observer.stand(leases[0])
    elector = LeaderElector(cluster, namespace=namespace, name=leases[0], identity=identity, observer=observer)
    if process is not None:
        process.stand(elector)
    elector.run(stop, lambda lost: _lead(cluster, namespace, leases[1:], identity, lost, work, process, meters))
