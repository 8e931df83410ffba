"""What a recipe demands and allows, as the gates read it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Reasoned(Protocol):
    """Names that a recipe gives together, and why."""

    @property
    def why(self) -> str: ...

    @property
    def names(self) -> tuple[str, ...]: ...


class GateRules(Protocol):
    """The table `gates` of a recipe. Bytes are packed bytes; names are patterns of paths below the root."""

    @property
    def root_budget_bytes(self) -> int: ...
    @property
    def stage1_budget_bytes(self) -> int: ...
    @property
    def needed_modules(self) -> tuple[Reasoned, ...]: ...
    @property
    def needed_files(self) -> tuple[Reasoned, ...]: ...
    @property
    def forbidden(self) -> tuple[Reasoned, ...]: ...
    @property
    def allowed_setuid(self) -> tuple[Reasoned, ...]: ...
    @property
    def allowed_missing_libraries(self) -> tuple[Reasoned, ...]: ...
    @property
    def agree(self) -> tuple[Reasoned, ...]: ...
    @property
    def allowed_world_writable(self) -> tuple[Reasoned, ...]: ...
    @property
    def allowed_missing_firmware(self) -> tuple[Reasoned, ...]: ...
    @property
    def allowed_missing_symbols(self) -> tuple[Reasoned, ...]: ...
    @property
    def allowed_public_keys(self) -> tuple[Reasoned, ...]: ...
    @property
    def allowed_leftovers(self) -> tuple[Reasoned, ...]: ...
    @property
    def allowed_vulnerabilities(self) -> tuple[Reasoned, ...]: ...


def reasons(groups: Iterable[Reasoned]) -> dict[str, str]:
    """Name → why, of all groups."""
    return {name: group.why for group in groups for name in group.names}
