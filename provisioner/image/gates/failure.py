"""What a gate finds, and how all of it is told at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from provisioner.api.machinery.errors import NeedsHuman
from provisioner.api.machinery.wording import quantity

_TOLD: Final = 50
"""More failures of one gate have one cause, and a person reads no more."""


@dataclass(frozen=True, order=True)
class GateFailure:
    """`gate` is its name; `object` what it looked at, most often a path relative to the root."""

    gate: str
    object: str
    observed: str
    expected: str
    remedy: str

    def render(self) -> str:
        return (
            f"{self.gate}: {self.object}\n  observed  {self.observed}\n  expected  {self.expected}\n"
            f"  remedy    {self.remedy}"
        )


class GatesFailed(NeedsHuman):
    """A build that is not to be published; `failures` are all that was found, by all gates."""

    def __init__(self, image: str, failures: Sequence[GateFailure]) -> None:
        gates = list(dict.fromkeys(failure.gate for failure in failures))
        told = []
        for gate in gates:
            own = [failure for failure in failures if failure.gate == gate]
            told += [failure.render() for failure in own[:_TOLD]]
            if len(own) > _TOLD:
                told.append(f"{gate}: {len(own) - _TOLD} more")
        many = quantity(len(failures), "failure")
        super().__init__(
            f"image {image!r} not built: {many} in {', '.join(gates)}\n" + "\n".join(told) + "\n",
            hint="correct each; what may stay goes into the recipe's `gates`, with its reason",
        )
        self.failures = tuple(failures)
