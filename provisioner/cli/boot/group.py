"""`provisioner boot`: the service itself, and beside it the commands that look at one machine's boot.

With options alone, or the environment of its unit, it serves, as it always did. A command is told by the first word: it
has its own options, and none of the service's is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click

from provisioner.cli.main import LazyGroup
from provisioner.cli.service.boot import boot as serve

BOOT_COMMANDS: Final[Mapping[str, str]] = {
    "explain": "provisioner.cli.boot.explain_command:explain",
    "replay": "provisioner.cli.boot.replay_command:replay_",
    "tls": "provisioner.cli.boot.tls_command:tls",
    "trace": "provisioner.cli.boot.trace_command:trace",
}
_IS_COMMAND: Final = "provisioner.boot.is_command"


class BootGroup(LazyGroup):
    """The service's command, with its options, and commands."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        if not ctx.meta.get(_IS_COMMAND):
            return super().get_params(ctx)
        own = self.get_help_option(ctx)
        return [own] if own is not None else []

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] in BOOT_COMMANDS:
            ctx.meta[_IS_COMMAND] = True
        return super().parse_args(ctx, args)


def _serve(**options: Any) -> None:
    """Nothing where a command was called instead."""
    if click.get_current_context().invoked_subcommand is None and serve.callback is not None:
        serve.callback(**options)


boot: Final = BootGroup(
    serve.name,
    targets=BOOT_COMMANDS,
    callback=_serve,
    params=serve.params,
    help=serve.help,
    short_help=serve.short_help,
    invoke_without_command=True,
    subcommand_metavar="[COMMAND [ARGS]...]",
)
