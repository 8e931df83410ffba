"""What the fleet's pages make of a Server."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import pytest

from provisioner.api import Maintenance
from provisioner.api.machinery.codec import decode
from provisioner.api.servers.boot_timeline import PHASE_NAMES
from provisioner.api.servers.server_status import Lifecycle
from provisioner.web.fleet import Fleet, FleetFilter, by_number, in_place, waiting_groups
from provisioner.web.medians import FEWEST, usual_boot
from provisioner.web.row import ServerRow, row_of, unit_of
from provisioner.web.states import STATES, state_of
from tests.web.made_up_fleet import NEW, NOON, PHASES, condition, maintenance_of, make_fleet, row_in

FLEET = make_fleet(48)
BY_NAME = {body["metadata"]["name"]: body for body in FLEET.servers}
HELD_BY = {body["spec"]["serverRef"]: decode(Maintenance, body) for body in FLEET.maintenances}


def row(name: str) -> ServerRow:
    return row_of(BY_NAME[name], HELD_BY.get(name))


def rows() -> list[ServerRow]:
    return [row(name) for name in BY_NAME]


@pytest.mark.parametrize(
    ("lifecycle", "acceptance", "ready", "verified", "state"),
    [
        ("Registered", "Pending", None, None, "pending"),
        ("Discovered", "Pending", None, None, "pending"),
        ("Retired", "Rejected", None, None, "off"),
        ("Retired", "Accepted", ("False", "SwitchedOff"), None, "off"),
        ("Accepted", "Accepted", ("False", "ImageUnavailable"), None, "blocked"),
        ("Booting", "Accepted", ("False", "Root"), None, "booting"),
        ("Booting", "Accepted", ("False", "StageTimedOut"), None, "failed"),
        ("Booting", "Accepted", ("False", "Unordered"), None, "booting"),
        ("Booting", "Accepted", ("True", "Ready"), ("Unknown", "WaitsForNode"), "booting"),
        ("Booting", "Accepted", ("False", "ImageUnavailable"), None, "blocked"),
        ("Booting", "Accepted", ("False", "NodeNotReady"), None, "failed"),
        ("Booted", "Accepted", ("True", "Ready"), ("Unknown", "Running"), "checking"),
        ("Booted", "Accepted", ("True", "Ready"), ("False", "GPUs"), "failed"),
        ("Verified", "Accepted", ("True", "Ready"), ("True", "Passed"), "kept"),
        ("InProduction", "Accepted", ("True", "Ready"), ("True", "Passed"), "production"),
        ("InProduction", "Accepted", ("Unknown", "NodeNotReady"), ("True", "Passed"), "failed"),
        ("Maintenance", "Accepted", ("False", "Root"), None, "maintenance"),
        ("Held", "Accepted", ("True", "Ready"), ("True", "Passed"), "held"),
    ],
)
def test_a_server_is_in_the_state_that_its_lifecycle_and_conditions_say(
    lifecycle: Lifecycle, acceptance: str, ready: Any, verified: Any, state: str
) -> None:
    told = [condition(t, *c, "", NOON) for t, c in (("Ready", ready), ("Verified", verified)) if c is not None]
    order = {"order": {"id": "o1"}} if lifecycle not in ("Accepted", "Registered", "Discovered") else {}
    body = {"spec": {"acceptance": acceptance}, "status": {"lifecycle": lifecycle, "conditions": told, **order}}
    assert state_of(body) == state


def test_a_server_whose_bmc_has_no_credentials_cannot_boot_and_says_so_with_the_remedy() -> None:
    words = "Secret provisioner-bmcs/bmc does not exist; remedy: kubectl create secret generic bmc"
    told = [
        condition("Ready", "False", "StageTimedOut", "ordered has lasted longer than it may", NOON),
        condition("PoweredOn", "Unknown", "CredentialsMissing", words, NOON),
        condition("Verified", "Unknown", "WaitsForBoot", "waits until the boot joins", NOON),
    ]
    status = {"lifecycle": "Booting", "bootStage": "Ordered", "order": {"id": "o1"}, "conditions": told}
    found = row_of({"metadata": {"name": "r01-u01"}, "spec": {"acceptance": "Accepted"}, "status": status}, None)
    assert (found.state, found.reason, found.words) == ("blocked", "CredentialsMissing", words)
    body = {"metadata": {"name": "r01-u01"}, "status": {**status, "lifecycle": "Maintenance"}}
    reboots = decode(Maintenance, maintenance_of(BY_NAME["r01-u26"], NOON, phase="Rebooting"))
    assert not reboots.status.blockers
    found = row_of(body, reboots)
    assert (found.state, found.reason, found.words) == ("maintenance", "CredentialsMissing", words)


@pytest.mark.parametrize(("booted", "state"), [("Token", "booting"), ("StageTimedOut", "blocked")])
def test_a_join_that_waits_for_a_person_is_a_boot_until_it_is_late(booted: str, state: str) -> None:
    told = [condition(t, "False", "FirmwareNotApproved", "", NOON) for t in ("Ready", "Joined")]
    told.append(condition("Booted", "False", booted, "", NOON))
    status = {"lifecycle": "Booting", "bootStage": "Token", "order": {"id": "o1"}, "conditions": told}
    assert state_of({"spec": {"acceptance": "Accepted"}, "status": status}) == state


def test_a_server_of_which_nothing_is_known_waits_to_be_accepted() -> None:
    assert state_of({"metadata": {"name": "x"}, "spec": {}}) == "pending"


def test_no_two_states_look_or_sound_the_same() -> None:
    for part in ("mark", "word"):
        assert max(Counter(getattr(state, part) for state in STATES.values()).values()) == 1


@pytest.mark.parametrize(
    ("position", "unit"),
    [
        ("u07", 7),
        ("U42", 42),
        ("7", 7),
        ("rack 3, u12 left", 12),
        ("", None),
        ("top", None),
        ("u0", None),
        ("u61", None),
    ],
)
def test_the_unit_is_the_number_that_ends_the_position(position: str, unit: int | None) -> None:
    assert unit_of(position) == unit


def test_what_a_server_waits_for_is_its_oldest_blocker_else_its_condition() -> None:
    assert row("r01-u26").words == "SlurmJob 4712 runs there, and ends in 5 h at the latest"
    assert row("r01-u26").reason == "SlurmJob"
    assert row("r02-u16").words.startswith("7 of 8 GPUs are there")
    assert row("r01-u16").words == "wait for the new boot"
    assert row("r01-u16").label == "r01-u16: in maintenance. wait for the new boot"
    assert row("r04-u21").label == "r04-u21: boots, stage firmware. waits for the firmware to start iPXE"
    assert row("r01-u36").words == ""


def test_words_of_others_are_one_short_line() -> None:
    body = copy.deepcopy(BY_NAME["r02-u16"])
    body["status"]["conditions"][-1]["message"] = "a\nb\x1b[31m\u202e" + "x" * 5000
    words = row_of(body, None).words
    assert words.startswith("a b\ufffd[31m\ufffd")
    assert len(words) == 240


def test_a_status_that_cannot_be_read_has_no_finished_boot_and_harms_no_other() -> None:
    body = copy.deepcopy(BY_NAME["r01-u36"])
    assert row_of(body, None).boot is not None
    body["status"]["readyTime"] = "yesterday"
    assert row_of(body, None).boot is None


def test_the_usual_boot_is_the_median_of_the_same_kind() -> None:
    of_pool = rows()
    usual = usual_boot(of_pool, by_agent=False)
    assert usual is not None
    for stage, seconds in PHASES:
        assert usual.phases[stage] == pytest.approx(seconds, rel=0.15), PHASE_NAMES[stage]
    assert usual.servers == sum(1 for each in of_pool if each.boot is not None)
    assert usual_boot(of_pool, by_agent=True) is None
    assert usual_boot([each for each in of_pool if each.boot][: FEWEST - 1], by_agent=False) is None


def test_the_fleet_counts_what_is_there() -> None:
    fleet = Fleet()
    for each in rows():
        fleet.put(each.name, each)
    assert fleet.counts() == {key: Counter(each.state for each in rows())[key] for key in STATES}
    before, version = fleet.counts()["production"], fleet.version_of_rack("r01")
    fleet.put("r01-u36", None)
    assert fleet.counts()["production"] == before - 1
    assert row_in(fleet, "r01-u36") is None
    assert fleet.version_of_rack("r01") != version
    unchanged = fleet.version
    fleet.put("r01-u31", row("r01-u31"))
    assert fleet.version == unchanged, "nothing was changed"
    for each in rows():
        fleet.put(each.name, None)
    assert sum(fleet.counts().values()) == 0
    assert fleet.racks() == []


def test_racks_are_in_the_order_in_which_people_count() -> None:
    names = ["r100", "r2", "b-1-10", "r99", "b-1-9", "a", "", "1", "r2b"]
    assert sorted(names, key=by_number) == ["", "1", "a", "b-1-9", "b-1-10", "r2", "r2b", "r99", "r100"]


def test_a_rack_is_read_from_the_top_down_with_cards_after_their_hosts() -> None:
    stood = rows()[:8]
    card = copy.deepcopy(BY_NAME["r01-u16"])
    card["metadata"]["name"] = "r01-u16-dpu"
    card["spec"] |= {"dpu": {"hostRef": "r01-u16"}, "position": None}
    lost = copy.deepcopy(BY_NAME["r01-u16"])
    lost["metadata"]["name"] = "somewhere"
    lost["spec"]["position"] = "on the floor"
    names = [each.name for each in in_place([row_of(lost, None), row_of(card, None), *stood])]
    assert names[0] == "r01-u36"
    assert names[names.index("r01-u16") + 1] == "r01-u16-dpu"
    assert names[-1] == "somewhere"


def test_those_that_wait_for_the_same_are_told_together_the_worst_first() -> None:
    groups = waiting_groups(rows())
    assert [(group.state, group.reason, group.servers) for group in groups][:3] == [
        ("failed", "GPUs", 1),
        ("failed", "StageTimedOut", 1),
        ("blocked", "ImageUnavailable", 1),
    ]
    jobs = next(group for group in groups if group.reason == "SlurmJob")
    assert (jobs.servers, jobs.example) == (4, "r01-u26")
    assert all(group.state != "production" for group in groups)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (FleetFilter(text="R02 u16"), {"r02-u16"}),
        (FleetFilter(text="10.80.1.14"), {"r02-u16"}),
        (FleetFilter(text="52:54:00:00:00:0b"), {"r02-u16"}),
        (FleetFilter(text="s0048224"), {"r02-u16"}),
        (FleetFilter(state="failed"), {"r02-u16", "r03-u21"}),
        (FleetFilter(state="failed", reason="GPUs"), {"r02-u16"}),
        (FleetFilter(state="failed", rack="r03"), {"r03-u21"}),
        (FleetFilter(state="failed", pool="other"), set()),
        (FleetFilter(text=NEW, state="checking"), {"r02-u31"}),
    ],
)
def test_a_search_finds_what_matches_all_of_it(wanted: FleetFilter, found: set[str]) -> None:
    assert {each.name for each in rows() if wanted.matches(each)} == found
