"""Which Maintenance takes a request, as a table: the same for a person's command and for a Node's condition."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from provisioner.api.machinery.conditions import find_condition
from provisioner.api.machinery.meta import parse_time
from provisioner.api.nodes.maintenance import Maintenance, Requestor, holding_maintenance
from provisioner.maintenance.status.record import judge
from provisioner.rules.requests import MAX_REQUESTORS, is_open, is_same, merge, place
from tests.maintenance.samples import NOON, at, maintenance, requestor
from tests.maintenance.situations import attempt

ALICE = requestor("user-alice", "Reimage", requested_time=at(60))
BOB = requestor("user-bob")
SERVER = maintenance(1).spec.server_ref
BOB_A, BOB_B = replace(BOB, image_ref="a"), replace(BOB, image_ref="b")
IMAGE_A, IMAGE_B = replace(ALICE, image_ref="a"), replace(ALICE, image_ref="b")
WAITS_B = requestor("rollout", "Reimage", image_ref="b", turn="Closed")
GRANTED_B = replace(WAITS_B, turn="Granted")
CLOSES_LATER = replace(WAITS_B, closing_time=at(900))
URGENT_B = replace(WAITS_B, policy="Deadline", deadline_time=at(1))


def judged(m: Maintenance) -> Maintenance:
    status = judge(m, "Withdrawn", "nobody asks", NOON)
    assert find_condition(status.conditions, "Succeeded") is not None
    return replace(m, status=status)


def going(m: Maintenance) -> Maintenance:
    return replace(m, metadata=replace(m.metadata, deletion_timestamp=at(30)))


FULL = maintenance(1, *(requestor(f"rollout-{n}") for n in range(MAX_REQUESTORS)))


@pytest.mark.parametrize(
    ("sentence", "there", "wanted", "goes_to", "joined", "misplaced"),
    [
        ("the first one makes a Maintenance", [], ALICE, 1, False, []),
        ("it joins one that waits", [maintenance(1, BOB)], ALICE, 1, True, []),
        ("of two the older", [maintenance(2, BOB), maintenance(1, BOB)], ALICE, 1, True, []),
        ("where its asker is already", [maintenance(1, BOB), maintenance(2, BOB, ALICE)], ALICE, 2, True, []),
        ("not one that has ended", [maintenance(1, BOB, phase="Completed")], ALICE, 2, False, []),
        ("not one that has begun to reboot", [maintenance(1, BOB, reboot=attempt())], ALICE, 2, False, []),
        ("not one whose end is decided", [judged(maintenance(1, BOB))], ALICE, 2, False, []),
        ("not one that is being deleted", [going(maintenance(1, BOB))], ALICE, 2, False, []),
        ("not one that is full", [FULL], ALICE, 2, False, []),
        ("not one that boots another image", [maintenance(1, BOB_B)], IMAGE_A, 2, False, []),
        ("one that boots the same", [maintenance(1, BOB_A)], IMAGE_A, 1, True, []),
        ("one that boots any, with no wish of its own", [maintenance(1, BOB_A)], ALICE, 1, True, []),
        ("one that waits for its turn, whatever image", [maintenance(1, WAITS_B)], IMAGE_A, 1, True, []),
        ("not one that has its turn to boot another", [maintenance(1, GRANTED_B)], IMAGE_A, 2, False, []),
        ("who waits for a turn joins whatever is booted", [maintenance(1, BOB_A)], WAITS_B, 1, True, []),
        ("who has it does not", [maintenance(1, BOB_A)], GRANTED_B, 2, False, []),
        ("its asker may change the image", [maintenance(1, IMAGE_B)], IMAGE_A, 1, False, []),
        ("and leaves one where others want that one", [maintenance(1, BOB_B, IMAGE_B)], IMAGE_A, 2, False, [1]),
    ],
)  # fmt: skip
def test_a_request_goes_to(
    sentence: str, there: list[Any], wanted: Any, goes_to: int, joined: bool, misplaced: list[int]
) -> None:
    others = [replace(m, spec=replace(m.spec, server_ref="another")) for m in there]
    for known in (there, [*reversed(there)], [*others, *there]):
        placed = place(known, SERVER, wanted)
        assert placed.name == f"{SERVER}-{goes_to}", sentence
        assert placed.joined is joined, sentence
        assert [m.name for m in placed.misplaced] == [f"{SERVER}-{number}" for number in misplaced], sentence
        assert placed.entry == wanted


def test_what_is_asked_for_again_in_the_same_words_keeps_its_time() -> None:
    before = replace(ALICE, requested_time=at(0))
    assert place([maintenance(1, before)], SERVER, ALICE).entry == before
    urgent = replace(ALICE, policy="Now")
    assert place([maintenance(1, before)], SERVER, urgent).entry == urgent


@pytest.mark.parametrize(
    ("sentence", "there", "holds"),
    [
        ("the older", [maintenance(2, BOB), maintenance(1, BOB)], 1),
        ("the more urgent", [maintenance(1, BOB), maintenance(2, replace(BOB, policy="Now"))], 2),
        ("one that is heard, before one that waits for its turn", [maintenance(1, WAITS_B), maintenance(2, BOB)], 2),
        ("whatever term that one would have", [maintenance(1, URGENT_B), maintenance(2, BOB)], 2),
        ("what has begun, whoever waits there", [maintenance(1, WAITS_B, phase="Rebooting"), maintenance(2, BOB)], 1),
    ],
)  # fmt: skip
def test_of_several_one_holds_the_server(sentence: str, there: list[Maintenance], holds: int) -> None:
    for known in (there, [*reversed(there)]):
        holder = holding_maintenance(known, SERVER)
        assert holder is not None
        assert holder.name == f"{SERVER}-{holds}", sentence


@pytest.mark.parametrize(
    ("sentence", "asking", "closes"),
    [
        ("nobody", [BOB], None),
        ("one for now", [WAITS_B], None),
        ("one from a moment on", [CLOSES_LATER], 900),
        ("two, the earlier one", [CLOSES_LATER, replace(CLOSES_LATER, name="c", closing_time=at(600))], 600),
        ("one of two for now", [CLOSES_LATER, replace(WAITS_B, name="c")], None),
        ("one whose turn has come beside it", [CLOSES_LATER, replace(GRANTED_B, name="c")], None),
        ("a person beside it, who closes nothing", [CLOSES_LATER, BOB], 900),
        ("another who only steers", [CLOSES_LATER, replace(WAITS_B, name="c", turn="Steered")], 900),
    ],
)
def test_a_server_closes_for_jobs_that_end_in_time_only_where_all_who_close_it_leave_them_that_time(
    sentence: str, asking: list[Requestor], closes: float | None
) -> None:
    wanted = merge(maintenance(1, *asking))
    assert wanted is not None
    assert wanted.closing_time == (None if closes is None else parse_time(at(closes))), sentence


def test_the_same_request_for_another_moment_is_another() -> None:
    assert not is_same(CLOSES_LATER, WAITS_B)
    assert is_same(CLOSES_LATER, replace(CLOSES_LATER, requested_time=at(5)))


def test_one_that_was_judged_while_a_request_was_written_does_not_hold_it() -> None:
    assert is_open(maintenance(1, ALICE))
    assert not is_open(judged(maintenance(1, ALICE)))
