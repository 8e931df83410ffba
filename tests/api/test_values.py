"""Small value types."""

from __future__ import annotations

import pytest

from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.values import normal_system_uuid, parse_mac

SYSTEM_UUID = "4c4c4544-0042-4410-8056-b4c04f564432"
OLD_ORDER = "44454c4c-4200-1044-8056-b4c04f564432"


@pytest.mark.parametrize("told", [SYSTEM_UUID, SYSTEM_UUID.upper(), OLD_ORDER, OLD_ORDER.upper()])
def test_a_system_uuid_has_one_spelling_in_whichever_case_and_byte_order_it_is_told(told: str) -> None:
    assert normal_system_uuid(told) == OLD_ORDER


@pytest.mark.parametrize("other", ["4c4c4544-0042-4410-8056-b4c04f564433", "44454c4c-0042-4410-8056-b4c04f564432", ""])
def test_another_uuid_has_another_spelling(other: str) -> None:
    assert normal_system_uuid(other) != normal_system_uuid(SYSTEM_UUID)


def test_what_is_no_uuid_is_left_to_who_refuses_it() -> None:
    assert normal_system_uuid("Not A UUID") == "not a uuid"


@pytest.mark.parametrize("guid", ["0x0002c903000c7811", "00:02:C9:03:00:0C:78:11", "0002:c903:000c:7811"])
def test_a_guid_in_place_of_a_mac_address_is_called_one_and_the_port_that_boots_asked_for(guid: str) -> None:
    with pytest.raises(Refused, match="the GUID of an InfiniBand port") as refused:
        parse_mac(guid)
    assert "Ethernet or BlueField" in (refused.value.hint or "")
    assert parse_mac("0002.C90C.7811") == "00:02:c9:0c:78:11"
