"""Arguments that the rollout's commands share."""

from __future__ import annotations

from collections.abc import Callable

import click

from provisioner.cli.kubectl.completion import complete_image, complete_pool
from provisioner.cli.options import F


def pool_argument(*, required: bool = True) -> Callable[[F], F]:
    """POOL, by name."""
    name = "POOL" if required else "[POOL]"
    return click.argument("pool", required=required, metavar=name, shell_complete=complete_pool)


def image_option(words: str, *, name: str = "--image", required: bool = False) -> Callable[[F], F]:
    """The name of an Image."""
    return click.option(name, "image", metavar="IMAGE", required=required, help=words, shell_complete=complete_image)
