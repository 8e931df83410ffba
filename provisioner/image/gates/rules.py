"""Allow-lists of a recipe, as gates take them."""

from __future__ import annotations

from collections.abc import Iterable

from provisioner.image.tables import Group


def reasons(groups: Iterable[Group]) -> dict[str, str]:
    """Name → why, of all groups."""
    return {name: group.why for group in groups for name in group.names}
