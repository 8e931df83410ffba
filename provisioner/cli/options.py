"""What several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def found_kubeconfig() -> str | None:
    """As kubectl looks for it; in a pod, the service account comes before a file that may lie in the image."""
    if named := os.environ.get("KUBECONFIG"):
        return named
    usual = Path.home() / ".kube" / "config"
    return str(usual) if "KUBERNETES_SERVICE_HOST" not in os.environ and usual.exists() else None


def kubeconfig_option(function: F) -> F:
    """`--kubeconfig`, as kubectl has it; KUBECONFIG, ~/.kube/config or the pod's service account if absent."""
    return click.option(
        "--kubeconfig",
        type=click.Path(dir_okay=False, path_type=Path),
        default=found_kubeconfig,
        help="How to reach Kubernetes [KUBECONFIG; else ~/.kube/config, else the pod's service account].",
    )(function)


def signers_option(function: F) -> F:
    """`--key`: whose signature an image must bear, as `key_file`."""
    return click.option(
        "--key",
        "key_file",
        type=click.Path(dir_okay=False, path_type=Path),
        required=True,
        help="Public keys, of which one must have signed the image.",
    )(function)
