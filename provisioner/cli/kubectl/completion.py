"""Completion of names by the API server's answer, within a second, or none: a shell does not wait."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from provisioner.api.errors import ProvisionerError

TIMEOUT_SECONDS: Final = 1.0

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _completing(plural: str) -> Complete:
    def complete(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from provisioner.api import KINDS
        from provisioner.cli.kubectl.connection import connection_of
        from provisioner.cli.options import found_kubeconfig
        from provisioner.cluster.resources import of

        kind = next(kind for kind in KINDS if kind.KIND.plural == plural)
        options: dict[str, Any] = {"kubeconfig": found_kubeconfig(), **{k: v for k, v in ctx.params.items() if v}}
        options["kubeconfig"] = Path(options["kubeconfig"]) if options["kubeconfig"] else None
        try:
            cluster = connection_of(options).open().with_timeout(TIMEOUT_SECONDS)
            items = cluster.list(of(kind)).items
        except (ProvisionerError, OSError):
            return []
        given = ctx.params.get("nodes") or ()
        names = sorted(item["metadata"]["name"] for item in items)
        return [CompletionItem(name) for name in names if name.startswith(incomplete) and name not in given]

    return complete


complete_server = _completing("servers")
complete_image = _completing("images")
complete_pool = _completing("nodepools")
