"""Defences of the boot service, the addresses and the images, each by the test of the attack that it is for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tests.attacks.taken_away.defence import Defence


def _nobody_holds_an_address(real: Any) -> Any:
    return lambda claims, subnets, *, is_held: real(claims, subnets, is_held=False)


DEFENCES: Final[Mapping[str, Defence]] = {
    "tests/boot/test_discover.py::test_who_asks_from_elsewhere_is_not_recorded": Defence(
        "no address is a registered server's",
        {"provisioner.boot.observe.discover:find_place": _nobody_holds_an_address},
        sees="DID NOT RAISE",
        row="10.80.0.21",
    ),
}
