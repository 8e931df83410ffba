"""`provisioner infiniband`: what the host of an OpenSM runs."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from provisioner.cli.options import FILE, kubeconfig_option
from provisioner.node.stop_signals import stop_on_signals


@click.command("infiniband")
@kubeconfig_option
@click.option(
    "--fabric", default="default", show_default=True, help="InfiniBandFabric that this host's OpenSM manages."
)
@click.option(
    "--partitions-file",
    type=FILE,
    default="/etc/opensm/partitions.conf",
    show_default=True,
    help="File that OpenSM reads (opensm -P). It is written here, and by nobody else.",
)
@click.option("--pid-file", type=FILE, help="File with the process id of OpenSM [the one that runs here].")
@click.option("--adopt", is_flag=True, help="Write over a partitions file that somebody else wrote.")
def infiniband(kubeconfig: Path | None, fabric: str, partitions_file: Path, pid_file: Path | None, adopt: bool) -> None:
    """Keep OpenSM's partitions as the fabric's InfiniBandNetwork says, and say what the ports' own tables are. On the
    host of each OpenSM, those that stand by included."""
    from provisioner.api import InfiniBandNetwork
    from provisioner.cluster.client import Cluster
    from provisioner.cluster.informer import Informer
    from provisioner.cluster.resources import of
    from provisioner.network.infiniband.opensm.agent import SubnetManagerHost, run
    from provisioner.network.infiniband.opensm.read_back import Diagnostics

    stop = stop_on_signals()
    cluster = Cluster.connect(kubeconfig, user_agent="provisioner-infiniband", patient=True)
    networks = Informer(cluster, of(InfiniBandNetwork), field_selector=f"metadata.name={fabric}")
    host = SubnetManagerHost(
        fabric=fabric,
        partitions_file=partitions_file.absolute(),
        pid_file=pid_file,
        diagnostics=Diagnostics(),
        adopt=adopt,
    )
    networks.start(stop)
    run(cluster, networks, host, stop, clock=lambda: datetime.now(UTC))
