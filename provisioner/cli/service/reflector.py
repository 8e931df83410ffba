"""`provisioner reflector`: what the host of a route reflector runs, beside its bgpd."""

from __future__ import annotations

from datetime import UTC, datetime
from ipaddress import AddressValueError, IPv4Address
from pathlib import Path

import click

from provisioner.cli.options import FOLDER, kubeconfig_option
from provisioner.node.stop_signals import stop_on_signals


def _address(ctx: click.Context, parameter: click.Parameter, text: str) -> str:
    try:
        return str(IPv4Address(text))
    except AddressValueError:
        raise click.BadParameter(f"{text} is no IPv4 address such as 10.100.0.2") from None


@click.command("reflector")
@kubeconfig_option
@click.option(
    "--address", required=True, callback=_address, help="This host's own on the underlay, as the NetworkPool names it."
)
@click.option(
    "--bgpd",
    "directory",
    type=FOLDER,
    default="/run/provisioner/bgpd",
    show_default=True,
    help="Folder with the socket of FRR's bgpd (bgpd --vty_socket).",
)
def reflector(kubeconfig: Path | None, address: str, directory: Path) -> None:
    """Keep FRR's bgpd on this host a route reflector of the DPUs: of each it takes routes of the VPCs that the DPU has,
    and tells it those, and no others. On each host that spec.routeDistribution of the NetworkPool names."""
    from provisioner.api import DPUNetwork, NetworkPool
    from provisioner.api.network.network_pool import THE_POOL
    from provisioner.cluster.client import Cluster
    from provisioner.cluster.informer import Informer
    from provisioner.cluster.resources import of
    from provisioner.network.evpn.bgpd import Bgpd
    from provisioner.network.reflector.service import ReflectorHost, run

    stop = stop_on_signals()
    cluster = Cluster.connect(kubeconfig, user_agent="provisioner-reflector", patient=True)
    pools = Informer(cluster, of(NetworkPool), field_selector=f"metadata.name={THE_POOL}")
    networks = Informer(cluster, of(DPUNetwork))
    for informer in (pools, networks):
        informer.start(stop)
    run(cluster, pools, networks, ReflectorHost(address, Bgpd(directory)), stop, clock=lambda: datetime.now(UTC))
