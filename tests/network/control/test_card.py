"""What a DPU's agent is told of its card: what people declared of a card that they have accepted, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.api import Server
from provisioner.api.machinery.codec import decode
from provisioner.api.network.card import CardConfiguration, CardSetting
from provisioner.network.control.dpus import canonical
from provisioner.network.control.records.facts import card_configuration
from tests.network.control.objects import card, pool
from tests.network.control.world import World

DECLARED: dict[str, Any] = {
    "hostAccess": "Restricted",
    "settings": [{"name": "SRIOV_EN", "value": "TRUE"}, {"name": "DELAY_HOST_OS_INIT", "value": "1"}],
}


def dpu(acceptance: str = "Accepted", **changes: Any) -> Server:
    return decode(Server, card("d1", "s1", 1, acceptance, **changes))


def test_what_is_declared_is_told_in_one_order_with_the_server_whose_power_is_the_cards() -> None:
    assert card_configuration(dpu(**DECLARED)) == CardConfiguration(
        server="s1",
        host_access="Restricted",
        settings=(
            CardSetting(name="DELAY_HOST_OS_INIT", value="1"),
            CardSetting(name="SRIOV_EN", value="TRUE"),
        ),
    )


@pytest.mark.parametrize(
    "server",
    [dpu(), dpu(settings=[]), dpu("Pending", **DECLARED), dpu("Rejected", **DECLARED)],
    ids=["nothing is declared", "no setting", "not accepted", "rejected"],
)
def test_a_card_of_which_nothing_is_declared_or_that_nobody_accepted_stays_as_it_is(server: Server) -> None:
    assert card_configuration(server) is None


def test_a_card_that_is_being_deleted_is_told_nothing_any_more() -> None:
    body = card("d1", "s1", 1, **DECLARED)
    body["metadata"]["deletionTimestamp"] = "2026-01-02T15:04:05Z"
    assert card_configuration(decode(Server, body)) is None


def test_a_dpu_hears_of_its_own_card_alone_and_of_each_change() -> None:
    world = World()
    world.namespace("blue")
    world.add(pool())
    world.machine(1, "blue", **DECLARED)
    world.machine(2, "blue")
    world.settle()
    told = world.spec("d1")["card"]
    assert (told["server"], told["hostAccess"]) == ("s1", "Restricted")
    assert {each["name"]: each["value"] for each in told["settings"]} == {"DELAY_HOST_OS_INIT": "1", "SRIOV_EN": "TRUE"}
    assert "card" not in world.spec("d2")
    world.change(Server, "d1", dpu={"hostAccess": "Privileged", "settings": None})
    world.settle()
    assert world.spec("d1")["card"] == {"server": "s1", "hostAccess": "Privileged"}
    world.change(Server, "d1", dpu={"hostAccess": None})
    world.settle()
    assert "card" not in world.spec("d1")


def test_the_order_in_which_the_api_server_keeps_settings_is_no_change() -> None:
    one = {"vtepAddress": "10.255.0.1", "card": {"server": "s1", "settings": DECLARED["settings"]}}
    other = {"vtepAddress": "10.255.0.1", "card": {"server": "s1", "settings": DECLARED["settings"][::-1]}}
    assert canonical(one) == canonical(other)
    assert canonical(one) != canonical({**one, "card": {"server": "s1"}})
