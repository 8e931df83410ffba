"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def kubeconfig_option(function: F) -> F:
    """`--kubeconfig`, as kubectl has it; KUBECONFIG, ~/.kube/config or the pod's service account if absent."""
    return click.option(
        "--kubeconfig",
        type=click.Path(dir_okay=False, path_type=Path),
        envvar="KUBECONFIG",
        help="How to reach Kubernetes [KUBECONFIG; else ~/.kube/config, else the pod's service account].",
    )(function)
