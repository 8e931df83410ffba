"""`kubectl provision rollout`."""

from __future__ import annotations

import click

from provisioner.cli.rollout.change_commands import pause, resume, start, undo
from provisioner.cli.rollout.look_commands import history, plan, status


@click.group("rollout", short_help="Move a pool to another image, as jobs end.")
def rollout() -> None:
    """Move a pool's servers to another image, as their jobs end; watch it, hold it up, take it back.

    \b
    Ask first: plan
    Begin:     start
    See:       status, history
    Decide:    pause, resume, undo
    """


for command in (start, status, pause, resume, undo, history, plan):
    rollout.add_command(command)
