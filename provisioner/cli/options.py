"""What several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

FILE: Final = click.Path(path_type=Path, dir_okay=False)
EXISTING_FILE: Final = click.Path(path_type=Path, dir_okay=False, exists=True)
FOLDER: Final = click.Path(path_type=Path, file_okay=False)


def with_options(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    """All of them as one decorator, in the order in which the help has them."""

    def add(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return add


def found_kubeconfig() -> str | None:
    """As kubectl looks for it; in a pod, the service account comes before a file that may lie in the image."""
    if named := os.environ.get("KUBECONFIG"):
        return named
    usual = Path.home() / ".kube" / "config"
    return str(usual) if "KUBERNETES_SERVICE_HOST" not in os.environ and usual.exists() else None


kubeconfig_option: Final = click.option(
    "--kubeconfig",
    type=FILE,
    default=found_kubeconfig,
    help="How to reach Kubernetes [KUBECONFIG; else ~/.kube/config, else the pod's service account].",
)
signers_option: Final = click.option(
    "--key", "key_file", type=FILE, required=True, help="Public keys, of which one must have signed the image."
)
