"""Completion: names by the API server's answer, within a second, or none; and what kubectl asks of a plugin.

kubectl wants a word a line, then `:` and a directive (cobra's). Source: kubectl, pkg/cmd/plugin,
"kubectl_complete-<plugin>"; cobra, "ShellCompDirective".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import CompletionItem, ShellComplete

from provisioner.api.errors import ProvisionerError

TIMEOUT_SECONDS: Final = 1.0
NO_FILES: Final = 4  # ShellCompDirectiveNoFileComp

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


class _Words(ShellComplete):
    """click's own search for completions, without a shell around it."""

    name = "words"
    source_template = ""

    def find(self, args: list[str], incomplete: str) -> list[str]:
        found = self.get_completions(args, incomplete)
        return [f"{item.value}\t{item.help}" if item.help else item.value for item in found if item.type == "plain"]


def complete(group: click.Group, words: Sequence[str]) -> str:
    """What kubectl prints on: completions of the last of `words`, which may be empty."""
    *args, incomplete = words or [""]
    found = _Words(group, {}, "kubectl provision", "_PROVISION_COMPLETE").find(list(args), incomplete)
    return "".join(f"{word}\n" for word in found) + f":{NO_FILES}\n"
