"""The defences that a patch takes away, by the test of the attack that each is for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.attacks.taken_away import boots, joins, networks, services
from tests.attacks.taken_away.defence import Defence

DEFENCES: Final[Mapping[str, Defence]] = {
    **joins.DEFENCES,
    **boots.DEFENCES,
    **networks.DEFENCES,
    **services.DEFENCES,
}
