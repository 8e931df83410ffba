"""`provisioner web`: the read-only page."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path

import click

from provisioner.cli.options import kubeconfig_option
from provisioner.node.stop_signals import stop_on_signals


def _place(ctx: click.Context, parameter: click.Parameter, text: str) -> tuple[str, int]:
    address, colon, port = text.rpartition(":")
    address = address.strip("[]")
    try:
        is_one = bool(colon) and port.isdecimal() and 0 <= int(port) < 65536 and ip_address(address)
    except ValueError:
        is_one = False
    if not is_one:
        raise click.BadParameter(f"{text!r} is not ADDRESS:PORT, such as 127.0.0.1:8080 or [::]:8080")
    return address, int(port)


@click.command("web")
@kubeconfig_option
@click.option(
    "--listen",
    "place",
    metavar="ADDRESS:PORT",
    default="127.0.0.1:8080",
    show_default=True,
    callback=_place,
    help="Where pages are served, by HTTP: a proxy before it has the certificate.",
)
@click.option(
    "--authentication",
    type=click.Choice(["token", "none"]),
    default="token",
    show_default=True,
    help="token: each request needs a bearer token of somebody who may list what is shown. none: whoever reaches the "
    "port sees it, on a loopback address alone.",
)
@click.option("--audience", help="Audience that tokens must be for [the API server's own].")
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="Name by which browsers come here; others are refused [any; localhost without authentication]. Repeatable.",
)
@click.option(
    "--viewers",
    type=click.IntRange(1, 1000),
    default=100,
    show_default=True,
    help="Pages that are kept live at a time; each has a thread.",
)
def web(
    kubeconfig: Path | None,
    place: tuple[str, int],
    authentication: str,
    audience: str | None,
    hosts: tuple[str, ...],
    viewers: int,
) -> None:
    """Serve the page that shows racks, boots, maintenances and rollouts as they are now. It changes nothing."""
    from provisioner.cli.service.web_words import WordsOfCommands
    from provisioner.cluster.client import Cluster
    from provisioner.web.access.guard import LOOPBACK_HOSTS
    from provisioner.web.caches import follow_cluster
    from provisioner.web.pages.service import Listening, WebService

    with_tokens = authentication == "token"
    if not with_tokens and not ip_address(place[0]).is_loopback:
        raise click.UsageError(
            f"--authentication none shows the fleet to everybody who reaches {place[0]}: listen at 127.0.0.1, or leave "
            "--authentication out"
        )
    stop = stop_on_signals()
    cluster = Cluster.connect(kubeconfig, user_agent="provisioner-web", patient=True)
    caches, informers = follow_cluster(cluster)
    service = WebService(
        caches,
        WordsOfCommands(caches, now=lambda: datetime.now(UTC)),
        Listening(
            address=place[0],
            port=place[1],
            with_tokens=with_tokens,
            audience=audience,
            hosts=tuple(name.lower() for name in hosts) or (() if with_tokens else LOOPBACK_HOSTS),
            viewers=viewers,
        ),
        cluster=cluster,
        now=lambda: datetime.now(UTC),
        monotonic=time.monotonic,
    )
    server = service.bind()
    for informer in informers:
        informer.start(stop)
    service.run(server, stop)
