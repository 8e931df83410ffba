"""`kubectl provision reboot|reimage|power-cycle|drain NODE…`: a person's request for a Maintenance."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from provisioner.api.nodes.maintenance import MaintenanceAction
from provisioner.cli.kubectl.asking import KubectlCommand, ask_for, request_options
from provisioner.cli.kubectl.connection import connection_of
from provisioner.cli.kubectl.failing import DONE, exit_codes
from provisioner.cli.kubectl.moments import read_span


def _command(name: str, action: MaintenanceAction, short: str, words: str) -> click.Command:
    def run(**options: Any) -> None:
        with exit_codes():
            wait, timeout = options.pop("wait"), options.pop("timeout")
            if timeout is not None and not wait:
                raise click.UsageError("--timeout is for --wait: give both")
            seconds = read_span(timeout, "--timeout").total_seconds() if timeout is not None else None
            if wait and options["dry_run"] != "none":
                raise click.UsageError("--wait and --dry-run contradict each other: nothing comes to wait for")
            if wait and options["output"] is not None:
                raise click.UsageError("--wait tells what happens in words: leave -o out")
            cluster = connection_of(options).open()
            filed = ask_for(action, options, cluster)
            if wait:
                from provisioner.cli.kubectl.waiting import wait_for

                code = wait_for(cluster, filed, timeout_seconds=seconds)
                if code != DONE:
                    sys.exit(code)

    run.__doc__ = words
    decorate: Callable[[Any], Any] = click.command(name, cls=KubectlCommand, short_help=short)
    command = decorate(request_options(image=action != "Drain")(run))
    assert isinstance(command, click.Command)  # noqa: S101 - what click.command makes
    return command


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
