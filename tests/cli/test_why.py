"""`kubectl provision why` and `status`: the same objects give the same words."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from provisioner.api import Maintenance
from provisioner.api.machinery.codec import to_json
from provisioner.api.nodes.contract import HOLD_REQUESTED, NODE_FACTS_ANNOTATION
from provisioner.api.nodes.facts import NodeFacts
from provisioner.api.pools.node_pool import KubeletSettings, NodePoolStatus
from provisioner.api.pools.numa_alignment import NumaAlignment
from provisioner.api.pools.rollout_status import ReleasedImage, RolloutStatus
from provisioner.api.servers.server_status import BootOrder, CheckResult, JoinStatus, UpgradeFailure
from provisioner.cli.fleet.status_command import render_status
from provisioner.cli.kubectl.printing import WIDTH
from provisioner.cli.kubectl.targets import ServerTarget
from provisioner.cli.why.screen import render_why
from provisioner.cli.why.subject import ServerSubject
from provisioner.cluster.leadership import SERVER_GROUPS, NoLeader
from provisioner.cluster.recent_events import RecentEvents
from tests.cli.rollout_situations import an_image
from tests.cli.situations import (
    NAME,
    NOON,
    SITUATIONS,
    before,
    blocker,
    condition,
    event,
    maintenance,
    node,
    node_condition,
    requestor,
    server,
    subject,
    verification,
)
from tests.golden_files import assert_golden


@pytest.mark.parametrize("situation", SITUATIONS)
def test_golden_each_situation_is_told_on_one_screen(situation: str) -> None:
    told = render_why(SITUATIONS[situation]())
    assert_golden(f"cli/why-{situation}.txt", told)
    lines = told.splitlines()
    assert len(lines) <= 24
    assert max(len(line) for line in lines) <= WIDTH


@pytest.mark.parametrize(
    ("situation", "words"),
    [
        ("broken", "is in production; nothing is asked of it"),
        ("idle", "is in production; nothing is asked of it"),
        ("waits-for-a-job", "waits until no job runs"),
        ("deadline-announced", "in 10 min, of which its jobs were warned"),
        ("blocked-by-a-budget", "is being drained, to be reimaged into Image gpu-node-2, since 14 min"),
        ("boots-by-kexec", "boots anew into Image gpu-node-2 by kexec"),
        ("fell-back-to-reset", "by a reset of its BMC"),
        ("lost-its-image", "boots anew into Image gpu-node-2 by a reset of its BMC, once that is there, since 50 min"),
        ("failed-verification", "failed its checks before use"),
        ("held", "is held by a person"),
        ("failed-maintenance", "is not Ready (NodeNotReady)"),
        ("never-booted", "was never booted (ImageUnavailable)"),
        (
            "without-bmc-credentials",
            "is not Ready (CredentialsMissing): Secret provisioner-bmcs/r01-bmc does not exist",
        ),
    ],
)
def test_the_first_line_says_what_it_does(situation: str, words: str) -> None:
    first = " ".join(render_why(SITUATIONS[situation]()).split("\n\n")[0].split())
    assert first.startswith(f"{NAME} ")
    assert words in first


def test_nothing_is_said_to_be_asked_only_where_nothing_is() -> None:
    asked = subject(None, node(node_condition("provisioner.dev/RebootRequested", "True", "WhenIdle", "please")))
    first = " ".join(render_why(asked).partition("\n\n")[0].split())
    assert first.endswith("is in production; what its Node's conditions ask for waits to be taken up")


def test_a_refused_request_is_told_with_its_remedy() -> None:
    refused = node_condition("provisioner.dev/RequestRefused", "True", "Unreadable", "write the deadline as +2h")
    assert "refused: write the deadline as +2h" in render_why(subject(None, node(refused)))


@pytest.mark.parametrize(
    ("what", "acceptance", "credentials", "minutes", "words"),
    [
        ("noted", "Accepted", ("X509SHA256=a",), 10, None),
        ("approved a moment ago", "Accepted", (), 0, None),
        ("never noted", "Accepted", (), 10, "approved 10 min ago is not on record, so it writes nothing"),
        ("Rejected", "Rejected", ("X509SHA256=a",), 10, "is Rejected, so its certificate writes nothing"),
    ],
)
def test_a_certificate_that_does_not_count_is_told(
    what: str, acceptance: Any, credentials: tuple[str, ...], minutes: int, words: str | None
) -> None:
    join = JoinStatus(certificate_token_id="abcdef", certificate_time=before(minutes=minutes), credentials=credentials)
    made = subject(None, node())
    found = replace(
        made.server,
        spec=replace(made.server.spec, acceptance=acceptance),
        status=replace(made.server.status, join=join),
    )
    told = " ".join(render_why(replace(made, server=found)).split())
    assert words in told if words is not None else "writes nothing" not in told


def test_conditions_with_nonsense_in_them_are_no_obstacle() -> None:
    odd = {"type": "provisioner.dev/RebootRequested", "status": "True", "lastTransitionTime": "yesterday"}
    told = render_why(subject(None, node(odd, odd, {"type": "X"})))
    assert "condition provisioner.dev/RebootRequested (no reason)" in told


def test_a_condition_without_a_time_is_no_obstacle() -> None:
    """`kubectl patch` without lastTransitionTime leaves null there."""
    timeless = {"type": "provisioner.dev/ReimageRequested", "status": "True", "lastTransitionTime": None}
    told = render_why(subject(None, node(timeless)))
    assert "condition provisioner.dev/ReimageRequested (no reason)" in told


def test_what_server_and_node_are_both_told_is_shown_once() -> None:
    twice = [event("NodeHeld", "Node r01-u07 is kept out of use", minutes=3) for _ in range(2)]
    told = render_why(replace(subject(), events=RecentEvents(tuple(twice))))
    assert told.count("NodeHeld") == 1


def test_a_blocker_whose_words_begin_with_its_name_is_named_once() -> None:
    held_up = blocker("Pod", "ml/train-0", "pod ml/train-0 of Job train runs", minutes=2)
    told = render_why(subject(None, None, maintenance(blockers=(held_up,))))
    assert "waits for   pod ml/train-0 of Job train runs (since 2 min)" in told


@pytest.mark.parametrize(
    ("current", "command"),
    [
        (maintenance(blockers=(blocker("SlurmJob", "7", "runs"),)), "kubectl provision reimage r01-u07 --deadline 4h"),
        (
            maintenance(policy="Deadline", blockers=(blocker("Pod", "a/b", "runs"),)),
            "kubectl provision reimage r01-u07 --now",
        ),
        (maintenance(requestor(action="Drain"), action="Drain", phase="Drained"), "kubectl provision release r01-u07"),
        (maintenance(blockers=(blocker("Budget", "gpu", "2 of 2"),)), "kubectl provision cancel r01-u07"),
    ],
)
def test_why_says_what_one_can_do_now(current: Maintenance, command: str) -> None:
    told = render_why(subject(None, None, current))
    assert command in " ".join(told.partition("you can")[2].split())


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("Budget", "waits for a slot of its pool's budget"),
        ("Rollout", "waits for its turn"),
        ("Hold", "waits until nobody holds it"),
        ("Image", "its Image"),
    ],
)
def test_the_first_line_names_what_is_waited_for_if_it_is_no_job(kind: str, words: str) -> None:
    told = render_why(subject(None, None, maintenance(phase="Waiting", blockers=(blocker(kind, "x", "y", hours=1),))))
    assert words in " ".join(told.partition("\n\n")[0].split())


def test_why_says_when_the_checks_of_a_reimaged_node_have_failed_for_good() -> None:
    failed = CheckResult(name="GPUs", result="Failed", reason="Missing", message="7 of 8")
    found = server(verification=verification(failed, attempt=2))
    told = render_why(subject(found, None, maintenance(phase="Verifying")))
    assert "failed its checks before use: a person must act" in " ".join(told.partition("\n\n")[0].split())


def test_why_and_status_lead_with_the_cause_and_why_has_a_line_for_its_remedy() -> None:
    found = SITUATIONS["without-bmc-credentials"]()
    assert section(render_why(found), "you can").startswith("you can kubectl -n provisioner-bmcs create secret generic")
    line = render_status([ServerTarget(server=found.server, node=None)], (), NOON).splitlines()[1]
    assert "CredentialsMissing: Secret provisioner-bmcs/r01-bmc does not exist" in line


@pytest.mark.parametrize(("phase", "named"), [("Rebooting", True), ("Waiting", False)])
def test_a_maintenance_whose_boot_the_bmc_does_not_carry_out_says_why_and_what_to_do(phase: Any, named: bool) -> None:
    found = SITUATIONS["without-bmc-credentials"]()
    told = render_why(replace(found, maintenances=(maintenance(phase=phase),)))
    assert ("CredentialsMissing" in " ".join(told.partition("\n\n")[0].split())) == named
    assert ("create secret generic" in section(told, "you can")) == named


def test_what_waits_says_that_no_controller_leads_and_what_is_in_use_does_not() -> None:
    waiting = replace(SITUATIONS["without-bmc-credentials"](), no_leader=NoLeader(SERVER_GROUPS))
    told = render_why(waiting)
    assert "waits, and no controller leads: it is not Ready (CredentialsMissing)" in " ".join(told.split())
    assert section(told, "you can").startswith("you can start provisioner controller, or see why it does not lead")
    asked = node(node_condition("provisioner.dev/RebootRequested", "True", "WhenIdle", "please"))
    for busy in (subject(None, asked), subject(None, None, maintenance()), SITUATIONS["never-booted"]()):
        first = render_why(replace(busy, no_leader=NoLeader(("power",)))).partition("\n\n")[0]
        assert "waits, and no controller leads group power: it" in " ".join(first.split())
    for calm in (subject(), SITUATIONS["held"]()):
        assert render_why(replace(calm, no_leader=NoLeader(SERVER_GROUPS))) == render_why(calm)


def test_status_says_of_each_line_that_waits_that_no_controller_leads() -> None:
    targets = [
        (found.server, found.maintenances) for found in (SITUATIONS["idle"](), subject(None, None, maintenance()))
    ]
    lines = [
        render_status([ServerTarget(server=s, node=None)], ms, NOON, no_leader=NoLeader(SERVER_GROUPS)).splitlines()[1]
        for s, ms in targets
    ]
    assert ["no controller leads" in line for line in lines] == [False, True]


def test_events_that_may_not_be_read_are_said_to_be_so() -> None:
    assert "may not be read" in render_why(subject(events=None))


@pytest.mark.parametrize("wide", [False, True])
def test_golden_status_is_a_line_each(wide: bool) -> None:
    chosen: list[Callable[[], ServerSubject]] = [
        SITUATIONS[s] for s in ("idle", "waits-for-a-job", "failed-verification")
    ]
    tables = []
    for situation in chosen:
        found = situation()
        target = ServerTarget(server=found.server, node=found.node)
        tables.append(render_status([target], found.maintenances, NOON, wide=wide))
    assert_golden("cli/status-wide.txt" if wide else "cli/status.txt", "\n".join(tables))


def in_a_rollout(found: ServerSubject, **rollout: Any) -> ServerSubject:
    assert found.pool is not None
    moving = RolloutStatus(
        image_ref="gpu-node-2", previous_image_ref="gpu-node-1", started_time=before(hours=1),
        **{"message": "canary: 0 of 1 server in use with the new image", **rollout},
    )  # fmt: skip
    return replace(found, pool=replace(found.pool, status=NodePoolStatus(rollout=moving)))


def section(told: str, label: str) -> str:
    """One section of the screen, on one line."""
    lines = told.splitlines()
    first = next((n for n, line in enumerate(lines) if line.startswith(label.ljust(12))), None)
    if first is None:
        return ""
    rest = itertools.takewhile(lambda line: line.startswith(" "), lines[first + 1 :])
    return " ".join(" ".join([lines[first], *rest]).split())


TURN = blocker("Rollout", "rollout", "takes no new job, for the rollout of Image 'gpu-node-2'", minutes=9)
BY_ROLLOUT = requestor(name="rollout", user="provisioner-rollout", turn="Closed", image_ref="gpu-node-2")


def test_golden_a_server_that_waits_for_its_turn_says_what_for() -> None:
    waiting = maintenance(BY_ROLLOUT, phase="Waiting", blockers=(TURN,))
    told = render_why(in_a_rollout(subject(None, None, waiting)))
    assert_golden("cli/why-waits-for-its-rollout.txt", told)
    assert "waits for its turn in the rollout" in " ".join(told.partition("\n\n")[0].split())
    assert "takes no new job, for the rollout of Image" in section(told, "waits for")
    assert section(told, "rollout") == "", "its Maintenance has said it"
    assert "kubectl provision rollout pause gpu" in section(told, "you can")
    assert "provision cancel" not in told, "a rollout's request is nobody's to withdraw"


def test_a_server_without_a_maintenance_says_what_its_pools_rollout_waits_for() -> None:
    told = section(render_why(in_a_rollout(subject())), "rollout")
    assert told == "rollout NodePool gpu moves to Image gpu-node-2: canary: 0 of 1 server in use with the new image"


def test_a_server_that_runs_the_image_or_whose_pool_has_it_says_nothing_of_a_rollout() -> None:
    there = in_a_rollout(subject(server(image_ref="gpu-node-2")))
    over = in_a_rollout(subject(), completed_time=before(minutes=1))
    assert section(render_why(there), "rollout") == section(render_why(over), "rollout") == ""


def test_a_server_that_is_left_alone_says_by_whom_and_how_to_end_that() -> None:
    held = in_a_rollout(subject(None, node(node_condition(HOLD_REQUESTED, "True", "Held", "mine"))))
    assert "kubectl provision release r01-u07" in section(render_why(held), "rollout")
    found = server()
    excluded = in_a_rollout(subject(replace(found, spec=replace(found.spec, upgrades="Excluded"))))
    assert """kubectl patch server r01-u07 --type=merge -p '{"spec":{"upgrades":"Follow"}}'""" in section(
        render_why(excluded), "rollout"
    )


def test_a_server_that_a_person_had_boot_another_image_once_says_so_after_the_rollout_too() -> None:
    once = maintenance(requestor(image_ref="gpu-node-1"), phase="Completed")
    order = BootOrder(
        id="o1", reason="Requested", ordered_time=before(minutes=30), attempt=1, image_ref="gpu-node-1",
        maintenance_ref=once.name,
    )  # fmt: skip
    found = subject(server(order=order, assigned_image_ref="gpu-node-2"), None, once)
    told = render_why(in_a_rollout(found, completed_time=before(minutes=50)))
    assert "NodePool gpu runs Image gpu-node-2 without this server: it runs Image 'gpu-node-1' once, by" in section(
        told, "rollout"
    )
    assert "Image gpu-node-2 is assigned to it: the next boot brings it" in section(told, "boot")


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        ("Rest", "the next boot that is ordered brings Image gpu-node-2; one that nobody orders, Image gpu-node-1"),
        ("CanarySoak", ""),
    ],
)
def test_the_next_boot_is_announced_with_the_image_that_it_brings(stage: str, words: str) -> None:
    found = in_a_rollout(subject(server(assigned_image_ref="gpu-node-1")))
    assert found.pool is not None
    status = replace(
        found.pool.status,
        released=ReleasedImage(image_ref="gpu-node-2", time=before(minutes=40)),
        conditions=(condition("Progressing", "True", stage),),
    )
    told = render_why(replace(found, pool=replace(found.pool, status=status), image=an_image("gpu-node-2")))
    assert ("the next boot" in section(told, "boot"), words in section(told, "boot")) == (bool(words), True)


def test_golden_a_server_that_failed_in_a_rollout_says_with_what_and_both_ways_on() -> None:
    failure = UpgradeFailure(
        image_ref="gpu-node-2", time=before(hours=1), maintenance_ref="r01-u07-2", message="ChecksFailed: 7 of 8 GPUs"
    )
    told = render_why(in_a_rollout(subject(server(upgrade_failure=failure))))
    assert_golden("cli/why-failed-in-a-rollout.txt", told)
    words = section(told, "rollout")
    assert "failed with Image gpu-node-2, 1 h ago (Maintenance r01-u07-2): ChecksFailed: 7 of 8 GPUs" in words
    assert "kubectl provision rollout undo gpu" in words
    assert "kubectl provision rollout resume gpu" in words


def test_a_failure_with_an_image_that_is_not_wanted_any_more_needs_no_decision() -> None:
    failure = UpgradeFailure(image_ref="gpu-node-0", time=before(hours=1), message="it did not boot")
    words = section(render_why(subject(server(upgrade_failure=failure))), "rollout")
    assert "failed with Image gpu-node-0" in words
    assert "undo" not in words


@pytest.mark.parametrize(
    ("said", "asked", "told"),
    [
        (
            "not aligned to NUMA nodes: NUMA node 0 has 2 cores",
            True,
            "not aligned to NUMA nodes: NUMA node 0 has 2 cores",
        ),
        (None, True, "its image knows nothing of that"),
        ("aligned to 2 NUMA nodes: processors 0,8", True, None),
        ("not aligned to NUMA nodes: NUMA node 0 has 2 cores", False, None),
    ],
)
def test_a_machine_that_cannot_align_as_its_pool_asks_is_told_of(
    said: str | None, asked: bool, told: str | None
) -> None:
    facts = NodeFacts(
        format=1, boot_id="boot-7", image_digest="sha256:1", time="2026-01-01T00:00:00Z", cpus=2, memory_bytes=1,
        numa_alignment=said,
    )  # fmt: skip
    told_by = node()
    told_by["metadata"]["annotations"] = {NODE_FACTS_ANNOTATION: json.dumps(to_json(facts))}
    situation = subject(node_=told_by)
    pool = situation.pool
    assert pool is not None
    settings = KubeletSettings(numa_alignment=NumaAlignment() if asked else None)
    screen = render_why(replace(situation, pool=replace(pool, spec=replace(pool.spec, kubelet=settings))))
    assert ("numaAlignment" in screen) == (told is not None)
    assert told is None or told in " ".join(screen.split())
