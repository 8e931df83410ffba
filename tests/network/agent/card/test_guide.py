"""docs/tenant-networks.md, "The card itself": the settings and commands that there are."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from provisioner.api.network.card import DECLARABLE_NAMES, CardSetting, CardState
from provisioner.network.agent.card.decide import decide_access, decide_settings, privileges_query
from provisioner.network.agent.card.parse import SWITCHES, HostPrivileges, Setting, Value

SECTION = (Path(__file__).parents[4] / "docs" / "tenant-networks.md").read_text().split("\n## The card itself\n")[1]
SECTION = SECTION.split("\n## ")[0]


@pytest.mark.parametrize("name", DECLARABLE_NAMES)
def test_each_setting_that_can_be_declared_is_told(name: str) -> None:
    assert f"`{name.removesuffix('2')}1`" in SECTION if name.endswith("_P2") else f"`{name}`" in SECTION


def test_each_state_is_explained() -> None:
    for state in get_args(CardState):
        assert f"\n| {state} |" in SECTION


def test_the_commands_are_those_that_the_agent_runs() -> None:
    is_open = HostPrivileges("PRIVILEGED", dict.fromkeys(SWITCHES, False))
    closed = HostPrivileges("RESTRICTED", dict.fromkeys(SWITCHES, True))
    unset = {"NAME": Setting(Value("0"), None)}
    for command in (
        decide_access("DEVICE", "Restricted", is_open, None).command,
        decide_access("DEVICE", "Privileged", closed, None).command,
        privileges_query("DEVICE"),
        decide_settings("DEVICE", [CardSetting(name="NAME", value="VALUE")], unset).command,
    ):
        assert command is not None
        assert f"`{' '.join(command)}" in SECTION
