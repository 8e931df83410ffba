"""Options that the commands beside the boot service share."""

from __future__ import annotations

from typing import Any, Final

import click

from provisioner.boot.explain.facts import BootHost
from provisioner.cli.options import with_options

SOME_ADDRESS: Final = "192.0.2.1"
"""Stands for a boot host's where nobody said one: of a network that is for examples (RFC 5737)."""


boot_host_options: Final = with_options(
    click.option(
        "--address",
        envvar="PROVISIONER_BOOT_ADDRESS",
        metavar="ADDRESS",
        help=f"--address of the boot service, or its PROVISIONER_BOOT_ADDRESS [{SOME_ADDRESS} stands for it].",
    ),
    click.option(
        "--http-port",
        default=80,
        show_default=True,
        envvar="PROVISIONER_BOOT_HTTP_PORT",
        help="Its port of scripts and images.",
    ),
    click.option(
        "--join-port",
        default=8443,
        show_default=True,
        envvar="PROVISIONER_BOOT_JOIN_PORT",
        help="Its port of the join service.",
    ),
    click.option(
        "--ipxe-https/--no-ipxe-https",
        default=False,
        envvar="PROVISIONER_BOOT_IPXE_HTTPS",
        help="Whether iPXE fetches kernel and stage-1 by HTTPS there.",
    ),
)
"""How the boot host is configured; from the environment of its unit, if that is there."""


def boot_host_of(options: dict[str, Any]) -> tuple[BootHost, bool]:
    """The boot host that the options describe, and whether its address was said. Raises: Refused."""
    address = options.pop("address")
    ports = options.pop("http_port"), options.pop("join_port")
    host = BootHost.at(address or SOME_ADDRESS, *ports, ipxe_https=options.pop("ipxe_https"))
    return host, address is not None
