"""What `provisioner boot explain` says of typical machines: whole screens, and what programs read."""

from __future__ import annotations

import json

import pytest

from provisioner.cli.boot.explain_screen import render_story
from provisioner.cli.boot.explain_words import story_json
from tests.cli.boot.machines import MACHINES
from tests.golden_files import assert_golden


@pytest.mark.parametrize("name", MACHINES)
def test_a_machine_is_explained(name: str) -> None:
    assert_golden(f"cli/boot/explain-{name}.txt", render_story(MACHINES[name]().explained()))


@pytest.mark.parametrize("name", MACHINES)
def test_programs_can_read_it(name: str) -> None:
    read = json.loads(json.dumps(story_json(MACHINES[name]().explained())))
    assert read["kind"] == "BootExplanation"
    assert read["script"]["decision"] in ("Boot", "Wait")
