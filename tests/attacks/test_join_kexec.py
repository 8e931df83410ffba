"""A boot that the agent on the machine carries out is armed while the old system still runs. docs/threat-model.md."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from provisioner.api.machinery.codec import to_json
from provisioner.api.machinery.meta import rfc3339
from provisioner.api.nodes.contract import BOOT_REPORT_ANNOTATION
from provisioner.api.nodes.facts import BootReport
from provisioner.cluster.resources import NODES
from provisioner.join.admission.admit import NotYet
from provisioner.join.admission.configuration import JoinConfiguration
from tests.join.conftest import accounts, make_world, world
from tests.join.front import post_as_nginx as post
from tests.join.front import serve
from tests.join.samples import BOOT_ID, DIGEST, KEY, OLD_BOOT_ID, OTHER_KEY, body, key_digest
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
        attempt_id="try-1",
        boot_id_before=OLD_BOOT_ID,
    )
    world.renew_lease(world.clock())
    world.clock.offset += timedelta(seconds=26)
    return world


@pytest.fixture
def loaded(world: World) -> World:
    """A Node whose agent has loaded a kernel that knows KEY, and said so; its kubelet lived until this moment."""
    world.joined(bootID=OLD_BOOT_ID)
    world.order(
        "order-2",
        reason="Requested",
        method="Kexec",
        maintenance_ref=f"{world.name}-1",
        attempt_id="try-1",
        boot_id_before=OLD_BOOT_ID,
    )
    report(world)
    world.renew_lease(world.clock())
    return world


def report(world: World, **changes: str) -> None:
    """What the agent writes with the kubelet's certificate before it starts the loaded kernel."""
    said = BootReport(
        id="try-1",
        state="Rebooting",
        image_digest=DIGEST,
        boot_id=OLD_BOOT_ID,
        message="starting the staged image",
        time=rfc3339(world.clock()),
        next_request_key_sha256=key_digest(KEY),
    )
    annotations = {BOOT_REPORT_ANNOTATION: json.dumps(to_json(replace(said, **changes)))}
    world.admin.patch(NODES, world.name, {"metadata": {"annotations": annotations}})


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
    told.clock.offset = timedelta(seconds=36)
    told.renew_lease(told.clock())
    told.clock.offset = timedelta(seconds=56)
    assert not_yet(told, bootID="99999999-9999-4999-8999-999999999999", requestKey=OTHER_KEY) == "OldBootRuns"
    assert told.tokens() == tokens
    told.clock.offset = timedelta(seconds=62)
    assert isinstance(told.join(), JoinConfiguration)


def test_the_new_boot_joins_once(told: World) -> None:
    told.joined()
    assert told.refused(requestKey=OTHER_KEY).reason == "AlreadyFetched"
    assert told.refused(requestKey=OTHER_KEY, bootID=OLD_BOOT_ID).reason == "AlreadyFetched"
    join = told.server().status.join
    assert join is not None
    assert (join.order_id, join.boot_id) == ("order-2", BOOT_ID)


def test_the_kernel_that_the_agent_loaded_joins_at_once(loaded: World) -> None:
    """Nobody has to wait until the old kubelet is missed: it is over, for the kernel that it loaded runs."""
    configuration = loaded.joined(requestKey=KEY)
    assert isinstance(configuration, JoinConfiguration)
    assert loaded.refused(requestKey=OTHER_KEY).reason == "AlreadyFetched"


def test_a_pod_that_outlives_its_kubelet_gets_nothing_while_the_loaded_kernel_is_awaited(loaded: World) -> None:
    """The Lease is silent, the address is right, the boot id is new: all but the key can be had by a pod."""
    tokens = loaded.tokens()
    for seconds in (0, 20, 115):  # of 120, by a clock that runs while the test does, and times in whole seconds
        loaded.clock.offset = timedelta(seconds=seconds)
        assert not_yet(loaded, requestKey=OTHER_KEY) == "OtherBootAwaited"
    assert loaded.tokens() == tokens
    loaded.joined(requestKey=KEY)


def test_nor_where_the_agent_acts_long_after_the_order_because_it_had_to_fetch_first(loaded: World) -> None:
    loaded.clock.offset = timedelta(seconds=400)
    report(loaded)
    for seconds in (401, 420, 515):
        loaded.clock.offset = timedelta(seconds=seconds)
        assert not_yet(loaded, requestKey=OTHER_KEY) == "OtherBootAwaited"
    loaded.joined(requestKey=KEY)


def test_nor_where_the_kexec_failed_and_the_kubelet_is_about_to_come_back(loaded: World) -> None:
    loaded.clock.offset = timedelta(seconds=30)
    report(loaded, state="Failed")
    loaded.clock.offset = timedelta(seconds=31)
    assert not_yet(loaded, requestKey=OTHER_KEY) == "OtherBootAwaited"


def test_a_machine_that_came_up_by_its_firmware_instead_joins_later(loaded: World) -> None:
    loaded.clock.offset = timedelta(seconds=121)
    assert isinstance(loaded.join(requestKey=OTHER_KEY), JoinConfiguration)


@pytest.mark.parametrize("time", ["2099-01-01T00:00:00Z", "2001-01-01T00:00:00Z", "noon", "2026-01-01T00:00:00", ""])
def test_a_node_whose_clock_is_wrong_keeps_nobody_out_for_longer(loaded: World, time: str) -> None:
    report(loaded, time=time)
    assert not_yet(loaded, requestKey=OTHER_KEY) == "OtherBootAwaited"
    loaded.clock.offset = timedelta(seconds=121)
    loaded.joined(requestKey=OTHER_KEY)


@pytest.mark.parametrize(
    "changes",
    [
        {"id": "try-0"},
        {"boot_id": BOOT_ID},
        {"next_request_key_sha256": None},
        {"next_request_key_sha256": key_digest(OTHER_KEY)},
        {"next_request_key_sha256": "\N{SNOWMAN}"},
    ],
    ids=["of another try", "of another boot", "of no key", "of another key", "of no hash"],
)
def test_what_another_report_says_lets_nobody_in_before_the_old_boot_is_over(
    loaded: World, changes: dict[str, str]
) -> None:
    report(loaded, **changes)
    assert not_yet(loaded, requestKey=KEY) in ("OldBootRuns", "OtherBootAwaited")


@pytest.mark.parametrize("text", ["", "[]", "{", '{"id": 1}', "[" * 100_000, '"\\ud800"'])
def test_a_report_that_is_none_counts_as_none(loaded: World, text: str) -> None:
    loaded.admin.patch(NODES, loaded.name, {"metadata": {"annotations": {BOOT_REPORT_ANNOTATION: text}}})
    assert not_yet(loaded, requestKey=KEY) == "OldBootRuns"
    loaded.clock.offset = timedelta(seconds=26)
    loaded.joined(requestKey=KEY)


def test_the_key_is_good_for_a_kexec_alone(loaded: World) -> None:
    loaded.order(
        "order-3", reason="Requested", method="Reboot", attempt_id="try-1", boot_id_before=OLD_BOOT_ID
    )  # as if the executor gave the next try the same id
    assert not_yet(loaded, requestKey=KEY) == "OldBootRuns"


def test_an_order_that_nobody_carried_out_expires(told: World) -> None:
    told.clock.offset = timedelta(seconds=2281)
    assert told.refused().reason == "OrderExpired"


def test_a_reset_that_was_asked_for_is_armed_by_the_bmc_alone(make_world: Callable[..., World]) -> None:
    """Otherwise the old system could take the token of a boot that is yet to come."""
    world = make_world()
    world.order("order-1")
    world.joined(bootID=OLD_BOOT_ID)
    world.order("order-2", reason="Requested", method="Reset", boot_id_before=OLD_BOOT_ID)
    world.apply_status("provisioner-power", {"power": {"orderID": "order-1", "state": "On"}})
    assert not_yet(world, requestKey=OTHER_KEY) == "OrderNotCarriedOut"
