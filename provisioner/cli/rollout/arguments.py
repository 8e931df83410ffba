"""Arguments that the rollout's commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from provisioner.cli.kubectl.completion import complete_image, complete_pool

F = TypeVar("F", bound=Callable[..., Any])


def pool_argument(*, required: bool = True) -> Callable[[F], F]:
    """POOL, by name."""
    name = "POOL" if required else "[POOL]"
    return click.argument("pool", required=required, metavar=name, shell_complete=complete_pool)


def image_option(words: str, *, name: str = "--image", required: bool = False) -> Callable[[F], F]:
    """The name of an Image."""
    return click.option(name, "image", metavar="IMAGE", required=required, help=words, shell_complete=complete_image)


def wait_options(function: F) -> F:
    """`--wait` and `--timeout`."""
    timeout = click.option("--timeout", metavar="SPAN", help="How long to --wait, such as 8h [without end].")
    return click.option("--wait", is_flag=True, help="Watch until it is complete, or stops.")(timeout(function))
