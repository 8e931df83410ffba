"""What a packing list holds, and where each thing in it was written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.schema import API_VERSION
from provisioner.api.machinery.values import Secret

CHASSIS_ANNOTATION: Final = "provisioner.dev/chassis-serial-number"
"""On a Server that is one of several nodes of a chassis."""


@dataclass(frozen=True)
class Origin:
    """A place in a file: `r01.csv:12, column MAC Address`. Lines count from 1."""

    file: str
    line: int | None = None
    column: str | None = None

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}, column {self.column}" if self.column else place


@dataclass(frozen=True)
class Mistake:
    """One thing that a person must correct before anything is registered."""

    origin: Origin
    observed: str
    expected: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.origin}: {self.observed}, expected {self.expected}; {self.remedy}"

    def fields(self) -> dict[str, str]:
        """For JSON."""
        return {**asdict(self), "origin": str(self.origin)}


class BadPackingList(Refused):
    """The file cannot be registered; `mistakes` are all of them, so that a person corrects them in one go. `notes`: as
    of a PackingList."""

    def __init__(self, mistakes: tuple[Mistake, ...], notes: tuple[str, ...] = ()) -> None:
        count = f"{len(mistakes)} mistakes" if len(mistakes) != 1 else "a mistake"
        lines = "".join(f"\n  {mistake}" for mistake in mistakes)
        super().__init__(
            f"{count} in the packing list, nothing was registered:{lines}", hint="correct them and try again"
        )
        self.mistakes = mistakes
        self.notes = notes


@dataclass(frozen=True)
class BmcCredentials:
    """User name and password of a BMC, on the way from the file into a Secret."""

    username: str
    password: Secret


@dataclass(frozen=True)
class ListEntry:
    """One object as the file has it: only the fields that the file sets, in the API's spelling."""

    kind: str
    name: str
    spec: Mapping[str, Any]
    origin: Origin
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    credentials: BmcCredentials | None = None
    create_only: bool = False
    """Described on the command line, in too few words to change what exists."""

    def body(self) -> dict[str, Any]:
        """The object for a server-side apply."""
        metadata: dict[str, Any] = {"name": self.name}
        if self.labels:
            metadata["labels"] = dict(self.labels)
        if self.annotations:
            metadata["annotations"] = dict(self.annotations)
        return {"apiVersion": API_VERSION, "kind": self.kind, "metadata": metadata, "spec": dict(self.spec)}


@dataclass(frozen=True)
class PackingList:
    """Everything in a file. `notes` are for the reader's eye: columns that were not used, and the like."""

    entries: tuple[ListEntry, ...]
    notes: tuple[str, ...] = ()
