"""What becomes of a Server's fault records when something is observed; no record is taken away by silence."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.api.machinery.meta import rfc3339
from provisioner.api.nodes.facts import ObservedFault
from provisioner.api.servers.faults import MAX_COUNT, MAX_FAULTS, SEVERITIES, FaultRecord
from provisioner.health.faults.merge import MOST_OF_CODE, MOST_OF_DEVICE, merge, news
from tests.health.faults.records import GPU, observed, record
from tests.health.objects import BOOT, NOON, OTHER_BOOT, after

LATER = after(600)


def test_a_fault_that_is_new_has_the_controllers_time_and_not_the_nodes() -> None:
    (found,) = merge((), (observed(time="1970-01-01T00:00:00Z"),), BOOT, NOON)
    assert found == record()


def test_the_same_report_again_changes_nothing() -> None:
    assert merge((record(),), (observed(evidence="another line"),), BOOT, LATER) == (record(),)


def test_a_fault_that_came_more_often_has_a_new_count_and_a_new_last_time() -> None:
    (found,) = merge((record(count=2),), (observed(count=5),), BOOT, LATER)
    assert found == record(count=5, last_time=rfc3339(LATER))


def test_an_agent_that_was_restarted_and_counts_anew_takes_nothing_back() -> None:
    assert merge((record(count=7),), (observed(count=1),), BOOT, LATER) == (record(count=7),)


def test_a_fault_that_is_no_longer_reported_stays_and_says_so() -> None:
    assert merge((record(),), (), BOOT, LATER) == (record(reported=False),)
    assert merge((record(reported=False),), (), BOOT, LATER) == (record(reported=False),)


def test_a_fault_of_an_earlier_boot_stays_and_begins_anew_when_it_comes_back() -> None:
    stays = merge((record(count=9),), (), OTHER_BOOT, LATER)
    assert stays == (record(count=9, reported=False),)
    (back,) = merge(stays, (observed(count=2),), OTHER_BOOT, LATER)
    assert back == record(count=2, boot_id=OTHER_BOOT, last_time=rfc3339(LATER))
    assert back.first_time == rfc3339(NOON)


def test_a_state_counts_how_often_it_began_and_not_how_often_it_was_read() -> None:
    state = observed(count=None)
    (first,) = merge((), (state,), BOOT, NOON)
    assert merge((first,), (state,), BOOT, LATER) == (first,)
    gone = merge((first,), (), BOOT, LATER)
    (again,) = merge(gone, (state,), BOOT, LATER)
    assert (again.count, again.reported, again.last_time) == (2, True, rfc3339(LATER))
    (full,) = merge((replace(gone[0], count=MAX_COUNT),), (state,), BOOT, LATER)
    assert full.count == MAX_COUNT


def test_a_fault_becomes_worse_and_never_milder() -> None:
    mild, severe = observed(severity="Info", count=2), observed(severity="Critical")
    (worse,) = merge((record(severity="Info"),), (severe,), BOOT, LATER)
    assert (worse.severity, worse.last_time) == ("Critical", rfc3339(LATER))
    (stays,) = merge((record(severity="Critical"),), (mild,), BOOT, LATER)
    assert (stays.severity, stays.count) == ("Critical", 2)


def test_of_one_fault_that_is_reported_twice_the_worst_and_the_highest_count() -> None:
    twice = (observed(severity="Info", count=8), observed(severity="Critical", count=2))
    assert merge((), twice, BOOT, NOON) == (record(count=8),)


def test_faults_of_other_devices_sources_and_codes_are_records_of_their_own() -> None:
    found = merge(
        (),
        (observed(), observed("XID48"), observed(device="0000:43:00.0"), observed(source="NVML"), observed()),
        BOOT,
        NOON,
    )
    assert len(found) == 4


def test_news_are_new_records_and_those_that_became_worse() -> None:
    before = (record("XID48"), record("XID63", severity="Degraded"), record("XID31", severity="Info"))
    after_ = (record("XID48", count=9), record("XID63"), record("XID31", severity="Info", reported=False), record())
    assert [each.code for each in news(before, after_)] == ["XID63", "XID79"]


def full(severity: str = "Info", **fields: Any) -> list[FaultRecord]:
    """As many as there is room for, of as many devices and codes."""
    return [
        record(f"Fault{at}", component="PCIe", device=f"0000:{at:02x}:00.0", severity=severity, **fields)
        for at in range(MAX_FAULTS)
    ]


def newcomer(severity: str = "Info") -> tuple[ObservedFault, ...]:
    return (observed("Newcomer", component="Disk", device="nvme0", severity=severity),)


def codes(records: Iterable[FaultRecord]) -> set[str]:
    return {each.code for each in records}


def seen(records: Iterable[FaultRecord]) -> tuple[ObservedFault, ...]:
    """The same, reported again."""
    return tuple(
        observed(each.code, component=each.component, device=each.device, severity=each.severity)
        for each in records
        if each.reported
    )


def test_where_there_is_no_room_most_of_what_is_no_longer_reported_goes_and_of_it_the_last_found() -> None:
    records = full()
    for at in range(MAX_FAULTS // 2 + 1):
        records[at] = replace(records[at], reported=False, first_time=rfc3339(after(at)))
    found = merge(records, (*seen(records), *newcomer()), BOOT, LATER)
    assert len(found) == MAX_FAULTS
    assert codes(records) - codes(found) == {f"Fault{MAX_FAULTS // 2}"}


def test_what_a_node_makes_up_pushes_out_no_true_fault_that_it_hides() -> None:
    found: tuple[FaultRecord, ...] = (record("XID79"),)
    for minute in range(1, 4):
        made_up = tuple(observed(f"Made{at % 2}", device=f"d{minute}-{at}", component="Disk") for at in range(40))
        found = merge(found, made_up, BOOT, after(60 * minute))
    assert "XID79" in codes(found)


@pytest.mark.parametrize(("there", "comes"), [("Critical", "Info"), ("Critical", "Degraded"), ("Degraded", "Info")])
def test_a_mild_fault_never_pushes_a_severe_one_out_even_one_that_is_not_reported(there: str, comes: str) -> None:
    records = full(there, reported=False)
    assert codes(merge(records, newcomer(comes), BOOT, LATER)) == codes(records)
    assert "Newcomer" in codes(merge(full(comes), (*seen(full(comes)), *newcomer(there)), BOOT, LATER))


def test_a_flood_of_codes_of_one_device_pushes_no_other_device_out() -> None:
    others = [record("XID31", device=f"0000:{at:02x}:00.0", severity="Info") for at in range(8)]
    flood = tuple(observed(f"XID{number}") for number in range(10_000, 12_000))
    found = merge(others, (*seen(others), *flood), BOOT, LATER)
    assert set(others) <= set(found)
    assert len(found) <= MAX_FAULTS
    assert merge(found, (*seen(others), *flood), BOOT, after(900)) == found, "the next look changes nothing"


def test_a_flood_of_devices_with_one_code_leaves_room_for_other_codes() -> None:
    others = [record(f"XID{at}", severity="Degraded") for at in range(4)]
    flood = tuple(observed("XID79", device=f"0000:{at:02x}:00.0") for at in range(200))
    found = merge(others, (*seen(others), *flood, observed("KernelBug", component="Kernel", device="")), BOOT, LATER)
    assert codes(others) | {"KernelBug"} <= codes(found)
    assert merge(found, (*seen(others), *flood), BOOT, after(900))


def test_a_device_that_has_its_share_keeps_its_worst_faults() -> None:
    of_others = [
        record(f"Other{at}", component="Disk", device=f"nvme{at}", severity="Info")
        for at in range(MAX_FAULTS - MOST_OF_DEVICE)
    ]
    of_device = [record(f"XID{at}", severity="Info") for at in range(MOST_OF_DEVICE)]
    found = merge((*of_device, *of_others), (*seen([*of_others, *of_device]), observed("XID79")), BOOT, LATER)
    assert codes(found) >= codes(of_others) | {"XID79"}
    assert sum(each.device == GPU for each in found) == MOST_OF_DEVICE


FAULTS = st.builds(
    lambda code, device, severity, count: observed(
        f"Code{code}", device=f"dev{device}", severity=severity, count=count
    ),
    st.integers(0, 40),
    st.integers(0, 20),
    st.sampled_from(SEVERITIES),
    st.one_of(st.none(), st.integers(1, 5)),
)


@given(st.lists(st.tuples(st.lists(FAULTS, max_size=60), st.sampled_from((BOOT, OTHER_BOOT))), max_size=6))
def test_whatever_is_reported_records_are_bounded_named_once_and_settled(rounds: list[Any]) -> None:
    records: tuple[FaultRecord, ...] = ()
    for number, (reported, boot) in enumerate(rounds):
        before = records
        records = merge(records, reported, boot, after(number * 60))
        assert len(records) <= MAX_FAULTS
        assert max(Counter(each.key for each in records).values(), default=1) == 1
        if len(before) + len(reported) <= MAX_FAULTS:
            assert {each.key for each in before} <= {each.key for each in records}, "nothing leaves while there is room"
        settled = merge(records, reported, boot, after(number * 60 + 1))
        assert merge(settled, reported, boot, after(number * 60 + 2)) == settled, "no write without end"


def test_the_order_of_a_report_does_not_decide_who_stays_among_severities() -> None:
    reported = [observed(f"Code{at}", device=f"d{at}", severity=SEVERITIES[at % 3]) for at in range(60)]
    kept = set()
    for seed in range(5):
        random.Random(seed).shuffle(reported)
        found = merge((), reported, BOOT, NOON)
        kept.add(tuple(sorted(Counter(each.severity for each in found).items())))
    assert kept == {(("Critical", 20), ("Degraded", 12))}
    assert MOST_OF_CODE < MAX_FAULTS
