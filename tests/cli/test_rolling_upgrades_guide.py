"""docs/rolling-upgrades.md: the API server takes its example, its commands exist, its screen is the real one."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from provisioner.api import NodePool
from provisioner.api.crd import all_crds
from provisioner.api.machinery.errors import Refused
from provisioner.cli.main import kubectl
from provisioner.cli.rollout.screen import LOOKS
from provisioner.cluster.client import Cluster
from tests.golden_files import GOLDEN

DOCS = Path(__file__).parents[2] / "docs"
GUIDE = (DOCS / "rolling-upgrades.md").read_text()


def example() -> Any:
    (found,) = re.findall(r"^```yaml\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    return yaml.safe_load(found)


def commands() -> list[str]:
    """Every `kubectl provision …` of the manuals' blocks that is about a rollout, without its remark."""
    manuals = [(DOCS / name).read_text() for name in ("rolling-upgrades.md", "operator-guide.md")]
    lines = [line for manual in manuals for line in manual.splitlines()]
    return [line.partition("#")[0].strip() for line in lines if line.startswith("kubectl provision rollout")]


def test_the_example_is_a_pool_that_the_api_server_takes(cluster: Cluster, unique: str) -> None:
    body = example()
    body["metadata"]["name"] = unique
    taken = cluster.apply(body, manager="tests", dry_run=True)
    assert taken["spec"]["upgradeStrategy"]["waves"] == body["spec"]["upgradeStrategy"]["waves"]
    body["spec"]["upgradeStrategy"]["waves"].reverse()
    with pytest.raises(Refused, match="rising order"):
        cluster.apply(body, manager="tests", dry_run=True)


def test_the_example_shows_each_setting_that_a_person_sets() -> None:
    (crd,) = [c for c in all_crds() if c["spec"]["names"]["kind"] == NodePool.KIND.kind]
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    settings = set(spec["upgradeStrategy"]["properties"])
    assert set(example()["spec"]["upgradeStrategy"]) == settings - {"paused", "retriedTime"}


@pytest.mark.parametrize("line", commands())
def test_each_command_is_one_that_there_is(line: str) -> None:
    words = shlex.split(line)[2:]
    group = kubectl.get_command(click.Context(kubectl), words[0])
    assert isinstance(group, click.Group)
    command = group.get_command(click.Context(group), words[1])
    assert command is not None, line
    command.make_context(words[1], words[2:])  # raises for an option that there is not


def test_the_manuals_have_commands() -> None:
    named = {line.split()[3] for line in commands()}
    assert {"plan", "start", "status", "undo", "resume"} <= named


def test_the_screen_is_the_real_one() -> None:
    real = (GOLDEN / "cli" / "rollout-half-way.txt").read_text().partition("\n\nSERVER")[0]
    assert f"```\n{real}\n```" in GUIDE


@pytest.mark.parametrize("state", LOOKS)
def test_each_character_of_the_fleet_is_explained(state: str) -> None:
    assert f"| `{LOOKS[state].mark}` {LOOKS[state].word} |" in GUIDE
