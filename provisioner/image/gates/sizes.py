"""The budget: all layers together, and stage-1. What is over it is told with what is largest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from provisioner.image.gates.failure import GateFailure

GATE: Final = "sizes"
_LARGEST: Final = 8


def check_sizes(
    parts: Mapping[str, int], root_bytes: int, stage1_bytes: int, components: Sequence[tuple[str, int]]
) -> Iterator[GateFailure]:
    """`parts`: packed bytes by name (`stage1`, `layer.base`…; `root` in an image of one layer).

    `components`: what the layers are made of, with bytes; the largest are told when the layers are over their budget.
    """
    layers = {name: size for name, size in parts.items() if name == "root" or name.startswith("layer.")}
    for name, observed, budget, largest in (
        ("layers", sum(layers.values()), root_bytes, (*_sorted(list(layers.items())), *_sorted(components))),
        ("stage-1", parts.get("stage1", 0), stage1_bytes, ()),
    ):
        if observed > budget:
            told = ", ".join(f"{what} {megabytes(size)}" for what, size in largest)
            yield GateFailure(
                GATE,
                name,
                megabytes(observed) + (f"; largest: {told}" if told else ""),
                f"at most {megabytes(budget)}",
                "remove what no server needs (root.remove, root.packages), or raise the budget in gates of the recipe",
            )


def _sorted(components: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    return sorted(components, key=lambda each: (-each[1], each[0]))[:_LARGEST]


def megabytes(size: int) -> str:
    """`1234567` → `1.2 MB`."""
    return f"{size / 1e6:.1f} MB"
