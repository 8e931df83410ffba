"""Which server waits for which card, by what is written of the card."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.rules.dpus import awaited_by, awaiting, find_awaited_dpu, host_of, hosts


def card(ready: str | None = "False", **spec: Any) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": ready}] if ready is not None else []
    wanted = {"acceptance": "Accepted", "nodePoolRef": "dpu", "dpu": {"hostRef": "r01-u01"}} | spec
    return {
        "spec": {key: value for key, value in wanted.items() if value is not None},
        "status": {"conditions": conditions},
    }


@pytest.mark.parametrize("ready", ["False", "Unknown", None])
def test_a_card_that_is_to_run_and_does_not_is_awaited(ready: str | None) -> None:
    assert awaited_by(card(ready)) == "r01-u01"
    assert list(awaiting(card(ready))) == ["r01-u01"]


@pytest.mark.parametrize(
    "other",
    [
        card("True"),
        card(acceptance="Pending"),
        card(acceptance="Rejected"),
        card(nodePoolRef=None),
        card(powerState="Off"),
        card(dpu=None),
        None,
    ],
    ids=["Ready", "not accepted", "rejected", "nobody boots it", "meant to be off", "no card", "gone"],
)
def test_no_other_is(other: dict[str, Any] | None) -> None:
    assert awaited_by(other) is None
    assert list(awaiting(other or {})) == []


def test_a_card_has_its_host_whatever_becomes_of_it() -> None:
    assert host_of(card("True", acceptance="Rejected")) == "r01-u01"
    assert list(hosts(card("True"))) == ["r01-u01"]
    assert (host_of(card(dpu=None)), list(hosts(card(dpu=None)))) == (None, [])


def test_what_is_said_names_the_card_and_the_way_round_it() -> None:
    assert find_awaited_dpu("r01-u01", []) is None
    found = find_awaited_dpu("r01-u01", ["r01-u01-dpu2", "r01-u01-dpu1"])
    assert found is not None
    assert (found.reason, found.unwanted) == ("WaitsForDPU", False)
    assert "DPU 'r01-u01-dpu1'" in found.message
    assert "Rejected" in found.remedy
