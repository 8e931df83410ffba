"""A boot that the agent on the machine carries out is armed while the old system still runs. docs/threat-model.md."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from provisioner.join.admit import NotYet
from provisioner.join.configuration import JoinConfiguration
from tests.join.conftest import accounts, make_world, world
from tests.join.front import post_as_nginx as post
from tests.join.front import serve
from tests.join.samples import BOOT_ID, OLD_BOOT_ID, OTHER_KEY, body
from tests.join.world import World

__all__ = ["accounts", "make_world", "world"]

NEIGHBOUR = "127.0.0.99"


@pytest.fixture(params=["Kexec", "Reboot"])
def told(world: World, request: pytest.FixtureRequest) -> World:
    """A Node that ran, and was told to start the next system; its kubelet lived until a moment ago."""
    world.joined(bootID=OLD_BOOT_ID)
    world.order(
        "order-2",
        reason="Requested",
        method=request.param,
        maintenance_ref=f"{world.name}-1",
        request_id="try-1",
        boot_id_before=OLD_BOOT_ID,
    )
    world.renew_lease(world.clock() - timedelta(seconds=15))
    return world


def not_yet(world: World, **changes: str) -> str:
    answer = world.join(**changes)
    assert isinstance(answer, NotYet), answer
    return answer.reason


def test_a_neighbour_gets_nothing_in_its_window(told: World, tmp_path: Path) -> None:
    tokens = told.tokens()
    with serve(told.service(), tmp_path / "s") as path:
        reply = post(path, body(macAddress=told.mac, requestKey=OTHER_KEY), NEIGHBOUR)
    assert (reply.status, reply.reason) == (403, "WrongAddress")
    assert told.tokens() == tokens
    told.joined()


def test_the_old_boot_does_not_join_in_its_window(told: World) -> None:
    tokens = told.tokens()
    for boot_id in (OLD_BOOT_ID, OLD_BOOT_ID.upper()):
        assert not_yet(told, bootID=boot_id, requestKey=OTHER_KEY) == "StillOldBoot"
    assert told.tokens() == tokens
    told.joined()


def test_a_pod_of_the_old_boot_that_invents_a_boot_id_gets_nothing_while_its_kubelet_lives(told: World) -> None:
    """It speaks from the server's address, and the server's boot script is no secret."""
    tokens = told.tokens()
    told.renew_lease(told.clock())
    assert not_yet(told, bootID="99999999-9999-4999-8999-999999999999", requestKey=OTHER_KEY) == "OldBootRuns"
    told.clock.offset = timedelta(seconds=10)
    told.renew_lease(told.clock())
    told.clock.offset = timedelta(seconds=20)
    assert not_yet(told, bootID="99999999-9999-4999-8999-999999999999", requestKey=OTHER_KEY) == "OldBootRuns"
    assert told.tokens() == tokens
    told.clock.offset = timedelta(seconds=25)
    assert isinstance(told.join(), JoinConfiguration)


def test_the_new_boot_joins_once(told: World) -> None:
    told.joined()
    assert told.refused(requestKey=OTHER_KEY).reason == "AlreadyFetched"
    assert told.refused(requestKey=OTHER_KEY, bootID=OLD_BOOT_ID).reason == "AlreadyFetched"
    join = told.server().status.join
    assert join is not None
    assert (join.order_id, join.boot_id) == ("order-2", BOOT_ID)


def test_an_order_that_nobody_carried_out_expires(told: World) -> None:
    told.clock.offset = timedelta(seconds=1801)
    assert told.refused().reason == "OrderExpired"


def test_a_reset_that_was_asked_for_is_armed_by_the_bmc_alone(make_world: Callable[..., World]) -> None:
    """Otherwise the old system could take the token of a boot that is yet to come."""
    world = make_world()
    world.order("order-1")
    world.joined(bootID=OLD_BOOT_ID)
    world.order("order-2", reason="Requested", method="Reset", boot_id_before=OLD_BOOT_ID)
    world.apply_status("provisioner-power", {"power": {"orderID": "order-1", "state": "On"}})
    assert not_yet(world, requestKey=OTHER_KEY) == "OrderNotCarriedOut"
