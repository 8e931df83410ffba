"""Completion: names by the API server's answer, within a second, or none; and what kubectl asks of a plugin.

kubectl wants a word a line, then `:` and a directive (cobra's). Source: kubectl, pkg/cmd/plugin,
"kubectl_complete-<plugin>"; cobra, "ShellCompDirective".
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import CompletionItem, ShellComplete

from provisioner.api.machinery.errors import ProvisionerError

TIMEOUT_SECONDS: Final = 1.0
NO_FILES: Final = 4  # ShellCompDirectiveNoFileComp

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _completing(plural: str, argument: str = "nodes") -> Complete:
    """argument: the one of the command that may have several of them already."""

    def complete(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from provisioner.api import KINDS
        from provisioner.cli.kubectl.connection import connection_of
        from provisioner.cli.options import found_kubeconfig
        from provisioner.cluster.resources import of

        kind = next(kind for kind in KINDS if kind.KIND.plural == plural)
        options: dict[str, Any] = {"kubeconfig": found_kubeconfig(), **{k: v for k, v in ctx.params.items() if v}}
        options["kubeconfig"] = Path(options["kubeconfig"]) if options["kubeconfig"] else None
        connection = connection_of(options)
        try:
            cluster = connection.open().with_timeout(TIMEOUT_SECONDS)
            named = ctx.params.get("namespace")
            namespace = (named or connection.find_namespace()) if kind.KIND.namespaced else None
            items = cluster.list(of(kind), namespace=namespace).items
        except (ProvisionerError, OSError):
            return []
        given = ctx.params.get(argument) or ()
        names = sorted(item["metadata"]["name"] for item in items)
        return [CompletionItem(name) for name in names if name.startswith(incomplete) and name not in given]

    return complete


complete_server = _completing("servers")
complete_image = _completing("images")
complete_pool = _completing("nodepools")
complete_attached_server = _completing("servers", "servers")
complete_vpc = _completing("vpcs", "vpc")
complete_attachment = _completing("vpcattachments", "attachments")
complete_security_group = _completing("securitygroups", "groups")


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


def main() -> None:
    """Entry point of `kubectl_complete-provision`, which kubectl asks for completions."""
    from provisioner.cli import printer
    from provisioner.cli.main import kubectl

    if completions := complete(kubectl, sys.argv[1:]):
        printer.show(completions)
