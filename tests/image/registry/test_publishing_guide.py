"""docs/publishing.md: its options are those of the commands, and its runbook has the words that the code says."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from provisioner.cli.main import provisioner

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs/publishing.md").read_text()
SOURCES = "\n".join(
    re.sub(r'"\s*\n\s*f?"', "", file.read_text()) for file in (ROOT / "provisioner/image").rglob("*.py")
)


def options_of(*names: str) -> set[str]:
    command: click.Command | None = provisioner
    context = click.Context(provisioner)
    for name in names:
        assert isinstance(command, click.Group)
        command = command.get_command(context, name)
    assert command is not None
    return {option for parameter in command.params for option in parameter.opts}


def test_every_option_in_it_is_one_of_a_command() -> None:
    of_images = ("build", "sign", "push", "pull", "gc", "publish", "revoke")
    known = set[str]().union(*(options_of(*names) for names in (("boot",), *(("image", name) for name in of_images))))
    foreign = {"--authfile", "--from-file"}
    told = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", GUIDE)) - foreign
    assert told <= known, told - known
    assert {"--image-registry", "--image-key", "--image-pull", "--image-pulls", "--registry-token-host"} <= told


RUNBOOK = GUIDE.partition("## Runbook")[2].partition("## What was proved")[0]
SAID = [row.split("|")[1].strip() for row in RUNBOOK.splitlines() if row.startswith("| `")]


@pytest.mark.parametrize("words", SAID)
def test_the_words_of_its_runbook_are_said(words: str) -> None:
    pieces = [stripped for piece in words.strip("`").split("…") if (stripped := piece.strip(" :,"))]
    assert pieces, words
    assert all(piece in SOURCES for piece in pieces), words


def test_the_runbook_was_read() -> None:
    assert len(SAID) > 10
