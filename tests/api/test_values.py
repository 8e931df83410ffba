"""Small value types."""

from __future__ import annotations

import pytest

from provisioner.api.values import same_system_uuid, system_uuid_spellings

SYSTEM_UUID = "4c4c4544-0042-4410-8056-b4c04f564432"
OLD_ORDER = "44454c4c-4200-1044-8056-b4c04f564432"


@pytest.mark.parametrize(
    ("claimed", "same"),
    [
        (SYSTEM_UUID, True),
        (SYSTEM_UUID.upper(), True),
        (OLD_ORDER, True),
        ("4c4c4544-0042-4410-8056-b4c04f564433", False),
        ("", False),
        (None, False),
    ],
)
def test_a_system_uuid_may_come_in_the_byte_order_of_old_firmware(claimed: str | None, same: bool) -> None:
    assert same_system_uuid(SYSTEM_UUID, claimed) is same


@pytest.mark.parametrize("told", [SYSTEM_UUID, SYSTEM_UUID.upper(), OLD_ORDER])
def test_whichever_way_it_is_told_it_has_the_same_two_spellings(told: str) -> None:
    assert system_uuid_spellings(told) == {SYSTEM_UUID, OLD_ORDER}
