"""docs/tracing-a-machine.md says what the commands do."""

from __future__ import annotations

import re
from pathlib import Path

from provisioner.api.servers.trace import LONGEST_TRACE
from provisioner.boot.capture.read import LARGEST_FILE, MOST_MESSAGES
from provisioner.boot.dhcp.responder.verdicts import VERDICTS
from provisioner.boot.explain.firmware import FIRMWARES
from provisioner.boot.observe.trace.followed import LINES_AT_ONCE, LINES_PER_SECOND, MOST_EVENTS
from provisioner.boot.observe.trace.tracer import MOST_TRACES, TURN_SECONDS
from provisioner.cli.boot.group import BOOT_COMMANDS
from tests.golden_files import GOLDEN

GUIDE = (Path(__file__).parents[3] / "docs" / "tracing-a-machine.md").read_text()
PLAIN = " ".join(GUIDE.split())


def test_its_example_of_explain_is_what_is_printed() -> None:
    shown = GUIDE.split("$ provisioner boot explain", 1)[1].split("```")[0].splitlines()[1:-1]
    printed = (GOLDEN / "cli/boot/explain-wrong-subnet.txt").read_text().splitlines()
    assert shown == printed[: len(shown)]
    assert len(shown) > 6


def test_its_limits_are_those_of_the_code() -> None:
    assert (MOST_TRACES, TURN_SECONDS, LINES_PER_SECOND, LINES_AT_ONCE, MOST_EVENTS) == (8, 1.0, 4.0, 60.0, 400)
    assert "Eight traces at a time" in PLAIN
    assert "at most one Event a second, four lines a second (sixty at once), and 400 Events" in PLAIN
    assert LONGEST_TRACE.total_seconds() == 3600
    assert "an hour at most" in PLAIN
    assert f"{LARGEST_FILE >> 20} MiB are read, and of these {MOST_MESSAGES:,} messages" in PLAIN


def test_every_verdict_command_and_firmware_that_it_names_is_there() -> None:
    assert set(re.findall(r"`((?:dropped|offered)-[a-z-]+)`", GUIDE)) <= VERDICTS.keys()
    looks_at_machines = BOOT_COMMANDS.keys() - {"tls"}
    assert set(re.findall(r"provisioner boot ([a-z]+)", GUIDE)) == looks_at_machines
    assert set(re.findall(r"--arch ([a-z0-9_-]+)", GUIDE)) <= set(FIRMWARES)
