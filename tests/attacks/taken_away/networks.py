"""Defences of tenants' networks, each by the test of the attack that it is for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.attacks.taken_away.defence import Defence

DEFENCES: Final[Mapping[str, Defence]] = {}
