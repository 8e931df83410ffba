"""Which command is missing, and what is not known to be in force."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from provisioner.api.network.card import CardDifference, CardSetting, HostAccess
from provisioner.network.agent.card.decide import (
    ACCESS_SETTINGS,
    LOOK_SECONDS,
    decide_access,
    decide_settings,
    pause_seconds,
)
from provisioner.network.agent.card.parse import SWITCHES, HostPrivileges, Setting, Value

DEVICE = "0000:03:00.0"
OPEN = HostPrivileges("PRIVILEGED", dict.fromkeys(SWITCHES, False))
CLOSED = HostPrivileges("RESTRICTED", dict.fromkeys(SWITCHES, True))
HALF = HostPrivileges("RESTRICTED", {**dict.fromkeys(SWITCHES, True), "disable_rshim": False})
RESTRICT = (
    *("mstprivhost", "-d", DEVICE, "r"),
    *("--disable_rshim", "--disable_tracer", "--disable_counter_rd", "--disable_port_owner"),
)


def access(stored: int, in_force: int | None) -> dict[str, Setting]:
    """As mstconfig has it: 1 is restricted."""

    def value(name: str, number: int) -> Value:
        words = ("PRIVILEGED", "LIMITED") if name == "HOST_PRIV_LEVEL" else ("False", "True")
        return Value(words[number], str(number))

    return {
        name: Setting(value(name, stored), None if in_force is None else value(name, in_force))
        for name in ACCESS_SETTINGS
    }


@pytest.mark.parametrize(
    ("wanted", "stored", "told", "command", "differing"),
    [
        ("Restricted", OPEN, access(0, 0), RESTRICT, 5),
        ("Restricted", HALF, access(0, 0), RESTRICT, 5),
        ("Restricted", CLOSED, access(1, 0), None, 5),
        ("Restricted", CLOSED, access(1, 1), None, 0),
        ("Restricted", CLOSED, access(1, None), None, 5),
        ("Restricted", CLOSED, None, None, 5),
        ("Restricted", CLOSED, access(0, 1), None, 5),
        ("Privileged", CLOSED, access(1, 1), ("mstprivhost", "-d", DEVICE, "p"), 5),
        ("Privileged", OPEN, access(0, 1), None, 5),
        ("Privileged", OPEN, access(0, 0), None, 0),
        ("Privileged", OPEN, access(1, 0), None, 5),
    ],
    ids=[
        "an open card is restricted",
        "a switch that is open is closed",
        "stored is not in force",
        "in force",
        "the card does not say what is in force",
        "mstconfig does not know these settings",
        "mstconfig speaks of something else than mstprivhost",
        "a restricted card is opened",
        "opened, and not in force",
        "open",
        "mstprivhost says open where it could not read, and mstconfig says another thing",
    ],
)
def test_access_of_the_host(
    wanted: HostAccess,
    stored: HostPrivileges,
    told: Mapping[str, Setting] | None,
    command: tuple[str, ...] | None,
    differing: int,
) -> None:
    decision = decide_access(DEVICE, wanted, stored, told)
    assert (decision.command, len(decision.differences)) == (command, differing)


def test_one_switch_that_is_not_in_force_is_named() -> None:
    told = access(1, 1) | {"HOST_DISABLE_RSHIM": Setting(Value("True", "1"), Value("False", "0"))}
    assert decide_access(DEVICE, "Restricted", CLOSED, told).differences == (
        CardDifference(device=DEVICE, name="HOST_DISABLE_RSHIM", wanted="TRUE", stored="TRUE(1)", in_force="False(0)"),
    )


def setting(stored: str, in_force: str | None) -> Setting:
    return Setting(Value(stored), None if in_force is None else Value(in_force))


def test_what_is_not_stored_is_told_in_one_command_and_the_rest_is_not_repeated() -> None:
    wanted = [CardSetting(name=name, value="1") for name in ("A", "B", "C", "D")]
    seen = {"A": setting("1", "1"), "B": setting("0", "0"), "C": setting("1", "0"), "D": setting("0", "1")}
    decision = decide_settings(DEVICE, wanted, seen)
    assert decision.command == ("mstconfig", "-d", DEVICE, "-y", "set", "B=1", "D=1")
    assert [each.name for each in decision.differences] == ["B", "C", "D"]


@pytest.mark.parametrize(("in_force", "differing"), [("1", 0), ("0", 1), (None, 1)])
def test_what_is_stored_is_applied_only_once_the_card_says_that_it_is_in_force(
    in_force: str | None, differing: int
) -> None:
    decision = decide_settings(DEVICE, [CardSetting(name="A", value="1")], {"A": setting("1", in_force)})
    assert (decision.command, len(decision.differences)) == (None, differing)


def test_a_card_that_goes_on_failing_is_asked_ever_less_often_and_never_less_than_once_an_hour() -> None:
    assert [pause_seconds(each) for each in (1, 2, 3)] == [10.0, 20.0, 40.0]
    assert pause_seconds(10_000) == 3600.0
    assert pause_seconds(0) == LOOK_SECONDS
