"""docs/tenant-networks.md: its commands exist, and it tells of each."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from provisioner.cli.main import kubectl
from provisioner.cli.vpc.group import vpc

GUIDE = (Path(__file__).parents[2] / "docs" / "tenant-networks.md").read_text()


def commands() -> list[str]:
    """Every `kubectl provision …` of the guide that can be copied: in blocks, and in sentences."""
    blocks = re.findall(r"^(kubectl provision vpc .*)$", GUIDE, re.MULTILINE)
    return sorted({*blocks, *re.findall(r"`(kubectl provision vpc [a-z]+ [^`]+)`", GUIDE)})


@pytest.mark.parametrize("line", commands())
def test_each_command_is_one_that_there_is(line: str) -> None:
    words = shlex.split(line)[3:]
    command = vpc.get_command(click.Context(vpc), words[0])
    assert command is not None, line
    command.make_context(words[0], words[1:])  # raises for an option that there is not


def test_the_guide_shows_commands() -> None:
    assert {"attach", "status", "quarantine", "why"} <= {line.split()[3] for line in commands()}


def test_the_guide_tells_of_every_command_and_its_settings() -> None:
    section = GUIDE.split("## The commands")[1].split("\n## ")[0]
    for name in vpc.commands:
        assert re.search(rf"`{name} ", section), name
    for option in ("--address", "--security-group", "--dpu", "--protocol", "--port", "--wait", "--timeout"):
        assert option in section


@pytest.mark.parametrize("name", sorted(vpc.commands))
def test_every_command_explains_itself_with_an_example_and_its_exit_codes(name: str) -> None:
    command = vpc.get_command(click.Context(vpc), name)
    assert command is not None
    told = command.get_help(click.Context(command, parent=click.Context(kubectl)))
    assert f"kubectl provision vpc {name} " in told
    assert "Exit codes:" in told
    assert ("with --wait" in told) == any(each.name == "wait" for each in command.params)
