"""The tutorial's commands do what it says, in the order in which it says it."""

from __future__ import annotations

import pytest

from tests.journey.tutorial import PAGE, first_missing, steps
from tests.journey.virtual_rack import VirtualRack

pytestmark = [pytest.mark.timeout(2400), pytest.mark.long]


def test_every_command_of_the_tutorial_prints_what_its_reader_is_shown(rack: VirtualRack) -> None:
    rack.wait("r01-u01 is in production", lambda: rack.server("r01-u01").status.lifecycle == "InProduction")
    for step in steps(PAGE.read_text()):
        ran = rack.shell(step.command, folder=PAGE.parents[2])
        assert ran.returncode == 0, f"$ {step.command}\n{ran.stdout}"
        missing = first_missing(step.shown, ran.stdout)
        assert missing is None, f"$ {step.command}\n{ran.stdout}\nthe tutorial shows: {missing}"
