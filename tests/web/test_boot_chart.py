"""One boot beside the usual one."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import pytest

from provisioner.api import Server
from provisioner.api.machinery.codec import decode
from provisioner.api.servers.server_status import ServerStatus
from provisioner.web.boot_chart import WIDTH, BootChart, boot_chart
from provisioner.web.medians import usual_boot
from provisioner.web.row import row_of
from tests.web.made_up_fleet import NOON, make_fleet

FLEET = make_fleet(48)
STATUS = {body["metadata"]["name"]: decode(Server, body).status for body in FLEET.servers}
USUAL = usual_boot([row_of(body, None) for body in FLEET.servers], by_agent=False)


def chart(name: str, after: float = 0.0) -> BootChart:
    return boot_chart(STATUS[name], USUAL, NOON + timedelta(seconds=after))


def test_a_finished_boot_has_each_phase_with_its_length() -> None:
    made = chart("r01-u36")
    assert [line.name for line in made.lines][1:] == [
        "firmware",
        "iPXE",
        "stage-1",
        "root",
        "system",
        "token",
        "kubelet",
    ]
    assert made.total_seconds == pytest.approx(sum(line.seconds for line in made.lines[1:]), abs=0.1)
    assert not any(line.lasts for line in made.lines)


def test_what_was_only_heard_is_marked_and_what_the_bmc_or_the_join_says_is_not() -> None:
    heard = {line.name for line in chart("r01-u36").lines if line.heard}
    assert heard == {"iPXE", "stage-1", "root", "system", "token"}
    status = STATUS["r01-u36"]
    no_power = ServerStatus(**{**vars(status), "power": None})
    made = boot_chart(no_power, USUAL, NOON)
    assert next(line for line in made.lines if line.name == "firmware").heard, "DHCP alone says when it began"


def test_the_phase_that_lasts_grows_with_time_and_is_pointed_out_once_it_is_slow() -> None:
    early, late = chart("r01-u16"), chart("r01-u16", after=60)
    assert early.total_seconds is None
    assert early.lines[-1].lasts
    assert late.lines[-1].seconds == pytest.approx(early.lines[-1].seconds + 60)
    assert (early.lines[-1].slow, late.lines[-1].slow) == (False, True)


@pytest.mark.parametrize("name", ["r01-u36", "r01-u16", "r03-u21", "r04-u21"])
def test_every_bar_is_inside_of_the_chart_and_begins_where_the_one_before_ends(name: str) -> None:
    lines = chart(name, after=5000).lines
    for bar in [line.bar for line in lines] + [line.usual_bar for line in lines if line.usual_bar]:
        assert 0 <= bar[0] < WIDTH
        assert 0 < bar[1] <= WIDTH - bar[0] + 0.1
    for before, after in pairwise(lines):
        assert after.bar[0] == pytest.approx(before.bar[0] + before.bar[1], abs=4.1)


def test_a_server_that_never_booted_has_no_chart() -> None:
    assert chart("r04-u01").lines == ()
    assert chart("r03-u36").lines == ()
