"""`kubectl provision vpc`."""

from __future__ import annotations

import click

from provisioner.cli.vpc.attach_command import attach
from provisioner.cli.vpc.detach_command import detach
from provisioner.cli.vpc.quarantine_commands import quarantine, release
from provisioner.cli.vpc.status_command import status
from provisioner.cli.vpc.why_command import why


@click.group("vpc", short_help="Attach servers to a tenant's networks.")
def vpc() -> None:
    """Attach servers to the VPCs of a namespace; see what is enforced, what is waited for, and what may pass.

    \b
    Change:    attach, detach
    Cut off:   quarantine, release
    See:       status, why
    """


for command in (attach, detach, quarantine, release, status, why):
    vpc.add_command(command)
