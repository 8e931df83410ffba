"""Arguments that the commands of VPCs share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from provisioner.cli.kubectl.completion import complete_attachment
from provisioner.cli.kubectl.moments import read_span

F = TypeVar("F", bound=Callable[..., Any])


def attachments_argument(function: F) -> F:
    """ATTACHMENT…: names, servers, or functions of servers."""
    return click.argument(
        "attachments", nargs=-1, required=True, metavar="ATTACHMENT...", shell_complete=complete_attachment
    )(function)


def wait_options(words: str) -> Callable[[F], F]:
    """`--wait` and `--timeout`."""

    def add(function: F) -> F:
        timeout = click.option("--timeout", metavar="SPAN", help="How long to --wait, such as 2m [without end].")
        return click.option("--wait", is_flag=True, help=words)(timeout(function))

    return add


def read_wait(options: dict[str, Any]) -> tuple[bool, float | None]:
    """Whether to wait, and how many seconds at most; taken out of `options`. Raises: click.UsageError, BadInput."""
    wait, timeout = options.pop("wait"), options.pop("timeout")
    if timeout is not None and not wait:
        raise click.UsageError("--timeout is for --wait: give both")
    if wait and options.get("output") is not None:
        raise click.UsageError("--wait tells what happens in words: leave -o out")
    if wait and options.get("dry_run", "none") != "none":
        raise click.UsageError("a dry run has nothing to --wait for: leave one of them out")
    return wait, read_span(timeout, "--timeout").total_seconds() if timeout is not None else None
