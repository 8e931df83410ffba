"""`kubectl provision reboot|reimage|power-cycle|drain NODE…`: a person's request for a Maintenance."""

from __future__ import annotations

import sys
from typing import Any

import click

from provisioner.api.nodes.maintenance import MaintenanceAction
from provisioner.cli.kubectl.asking import KubectlCommand, ask_for, read_wait, request_options
from provisioner.cli.kubectl.connection import connection_of


def _command(name: str, action: MaintenanceAction, short: str, words: str) -> click.Command:
    def run(**options: Any) -> None:
        wait, seconds = read_wait(options, "--wait and --dry-run contradict each other: nothing comes to wait for")
        cluster = connection_of(options).open()
        filed = ask_for(action, options, cluster)
        if wait:
            from provisioner.cli.kubectl.waiting import wait_for

            sys.exit(wait_for(cluster, filed, timeout_seconds=seconds))

    run.__doc__ = words
    decorate = click.command(name, cls=KubectlCommand, short_help=short)
    return decorate(request_options(image=action != "Drain")(run))


reboot = _command(
    "reboot",
    "Reboot",
    "Boot nodes anew, on their pool's image.",
    """Boot nodes anew, on the image that their pool wants now.

    Nothing is interrupted unless --deadline or --now say so: the node is rebooted once it is idle.

    \b
    Examples:
      kubectl provision reboot r01-u07 -m 'new firmware for its cards'
      kubectl provision reboot -l provisioner.dev/rack=r01 --deadline 4h --wait
      kubectl provision reboot --pool gpu --dry-run
    """,
)
reimage = _command(
    "reimage",
    "Reimage",
    "Boot nodes into an image.",
    """Boot nodes into an image; done only once they run it, verified.

    \b
    Examples:
      kubectl provision reimage r01-u07
      kubectl provision reimage r01-u07 r01-u08 --image gpu-node-9f3c01234567 --wait --timeout 2h
      kubectl provision reimage --all --yes -m 'driver 590'
    """,
)
power_cycle = _command(
    "power-cycle",
    "PowerCycle",
    "Switch nodes off and on, and boot them anew.",
    """Switch the power of nodes off and on again, and boot them anew.

    \b
    Examples:
      kubectl provision power-cycle r01-u07 -m 'its card hangs'
      kubectl provision power-cycle r01-u07 --now
    """,
)
drain = _command(
    "drain",
    "Drain",
    "Take nodes out of use, until release.",
    """Take nodes out of use, until the request is withdrawn by kubectl provision release.

    Unlike kubectl drain, it waits for jobs of Slurm and whole gangs, and spares them unless told otherwise.

    \b
    Examples:
      kubectl provision drain r01-u07 -m 'a disk is exchanged' --wait
      kubectl provision release r01-u07
    """,
)
