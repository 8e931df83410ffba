"""What kubectl's completion asks of a plugin: a word a line, then `:` and a directive (cobra's).

Source: kubectl, pkg/cmd/plugin, "kubectl_complete-<plugin>"; cobra, "ShellCompDirective".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import click
from click.shell_completion import ShellComplete

NO_FILES: Final = 4  # ShellCompDirectiveNoFileComp


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
