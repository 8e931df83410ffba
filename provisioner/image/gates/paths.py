"""Files that a recipe says must be there, and those that it says must not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from provisioner.image.gates.allowed import matching
from provisioner.image.gates.failure import GateFailure
from provisioner.image.gates.read.tree import Tree

GATE: Final = "paths"


def check_paths(tree: Tree, needed: Mapping[str, str], forbidden: Mapping[str, str]) -> Iterator[GateFailure]:
    """Both: pattern → reason. A needed one is a file, or a link to one."""
    for pattern, reason in needed.items():
        if not any(tree.resolve(path) for path in matching(tree.entries, pattern)):
            yield GateFailure(
                GATE, f"/{pattern}", "nothing matches", f"a file: {reason}", "add its package to the recipe"
            )
    for pattern, reason in forbidden.items():
        for path in matching(tree.entries, pattern):
            yield GateFailure(GATE, f"/{path}", "is there", f"nothing: {reason}", "add it to root.remove of the recipe")
