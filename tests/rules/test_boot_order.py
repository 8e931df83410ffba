"""What a boot order has come to: whether the boot that a Node reports is the ordered one, and whether it is to end."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.api.servers.server import Server
from provisioner.rules.boot_order import is_ordered_boot, is_to_end
from tests.join.samples import BOOT_ID, OLD_BOOT_ID, ago, fetched, order, server, with_spec, with_status

JOINED = fetched()


def ordered(**status: Any) -> Server:
    return with_status(server(), **{"order": order(boot_id_before=None), "join": JOINED, **status})


@pytest.mark.parametrize(
    ("why", "of", "boot_id", "expected"),
    [
        ("it was handed out to that one", ordered(), BOOT_ID, True),
        ("it was handed out to another", ordered(), OLD_BOOT_ID, False),
        ("none is reported", ordered(), None, False),
        ("nothing is ordered", ordered(order=None), BOOT_ID, False),
        ("nothing was handed out", ordered(join=None), BOOT_ID, False),
        ("it was handed out for the order before", ordered(join=fetched(order_id="before")), BOOT_ID, False),
        ("it was Ready once, whoever it was handed out to", ordered(ready_time=ago(0)), OLD_BOOT_ID, True),
        ("it ran before the order", ordered(order=order(boot_id_before=OLD_BOOT_ID.upper())), OLD_BOOT_ID, False),
        ("it is another, and none has joined", ordered(order=order(boot_id_before=OLD_BOOT_ID), join=None), "x", False),
        ("it is not the one before the order", ordered(order=order(boot_id_before=OLD_BOOT_ID)), "another", True),
    ],
)  # fmt: skip
def test_a_reported_boot_is_the_ordered_one(why: str, of: Server, boot_id: str | None, expected: bool) -> None:
    assert is_ordered_boot(of, boot_id) is expected, why


@pytest.mark.parametrize(
    ("why", "of", "expected"),
    [
        ("it is the one that was ordered", ordered(), False),
        ("the server is to be off", with_spec(ordered(), power_state="Off"), True),
        ("the next one was ordered", ordered(order=order(id="the-next")), True),
        ("nothing has joined yet", ordered(order=order(id="the-next"), join=None), False),
        ("the next one was Ready once", ordered(order=order(id="the-next"), ready_time=ago(0)), False),
    ],
)
def test_a_boot_is_to_end(why: str, of: Server, expected: bool) -> None:
    assert is_to_end(of) is expected, why
