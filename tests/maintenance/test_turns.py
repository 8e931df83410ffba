"""A request that waits for its turn: nothing is done for it but what its turn says. Each row is a sentence."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from provisioner.api.machinery.codec import to_json
from provisioner.api.machinery.meta import rfc3339, rfc3339_micro
from provisioner.api.nodes.contract import HOLD_REQUESTED
from provisioner.api.nodes.maintenance import DISTURBING_PHASES, RELEASE_FINALIZER, Requestor, SlurmDrain, TimelineEntry
from provisioner.api.pools.pool_settings import JobSettings, SlurmJobs
from provisioner.jobs.model.work import Work
from provisioner.maintenance.decide import decide, needs_look
from provisioner.maintenance.model.budget import Budget, part_of
from provisioner.maintenance.model.facts import MaintenanceFacts
from provisioner.maintenance.model.node_refusals import NodeWriteRefusal
from provisioner.maintenance.model.steps import (
    CloseSlurm,
    NeedBudget,
    ReopenSlurm,
    SetIntent,
    SetTaint,
    Step,
    Wait,
    WriteStatus,
)
from provisioner.maintenance.phases.claiming import decide_claiming, decide_draining
from provisioner.maintenance.phases.ends import find_end
from provisioner.maintenance.phases.kept_drain import decide_kept
from provisioner.maintenance.phases.rebooting import decide_rebooting
from provisioner.maintenance.phases.staging import stage_intent
from provisioner.maintenance.phases.waiting import (
    LONGEST_LOOK_SECONDS,
    UNTURNED_LOOK_SECONDS,
    decide_behind,
    decide_waiting,
)
from provisioner.maintenance.requests.effective import effective, may_interrupt, protected_jobs
from provisioner.maintenance.status.record import judge, note
from provisioner.rules.requests import merge
from tests.boot import objects
from tests.maintenance.fake_jobs import job
from tests.maintenance.samples import NOON, maintenance, requestor
from tests.maintenance.situations import BOOT, DIGEST, NODE, attempt, facts, later, node, server

OURS = f"{NODE}-1"
IMAGE = objects.image().name
FREE = Budget(allowed=1, taken=(), fresh=True)
DRAIN = SlurmDrain(node=NODE, reason=f"provisioner: {OURS}", node_pool_ref="gpu")
ALICE = requestor(requested_time=rfc3339(NOON))
HELD = ({"type": HOLD_REQUESTED, "status": "True"},)


def rollout(turn: Any = "Waits", **more: Any) -> Requestor:
    given: dict[str, Any] = {
        "name": "rollout",
        "action": "Reimage",
        "image_ref": IMAGE,
        "message": "two racks come first",
        "requested_time": rfc3339(NOON),
        **more,
    }
    return Requestor(turn=turn, **given)


def pool(**settings: Any) -> Any:
    found = objects.pool(jobs=JobSettings(slurm=SlurmJobs(url="http://slurm", credentials_name="slurm")))
    return replace(
        found, spec=replace(found.spec, maintenance=replace(found.spec.maintenance, kexec_models=("*",), **settings))
    )


def waiting(*requestors: Requestor, status: dict[str, Any] | None = None, **changes: Any) -> MaintenanceFacts:
    """Where everybody has been written down already, so that what is done next is told."""
    given = facts(*requestors, status=status, **{"pool": pool(), **changes})
    step = decide_waiting(given, later(1))
    return with_status(given, step.status) if told(step) == "WriteStatus" else given


def with_status(given: MaintenanceFacts, status: Any) -> MaintenanceFacts:
    m = replace(given.maintenance, status=status)
    return replace(given, maintenance=m, wanted=merge(m))


def with_turn(given: MaintenanceFacts, *requestors: Requestor) -> MaintenanceFacts:
    """The same, once the requestors have written that, and it is on record."""
    spec = replace(given.maintenance.spec, requestors=requestors)
    m = replace(given.maintenance, spec=spec)
    given = replace(given, maintenance=m, wanted=merge(m))
    step = decide_waiting(given, later(2))
    return (
        with_status(given, step.status) if isinstance(step, WriteStatus) and step.status.phase == "Waiting" else given
    )


def noted(given: MaintenanceFacts, *reasons: str) -> MaintenanceFacts:
    status = given.maintenance.status
    for reason in reasons:
        status = note(status, later(1), reason, "…")
    return with_status(given, status)


def told(step: Step) -> str:
    """A step in one word."""
    match step:
        case SetTaint(value=None):
            return "taint off"
        case SetTaint(effect=effect):
            return effect
        case WriteStatus(status=status) if status.phase in DISTURBING_PHASES:
            return "claimed"
        case _:
            return type(step).__name__


def closed(*requestors: Requestor, effect: str = "NoSchedule", **changes: Any) -> MaintenanceFacts:
    """On whose server the taint is; closed in Slurm, too, unless the effect is another."""
    strict = effect == "NoSchedule"
    given = waiting(*requestors, node=node(taint=OURS, effect=effect), **changes)
    if not strict:
        return given
    status = replace(given.maintenance.status, slurm=DRAIN)
    return noted(with_status(given, status), "Closed")


# What is waited for


@pytest.mark.parametrize("turn", ["Waits", "Steered", "Closed"])
def test_a_request_waits_for_its_turn_and_for_nothing_else(turn: Any) -> None:
    given = facts(rollout(turn), work=Work(jobs=(job(),)), budget=FREE)
    step = decide_waiting(given, later(60))
    assert isinstance(step, WriteStatus)
    found = step.status
    assert [(b.kind, b.name, b.message) for b in found.blockers] == [("Rollout", "rollout", "two racks come first")]
    assert (found.phase, found.action, found.policy, found.image_ref) == (
        "Waiting",
        "Reimage",
        "WhenIdle",
        IMAGE,
    )
    assert found.next_step == "is claimed when its turn has come"


def test_without_words_of_its_own_it_is_said_whose_turn_is_waited_for() -> None:
    step = decide_waiting(facts(rollout(message=None)), later(60))
    assert isinstance(step, WriteStatus)
    assert "rollout takes few servers at a time" in step.status.blockers[0].message


def test_it_is_looked_at_again_only_after_a_long_time_and_costs_no_look_at_jobs_or_budget() -> None:
    given = waiting(rollout())
    assert decide_waiting(given, later(60)) == Wait(seconds=UNTURNED_LOOK_SECONDS)
    assert not needs_look(given)
    assert needs_look(waiting(rollout("Granted")))
    assert needs_look(waiting(rollout(), ALICE)), "somebody else is heard"
    begun = facts(rollout(), status={"phase": "Rebooting", "reboot": attempt()})
    assert needs_look(begun), "what has begun goes on, whoever takes its turn back"


def test_what_the_api_server_refused_meanwhile_is_tried_again_within_a_minute() -> None:
    refusal = NodeWriteRefusal(words="webhook is away", since=NOON, again=later(90))
    given = replace(waiting(rollout("Steered", staging="Later")), refused={"Taint": refusal})
    assert decide_waiting(given, later(60)) == Wait(seconds=LONGEST_LOOK_SECONDS)
    assert isinstance(decide_waiting(given, later(91)), SetTaint)


def test_who_waits_for_a_turn_is_not_counted_among_those_who_wait_for_the_budget() -> None:
    for given in (waiting(rollout()), behind(rollout())):
        assert part_of({"status": to_json(given.maintenance.status)}) is None


def behind(*requestors: Requestor, ahead: Any = None, **changes: Any) -> MaintenanceFacts:
    """A second Maintenance holds the server."""
    given = facts(*requestors, **{"pool": pool(), **changes}, ahead=ahead or maintenance(2, ALICE, phase="Waiting"))
    step = decide_behind(given, later(1))
    assert isinstance(step, WriteStatus)
    return with_status(given, step.status)


def test_a_turn_that_has_come_is_claimed_as_any_other() -> None:
    given = facts(rollout("Granted"), node=node(kexec=False), budget=FREE)
    assert told(decide_waiting(given, later(60))) == "claimed"
    assert isinstance(decide_waiting(replace(given, budget=None), later(60)), NeedBudget)
    busy = decide_waiting(replace(given, work=Work(jobs=(job(),))), later(60))
    assert isinstance(busy, WriteStatus)
    assert [b.kind for b in busy.status.blockers] == ["Pod"]


def test_a_server_that_was_excluded_after_its_turn_had_come_is_not_claimed_for_it() -> None:
    """Whoever leads the rollouts may be away, and withdraws it only then."""
    follows, free = server(), {"node": node(kexec=False), "budget": FREE}
    excluded = replace(follows, spec=replace(follows.spec, upgrades="Excluded"))
    step = decide_waiting(facts(rollout("Granted"), server=excluded, **free), later(60))
    assert isinstance(step, WriteStatus)
    assert [(b.kind, b.name) for b in step.status.blockers] == [("Server", NODE)]
    assert "is excluded from rollouts" in step.status.blockers[0].message
    assert told(decide_waiting(facts(ALICE, server=excluded, **free), later(60))) == "claimed", "as a person asked"


def test_an_administrators_reboot_beside_it_boots_the_assigned_image() -> None:
    assigned = server(assigned_image_ref="assigned")
    given = facts(ALICE, rollout("Closed", image_ref="new"), server=assigned, image=None)
    assert given.image_name == "assigned"
    status = effective(given, later(1))
    assert (status.action, status.image_ref) == ("Reboot", "assigned")


# Nobody is interrupted or warned


def test_nobody_is_interrupted_by_a_deadline_whose_turn_has_not_come() -> None:
    late = rollout("Closed", policy="Deadline", deadline_time=rfc3339(later(30)))
    given = waiting(late, status={"warned_time": rfc3339_micro(later(1))}, work=Work(jobs=(job(),)))
    assert not may_interrupt(given, later(9000))
    assert protected_jobs(given, later(9000)) == given.work.jobs if given.work else ()
    step = decide_waiting(closed(late, work=Work(jobs=(job(),))), later(9000))
    assert not isinstance(step, Wait) or step.warn is None


def test_who_loses_a_turn_warns_anew_when_it_comes_again() -> None:
    late = rollout("Granted", policy="Deadline", deadline_time=rfc3339(later(30)))
    warned = {"warned_time": rfc3339_micro(later(1)), "deadline_time": rfc3339(later(30))}
    assert effective(facts(late, status=warned), later(2)).warned_time is not None
    assert effective(facts(replace(late, turn="Waits"), status=warned), later(2)).warned_time is None


# Ends


@pytest.mark.parametrize("phase", ["Claiming", "Draining", "Drained"])
def test_a_turn_that_is_taken_back_after_the_claim_lets_go_of_the_server(phase: Any) -> None:
    given = facts(rollout("Waits"), status={"phase": phase, "node_uid": "uid-node"})
    end = find_end(given)
    assert end is not None
    assert end[0] == "NotItsTurn"
    assert "rollout" in end[1]
    step = decide(replace(given, maintenance=replace(given.maintenance, metadata=finalized(given))), later(5))
    assert isinstance(step, WriteStatus)
    judged = replace(with_status(given, step.status), node=node(taint=OURS))
    assert told(decide(judged, later(6))) == "taint off"
    over = decide(replace(judged, node=node()), later(7))
    assert isinstance(over, WriteStatus)
    assert over.status.phase == "Waiting"
    assert over.status.claimed_time is None


def finalized(given: MaintenanceFacts) -> Any:
    return replace(given.maintenance.metadata, finalizers=(RELEASE_FINALIZER,))


def test_a_reboot_that_was_begun_is_carried_to_its_end_though_the_turn_is_taken_back() -> None:
    given = facts(rollout("Waits"), status={"phase": "Rebooting", "node_uid": "uid-node", "reboot": attempt()})
    assert find_end(given) is None


def test_it_does_not_end_for_want_of_somebody_who_asks() -> None:
    assert find_end(waiting(rollout())) is None
    assert find_end(waiting(rollout("Closed"))) is None


def test_who_drained_it_and_lets_go_leaves_it_to_the_next_turn() -> None:
    given = facts(rollout(), status={"phase": "Drained", "action": "Drain", "node_uid": "uid-node"})
    end = find_end(given)
    assert end is not None
    assert end[0] == "NotItsTurn"
    kept = facts(rollout(action="Drain", image_ref=None), status={"phase": "Drained", "boot_id_after": BOOT})
    end = find_end(kept)
    assert end is not None
    assert end[0] == "Booted"


def done(image: str = IMAGE) -> Any:
    """An earlier Maintenance, over a minute after noon, that booted the image."""
    boot = attempt(image_ref=image, outcome="Booted", began=20)
    return maintenance(
        9, phase="Completed", finished_time=rfc3339_micro(later(60)), claimed_time=rfc3339(later(10)), reboot=boot
    )


@pytest.mark.parametrize(
    ("sentence", "others", "image", "ends"),
    [
        ("what it waits for was done", (), IMAGE, True),
        ("another image was booted", (), "another", False),
        ("of two images that are waited for one was booted", (rollout(name="b", image_ref="b"),), IMAGE, False),
    ],
)
def test_it_is_done_before_its_turn_only_if_that_was_done(
    sentence: str, others: tuple[Requestor, ...], image: str, ends: bool
) -> None:
    end = find_end(facts(rollout(), *others, finished=(done(image),)))
    assert (end is not None and end[0] == "DoneBefore") is ends, sentence


# Closing


ROWS: dict[str, tuple[MaintenanceFacts, str]] = {
    "Waits does nothing": (waiting(rollout()), "Wait"),
    "Steered puts on the taint that asks for others first": (waiting(rollout("Steered")), "PreferNoSchedule"),
    "and does not drain it in Slurm": (
        closed(rollout("Steered", staging="Later"), effect="PreferNoSchedule"),
        "Wait",
    ),
    "Closed puts on the taint that lets nobody in": (waiting(rollout("Closed")), "NoSchedule"),
    "and puts on record what it drains": (waiting(rollout("Closed"), node=node(taint=OURS)), "WriteStatus"),
    "before it drains it in Slurm": (
        waiting(rollout("Closed"), node=node(taint=OURS), status={"slurm": DRAIN}),
        "CloseSlurm",
    ),
    "and that once": (closed(rollout("Closed", staging="Later")), "Wait"),
    "a taint of another Maintenance becomes its own": (
        waiting(rollout("Closed"), node=node(taint="r01-u01-9")),
        "NoSchedule",
    ),
    "one that was steered is closed": (
        waiting(rollout("Closed"), node=node(taint=OURS, effect="PreferNoSchedule")),
        "NoSchedule",
    ),
    "one that was closed is steered": (
        closed(rollout("Steered")),
        "PreferNoSchedule",
    ),
    "and opened in Slurm": (
        replace(closed(rollout("Steered")), node=node(taint=OURS, effect="PreferNoSchedule")),
        "ReopenSlurm",
    ),
    "a turn that is taken back takes the taint off": (closed(rollout("Waits")), "taint off"),
    "then the drain": (replace(closed(rollout("Waits")), node=node()), "ReopenSlurm"),
    "the entry of an administrator beside it opens nothing": (
        closed(rollout("Closed"), ALICE, work=Work(jobs=(job(),))),
        "SetIntent",
    ),
    "with the entry gone it is opened": (closed(ALICE, work=Work(jobs=(job(),))), "taint off"),
    "a turn that has come keeps it closed": (
        closed(rollout("Granted"), work=Work(jobs=(job(),))),
        "SetIntent",
    ),
    "and closes what was not": (waiting(rollout("Granted"), work=Work(jobs=(job(),))), "NoSchedule"),
    "one that is held is opened: nobody could claim it": (
        replace(closed(rollout("Closed")), node=node(taint=OURS, conditions=HELD)),
        "taint off",
    ),
    "nor is one closed whose image is not there": (waiting(rollout("Closed"), image=None), "Wait"),
    "a pool that closes what is planned leaves open what waits for its turn": (
        waiting(rollout("Waits"), pool=pool(cordon="WhenPlanned")),
        "Wait",
    ),
    "what an administrator plans there is closed": (
        waiting(rollout("Waits"), ALICE, pool=pool(cordon="WhenPlanned"), work=Work(jobs=(job(),))),
        "NoSchedule",
    ),
}


SOON, LATE = later(600), later(7200)
RESERVED = replace(DRAIN, reserved_time=rfc3339(LATE))


def reserved(*requestors: Requestor, at: datetime = LATE, **changes: Any) -> MaintenanceFacts:
    """On whose server the taint is, and which is reserved in Slurm from then on."""
    given = waiting(*requestors, node=node(taint=OURS), **changes)
    status = replace(given.maintenance.status, slurm=replace(DRAIN, reserved_time=rfc3339(at)))
    return with_status(given, note(status, later(1), "Reserved", "…", about=(rfc3339(at),)))


def with_slurm(given: MaintenanceFacts, record: SlurmDrain) -> MaintenanceFacts:
    return with_status(given, replace(given.maintenance.status, slurm=record))


def closes_at(moment: datetime, **more: Any) -> Requestor:
    return rollout("Closed", closing_time=rfc3339(moment), **{"staging": "Later", **more})


RESERVES: dict[str, tuple[MaintenanceFacts, str]] = {
    "Closed for later puts on the taint that lets no pod in, as there is none for later": (
        waiting(closes_at(LATE)),
        "NoSchedule",
    ),
    "and puts on record what it reserves": (waiting(closes_at(LATE), node=node(taint=OURS)), "WriteStatus"),
    "before it reserves it": (
        waiting(closes_at(LATE), node=node(taint=OURS), status={"slurm": RESERVED}),
        "ReserveSlurm",
    ),
    "and that once": (reserved(closes_at(LATE)), "Wait"),
    "another moment is put on record first, too": (reserved(closes_at(SOON)), "WriteStatus"),
    "then it is moved": (with_slurm(reserved(closes_at(LATE), at=SOON), RESERVED), "ReserveSlurm"),
    "what was drained is reserved instead": (closed(closes_at(LATE)), "WriteStatus"),
    "Closed at once drains it": (reserved(rollout("Closed")), "CloseSlurm"),
    "so does a moment that has come": (reserved(closes_at(later(59)), at=later(59)), "CloseSlurm"),
    "what is drained at its begin stays so": (noted(reserved(closes_at(later(59)), at=later(59)), "Closed"), "Wait"),
    "Slurm that does not reserve has drained it, and is asked no more": (
        noted(closed(closes_at(LATE)), "NotReserved"),
        "Wait",
    ),
    "a turn that has come drains it": (reserved(rollout("Granted"), work=Work(jobs=(job(),))), "CloseSlurm"),
    "one who closes it at once beside it drains it": (
        reserved(closes_at(LATE), rollout("Closed", name="other", staging="Later")),
        "CloseSlurm",
    ),
    "a pool that closes what is planned drains it for an administrator": (
        reserved(closes_at(LATE), ALICE, pool=pool(cordon="WhenPlanned"), work=Work(jobs=(job(),))),
        "CloseSlurm",
    ),
    "one that is not verified is drained": (
        replace(reserved(closes_at(LATE)), server=server(verified="False")),
        "CloseSlurm",
    ),
    "a turn that is taken back takes the taint off": (reserved(rollout("Waits")), "taint off"),
    "then drain and reservation": (replace(reserved(rollout("Waits")), node=node()), "ReopenSlurm"),
    "a moment that nobody will live to see drains it": (
        waiting(closes_at(datetime.max.replace(tzinfo=UTC)), node=node(taint=OURS), status={"slurm": DRAIN}),
        "CloseSlurm",
    ),
    "a pool without Slurm has the taint alone": (
        noted(waiting(closes_at(LATE), node=node(taint=OURS), pool=objects.pool()), "Closed"),
        "Wait",
    ),
}


@pytest.mark.parametrize("sentence", RESERVES)
def test_a_server_that_closes_later_is_reserved(sentence: str) -> None:
    given, expected = RESERVES[sentence]
    assert told(decide_waiting(given, later(60))) == expected


def test_what_is_reserved_is_looked_at_again_when_it_begins() -> None:
    assert decide_waiting(reserved(closes_at(later(160)), at=later(160)), later(60)) == Wait(seconds=100)
    assert decide_waiting(reserved(closes_at(LATE)), later(60)) == Wait(seconds=3600)


def test_what_is_on_record_as_reserved_is_deleted_with_the_drain_whenever_it_ends() -> None:
    expected = ReopenSlurm(node=NODE, reason=DRAIN.reason, reserved=True)
    assert decide_waiting(replace(reserved(rollout("Waits")), node=node()), later(60)) == expected
    withdrawn = replace(reserved(rollout("Closed")), node=node(), wanted=None)
    withdrawn = with_status(withdrawn, judge(withdrawn.maintenance, "Withdrawn", "nobody asks", later(5)))
    assert decide(withdrawn, later(6)) == expected
    ended = facts(status={"phase": "Completed", "slurm": RESERVED}, pool=pool())
    assert decide_kept(ended, later(9)) == expected
    held = noted(behind(closes_at(LATE), status={"slurm": RESERVED}), "Reserved")
    assert decide_behind(held, later(9)) == expected


def test_a_claim_keeps_what_is_reserved_on_record_for_its_release() -> None:
    given = reserved(rollout("Granted"), closes_at(LATE, name="other"), budget=FREE)
    given = replace(given, node=node(taint=OURS, kexec=False))
    step = decide_waiting(noted(given, "Closed"), later(60))
    assert isinstance(step, WriteStatus)
    assert (step.status.phase, step.status.slurm) == ("Claiming", RESERVED)


def test_a_node_in_its_maintenance_reservation_is_drained_by_the_claim_as_any_other() -> None:
    for state, expected in (("IDLE+MAINTENANCE+RESERVED", "CloseSlurm"), ("IDLE+DRAIN+MAINTENANCE+RESERVED", "Wait")):
        given = reserved(rollout("Granted"), work=Work(slurm_state=state))
        status = replace(given.maintenance.status, phase="Draining", node_uid="uid-node", claimed_time=rfc3339(NOON))
        given = with_status(given, note(status, later(1), "DrainStarted", "…"))
        step = decide_draining(replace(given, work=Work(slurm_state=state, evictable=("ns/pod",))), later(60))
        assert told(step) == expected.replace("Wait", "Evict")


@pytest.mark.parametrize("sentence", ROWS)
def test_the_server_is_closed_as_the_turn_says(sentence: str) -> None:
    given, expected = ROWS[sentence]
    assert told(decide_waiting(given, later(60))) == expected


def test_one_that_was_opened_again_is_drained_in_slurm_once_more() -> None:
    given = noted(closed(rollout("Closed")), "Reopened")
    given = with_status(given, replace(given.maintenance.status, slurm=DRAIN))
    assert isinstance(decide_waiting(given, later(60)), CloseSlurm)


def test_a_server_that_is_not_verified_stays_drained_in_slurm_when_the_turn_is_taken_back() -> None:
    given = replace(closed(rollout("Waits")), node=node(), server=server(verified="False"))
    assert decide_waiting(given, later(60)) == Wait(seconds=UNTURNED_LOOK_SECONDS)


def test_where_somebody_else_had_drained_it_that_it_is_open_is_put_on_record() -> None:
    given = replace(closed(rollout("Waits")), node=node())
    given = with_status(given, replace(given.maintenance.status, slurm=None))
    assert decide_waiting(given, later(60)) == ReopenSlurm(node=NODE, reason=DRAIN.reason)
    assert decide_waiting(noted(given, "Reopened"), later(60)) == Wait(seconds=UNTURNED_LOOK_SECONDS)


def test_a_claim_closes_a_server_that_jobs_were_only_steered_away_from() -> None:
    given = facts(rollout("Granted"), node=node(taint=OURS, effect="PreferNoSchedule"), budget=FREE, pool=pool())
    given = with_status(given, replace(given.maintenance.status, phase="Claiming", node_uid="uid-node"))
    assert told(decide_claiming(given, later(5))) == "NoSchedule"
    rebooting = with_status(given, replace(given.maintenance.status, phase="Rebooting", reboot=attempt()))
    step = decide_rebooting(rebooting, later(5))
    assert isinstance(step, WriteStatus), "what it waits for is put on record"
    assert told(decide_rebooting(with_status(rebooting, step.status), later(5))) == "NoSchedule"


# Back to waiting


@pytest.mark.parametrize(
    ("turn", "steps"),
    [
        ("Granted", ["WriteStatus"]),
        ("Closed", ["WriteStatus"]),
        ("Steered", ["PreferNoSchedule", "ReopenSlurm", "WriteStatus"]),
        ("Waits", ["taint off", "ReopenSlurm", "WriteStatus"]),
    ],
)
def test_a_claim_that_goes_back_to_waiting_leaves_the_server_as_the_turn_says(turn: Any, steps: list[str]) -> None:
    given = facts(rollout(turn), ALICE, node=node(taint=OURS), pool=pool())
    status = replace(
        given.maintenance.status, phase="Draining", slurm=DRAIN, node_uid="uid-node", claimed_time=rfc3339(NOON)
    )
    given = with_status(given, judge(with_status(given, status).maintenance, "JobStarted", "one slipped in", later(5)))
    seen = []
    for _ in range(6):
        step = decide(given, later(6))
        seen.append(told(step))
        if isinstance(step, SetTaint):
            given = replace(given, node=node(taint=step.value, effect=step.effect) if step.value else node())
        elif isinstance(step, ReopenSlurm):
            given = noted(with_status(given, replace(given.maintenance.status, slurm=None)), "Reopened")
        else:
            break
    assert seen == steps
    assert isinstance(step, WriteStatus)
    assert step.status.phase == "Waiting"


def test_one_that_is_withdrawn_leaves_nothing_behind() -> None:
    for effect in ("NoSchedule", "PreferNoSchedule"):
        given = facts(node=node(taint=OURS, effect=effect), pool=pool(), wanted=None)
        given = with_status(given, judge(given.maintenance, "Withdrawn", "nobody asks", later(5)))
        assert told(decide(given, later(6))) == "taint off"


# Behind another Maintenance


def test_a_drain_of_ones_own_is_lifted_when_who_holds_the_server_has_jobs_come() -> None:
    """Else the server would be open to pods and closed to Slurm's jobs for as long as that one waits."""
    given = noted(behind(rollout("Closed"), status={"slurm": DRAIN}), "Closed")
    assert decide_behind(given, later(9)) == ReopenSlurm(node=NODE, reason=DRAIN.reason)
    for ahead in (
        maintenance(2, rollout("Closed"), ALICE, phase="Waiting"),
        maintenance(2, ALICE, phase="Draining"),
    ):
        given = noted(behind(rollout("Closed"), status={"slurm": DRAIN}, ahead=ahead), "Closed")
        assert isinstance(decide_behind(given, later(9)), Wait)


def test_behind_another_a_turn_is_waited_for_only_where_nobody_else_asks() -> None:
    for requestors, kinds in (((rollout(),), ["Maintenance", "Rollout"]), ((ALICE, rollout()), ["Maintenance"])):
        assert [each.kind for each in behind(*requestors).maintenance.status.blockers] == kinds


def test_a_drain_that_outlived_its_maintenance_stays_while_a_turn_closes_the_server() -> None:
    ended = facts(status={"phase": "Completed", "slurm": DRAIN}, pool=pool())
    assert isinstance(decide_kept(ended, later(9)), ReopenSlurm)
    assert isinstance(decide_kept(replace(ended, ahead=maintenance(2, rollout())), later(9)), ReopenSlurm)
    assert decide_kept(replace(ended, ahead=maintenance(2, rollout("Closed"))), later(9)) is None


# Staging


@pytest.mark.parametrize(
    ("turn", "staging", "stages"),
    [
        ("Waits", None, False),
        ("Waits", "Now", False),
        ("Steered", None, True),
        ("Closed", "Now", True),
        ("Closed", "Later", False),
        ("Granted", "Later", True),
        (None, "Later", True),
    ],
)
def test_the_image_is_fetched_ahead_for_those_whose_turn_is_near(turn: Any, staging: Any, stages: bool) -> None:
    intent = stage_intent(facts(rollout(turn, staging=staging)))
    assert (intent is not None) is stages
    assert intent is None or intent.image_digest == DIGEST


def test_what_the_agent_fetches_follows_who_is_heard() -> None:
    ours = rollout("Closed")
    fetched = stage_intent(facts(ours))
    assert fetched is not None
    told_of_it = replace(closed(ours), node=node(taint=OURS, intent=fetched))
    assert decide_waiting(told_of_it, later(60)) == Wait(seconds=UNTURNED_LOOK_SECONDS)
    other = objects.image("other", digest="sha256:" + "ef" * 32)
    joined = with_turn(
        replace(told_of_it, image=other, work=Work(jobs=(job(),)), server=server(assigned_image_ref="other")),
        ours,
        ALICE,
    )
    step = decide_waiting(joined, later(60))
    assert isinstance(step, SetIntent)
    assert step.intent is not None
    assert step.intent.image_digest == other.spec.digest, "the administrator's reboot boots the assigned image"
    back = replace(told_of_it, node=node(intent=fetched))
    back = with_turn(back, rollout("Waits"))
    back = with_status(back, replace(back.maintenance.status, slurm=None))
    back = noted(back, "Reopened")
    assert decide_waiting(back, later(60)) == SetIntent(intent=None)
    granted = replace(facts(rollout("Granted"), pool=pool()), node=node(taint=OURS, intent=fetched))
    assert stage_intent(granted) == fetched, "what was fetched before the turn is what is booted in it"


# The record


def test_a_move_of_the_turn_is_on_record_and_new_words_are_not() -> None:
    def reasons(given: MaintenanceFacts) -> list[str]:
        return [e.reason for e in given.maintenance.status.timeline]

    given = waiting(rollout())
    assert reasons(given) == ["Requested"]
    assert reasons(with_turn(given, rollout(message="one rack comes first"))) == ["Requested"]
    moved = with_turn(given, rollout("Closed"))
    assert reasons(moved) == ["Requested", "RequestChanged"]
    last: TimelineEntry = moved.maintenance.status.timeline[-1]
    assert "turn Closed" in last.message
