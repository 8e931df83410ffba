"""What tenants, nodes and askers write is shown on administrators' terminals: as words, never as orders to them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from provisioner.api.nodes.maintenance import Blocker, Requestor, TimelineEntry
from provisioner.cli.kubectl.printing import print_objects, table
from provisioner.cli.kubectl.waiting import WatchedMaintenance
from provisioner.cli.why.screen import render_why
from provisioner.cli.why.subject import ServerSubject
from provisioner.cluster.recent_events import RecentEvents
from tests.cli.situations import NOON, SITUATIONS, before, node, node_condition

ORDERS = (
    "\x1b]0;a title\x07",
    "\x1b[2J\x1b[H",  # a clean screen
    "\x9b2J",  # the same in one byte of C1
    "\r",
    "\u202e",  # right to left
    "\b\b\b",
)


def _forged(words: str) -> ServerSubject:
    """A Maintenance that waits; everything in it that somebody else may choose holds `words`."""
    found = SITUATIONS["waits-for-a-job"]()
    current = found.current
    assert current is not None
    asker = Requestor(
        name="user-eve", user=f"eve{words}", action="Reboot", message=words, requested_time=before(hours=1)
    )
    entry = TimelineEntry(time=before(hours=1), phase="Waiting", reason="Requested", message=words)
    blocker = Blocker(kind="PodGroup", name=f"ml/{words}", message=words, since_time=before(minutes=1))
    current = replace(
        current,
        spec=replace(current.spec, requestors=(asker,)),
        status=replace(
            current.status, timeline=(*current.status.timeline, entry), blockers=(blocker,), next_step=words
        ),
    )
    event = {"metadata": {"creationTimestamp": before(minutes=1)}, "reason": words, "message": words, "type": "Normal"}
    odd = node(
        node_condition("provisioner.dev/HoldRequested", "True", words, words),
        node_condition("provisioner.dev/RequestRefused", "True", words, words),
    )
    return replace(found, maintenances=(current,), node=odd, events=RecentEvents((event,)), now=NOON)


def _is_plain(text: str) -> bool:
    return all(c.isprintable() or c == "\n" for c in text)


@pytest.mark.parametrize("order", ORDERS)
def test_why_gives_a_terminal_no_orders(order: str) -> None:
    told = render_why(_forged(f"before{order}after"))
    assert _is_plain(told)
    assert "before" in told
    assert "after" in told


@pytest.mark.parametrize("order", ORDERS)
def test_tables_give_a_terminal_no_orders(order: str) -> None:
    told = table(("NODE", "WAITS FOR"), [("r01", f"pod {order}x\nr02   in production")])
    assert _is_plain(told)
    assert len(told.splitlines()) == 2, "no cell makes a line of its own"


@pytest.mark.parametrize("order", ORDERS)
def test_the_progress_of_wait_gives_a_terminal_no_orders(order: str) -> None:
    current = _forged(f"pod {order}x\nnode/r01 completed").current
    assert current is not None
    lines = WatchedMaintenance("r01", current.name, "Reboot").news(current)
    assert lines
    assert all(_is_plain(line) and "\n" not in line for line in lines)


@pytest.mark.parametrize("order", ORDERS)
def test_objects_as_json_and_yaml_give_a_terminal_no_orders(order: str, capsys: pytest.CaptureFixture[str]) -> None:
    for form in ("json", "yaml"):
        print_objects([{"message": f"a{order}b"}], form)
        told = capsys.readouterr().out
        assert all(c.isprintable() or c == "\n" for c in told), form
        if form == "json":
            assert json.loads(told) == {"message": f"a{order}b"}
