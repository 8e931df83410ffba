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

from provisioner.cli.options import kubeconfig_option, stop_on_signals

if TYPE_CHECKING:
    from provisioner.cluster.client import Cluster
    from provisioner.cluster.metrics import Meters

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
    default=None,
    help=f"Run these groups alone, each behind a Lease of its own: {', '.join(NAMES)} [all, behind one Lease].",
)
@click.option("--namespace", default="provisioner-system", show_default=True, help="Namespace of the Leases.")
@click.option("--identity", default=None, help="Name of this replica in the Lease [host name and a random id].")
@click.option(
    "--power-poll-seconds", default=10.0, show_default=True, help="How often the power state of each server is read."
)
@click.option(
    "--metrics-address",
    metavar="ADDRESS:PORT",
    default=None,
    help="Where Prometheus reads metrics, such as 127.0.0.1:9464 or [::]:9464 [nowhere].",
)
def controller(
    kubeconfig: Path | None,
    boot_url: str,
    chosen: str | None,
    namespace: str,
    identity: str | None,
    power_poll_seconds: float,
    metrics_address: str | None,
) -> None:
    """Run the controllers: addresses, boots, power, Nodes, checks, maintenance, rollouts, tenant networks. Of any
    replicas one leads."""
    from provisioner.cli.service.controllers import connect_groups, run_controllers
    from provisioner.cluster.client import Cluster
    from provisioner.cluster.metrics import Meters
    from provisioner.health.checks.look import ALL_CHECKS
    from provisioner.maintenance.phases.verdict import FINAL_PHASE_OF

    groups = _groups(chosen)
    meters = Meters(causes=FINAL_PHASE_OF.items(), checks=ALL_CHECKS, groups=groups)
    if metrics_address is not None:
        _serve(meters, metrics_address)
    cluster = Cluster.connect(kubeconfig, user_agent="provisioner-controller", patient=True)
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
        )

    # Before a Lease is taken: what may not act would hold it, and keep out who may.
    if connect_groups(cluster, groups, stop) is None:
        return
    leases = ("provisioner-controller",) if chosen is None else tuple(f"provisioner-{group}" for group in groups)
    candidate = identity or f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
    _lead(cluster, namespace, leases, candidate, stop, work)


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
) -> None:
    """Work while all `leases` are held, until `stop` is set."""
    from provisioner.cluster.leader import LeaderElector

    if not leases:
        work(stop)
        return
    elector = LeaderElector(cluster, namespace=namespace, name=leases[0], identity=identity)
    elector.run(stop, lambda lost: _lead(cluster, namespace, leases[1:], identity, lost, work))


def _serve(meters: Meters, where: str) -> None:
    """Raises: click.BadParameter, NeedsHuman if nothing can be served there."""
    from provisioner.api.errors import NeedsHuman

    address, colon, port = where.rpartition(":")
    if not colon or not port.isdigit() or not 0 < int(port) < 65536:
        raise click.BadParameter(
            f"{where!r} is not ADDRESS:PORT, such as 127.0.0.1:9464", param_hint="--metrics-address"
        )
    try:
        meters.serve(address.strip("[]") or "0.0.0.0", int(port))  # noqa: S104 - `:9464` asks for it
    except OSError as error:
        raise NeedsHuman(
            f"metrics cannot be served at {where}: {error}", hint="name another address or port"
        ) from error
