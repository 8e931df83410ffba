"""`provisioner cache`: what a rack's cache host runs."""

from __future__ import annotations

from pathlib import Path

import click

from provisioner.cli.options import FOLDER
from provisioner.node.stop_signals import stop_on_signals

GIGABYTE = 10**9


@click.command("cache")
@click.option(
    "--address",
    "addresses",
    required=True,
    multiple=True,
    help="IPv4 address under which servers reach it; may be repeated.",
)
@click.option("--port", default=80, show_default=True, help="Port of images.")
@click.option(
    "--boot-host",
    "boot_hosts",
    required=True,
    multiple=True,
    metavar="URL",
    help="Where images come from, such as http://10.80.0.1; may be repeated: the next is asked while one fails.",
)
@click.option("--state", type=FOLDER, required=True, help="Folder for images. It may be empty and may be lost.")
@click.option("--disk", default=20.0, show_default=True, help="Gigabytes that it may fill.")
@click.option(
    "--image-slots", type=click.IntRange(1, 100_000), help="Answers at once; who comes then waits [by its link]."
)
@click.option(
    "--least-rate", default=262144, show_default=True, help="What a boot host must give, as leastRateBytesPerSecond."
)
@click.option("--user", default="www-data", show_default=True, help="Whom nginx's workers run as, if started by root.")
@click.option(
    "--metrics-address",
    metavar="ADDRESS:PORT",
    help="Where Prometheus reads metrics and /readyz gives reasons: in the management network, port 9466 [nowhere].",
)
@click.option("--tools-root", type=FOLDER, hidden=True, help="Chroot with nginx (the lab's).")
def cache(
    addresses: tuple[str, ...],
    port: int,
    boot_hosts: tuple[str, ...],
    state: Path,
    disk: float,
    image_slots: int | None,
    least_rate: int,
    user: str,
    metrics_address: str | None,
    tools_root: Path | None,
) -> None:
    """Serve images to a rack: each byte is fetched from a boot host once, and kept once it is known to be right.

    It knows nothing of Kubernetes and holds no secret. A Rack names it in spec.cacheURL.
    """
    import os

    from provisioner.boot.cache.nginx import CacheSite, read_upstream
    from provisioner.boot.cache.service import CacheService
    from provisioner.boot.host.image_slots import link_megabits, slots_of_link
    from provisioner.boot.host.nginx_upkeep import most_open_files
    from provisioner.cli.service.boot import enter_tools
    from provisioner.cli.service.listening import serve_telemetry

    if disk < 1:
        raise click.BadParameter(f"{disk} GB hold no image", param_hint="--disk")
    state = state.absolute()
    whole = int(disk * GIGABYTE)
    site = CacheSite(
        addresses=addresses,
        upstreams=tuple(read_upstream(url) for url in boot_hosts),
        state=state,
        slots=image_slots or slots_of_link(link_megabits(addresses[0]), least_rate),
        user=user if os.geteuid() == 0 else None,
        port=port,
        open_files=most_open_files(),
    )
    stop = stop_on_signals()
    service = CacheService(site, kept_bytes=whole, least_rate=least_rate, enter=enter_tools(tools_root, (state,)))
    if metrics_address is not None:
        serve_telemetry(service.meters.registry, service.health.liveness, service.health.readiness, metrics_address)
    service.run(stop)
