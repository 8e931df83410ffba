"""`provisioner controller`: the controllers, behind a leader election."""

from __future__ import annotations

import socket
import uuid
from datetime import UTC, datetime
from pathlib import Path

import click

from provisioner.cli.options import kubeconfig_option, stop_on_signals


@click.command("controller")
@kubeconfig_option
@click.option("--boot-url", required=True, help="Where servers reach the boot service, such as http://10.80.0.1.")
@click.option(
    "--namespace", default="provisioner-system", show_default=True, help="Namespace of Lease and BMC Secrets."
)
@click.option("--identity", default=None, help="Name of this replica in the Lease [host name and a random id].")
@click.option(
    "--power-poll-seconds", default=10.0, show_default=True, help="How often the power state of each server is read."
)
def controller(
    kubeconfig: Path | None, boot_url: str, namespace: str, identity: str | None, power_poll_seconds: float
) -> None:
    """Run the controllers: addresses, boot orders, power, Nodes and certificates. Any number of replicas; one leads."""
    from provisioner.cli.controllers import run_controllers
    from provisioner.cluster.client import Cluster
    from provisioner.cluster.leader import LeaderElector

    cluster = Cluster.connect(kubeconfig, user_agent="provisioner-controller")
    stop = stop_on_signals()
    elector = LeaderElector(
        cluster,
        namespace=namespace,
        name="provisioner-controller",
        identity=identity or f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}",
    )
    elector.run(
        stop,
        lambda lost: run_controllers(
            cluster,
            lost,
            namespace=namespace,
            boot_url=boot_url,
            power_poll_seconds=power_poll_seconds,
            clock=lambda: datetime.now(UTC),
        ),
    )
