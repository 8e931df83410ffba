"""Defences of the join, the attestation and the agent, each by the test of the attack that it is for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from provisioner.join.admission.web import OF_ALL
from tests.attacks.taken_away.defence import Defence, instead

DEFENCES: Final[Mapping[str, Defence]] = {
    "tests/attacks/test_join_flood.py::test_malformed_requests_use_up_the_rate_too": Defence(
        "OF_A_CLIENT is what all have together",
        {"provisioner.join.admission.web:OF_A_CLIENT": instead(OF_ALL.others)},
        sees="400",
        early=True,
    ),
}
