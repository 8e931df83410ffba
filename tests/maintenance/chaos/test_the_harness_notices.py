"""A harness that finds nothing proves nothing: each fault put into the executor here must be found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from provisioner.cluster.json_patch import pointer
from provisioner.maintenance import controller
from provisioner.maintenance import decide as decide_module
from provisioner.maintenance.controller import MaintenanceController
from provisioner.maintenance.effects import MaintenanceEffects
from provisioner.maintenance.model.steps import ReserveSlurm, Wait, WriteStatus
from provisioner.maintenance.phases import claiming, closing, kept_drain, verifying
from provisioner.maintenance.status.record import end_attempt, judge, last_noted
from provisioner.maintenance.status.verdict import Cause, read_verdict
from provisioner.rules.requests import merge
from tests.maintenance.chaos.injections import INJECTIONS
from tests.maintenance.chaos.scenarios import SCENARIOS, run
from tests.maintenance.chaos.story import InvariantBroken

SCENARIO = {scenario.name: scenario for scenario in SCENARIOS}
INJECTION = {injection.name: injection for injection in INJECTIONS}
Break = Callable[[pytest.MonkeyPatch], None]


PHASES = "provisioner.maintenance.phases"


def _replace(monkeypatch: pytest.MonkeyPatch, name: str, *modules: str, by: Callable[..., Any]) -> None:
    for module in modules:
        monkeypatch.setattr(f"{PHASES}.{module}.{name}", by)


def _sees_no_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    _replace(
        monkeypatch,
        "protected_jobs",
        "blocking",
        "claiming",
        "rebooting",
        by=lambda facts, now: (),
    )
    _replace(monkeypatch, "may_interrupt", "blocking", "waiting", "claiming", by=lambda facts, now: True)


def _never_undoes(monkeypatch: pytest.MonkeyPatch) -> None:
    _replace(monkeypatch, "_undo", "release", by=lambda facts, verdict: ())
    monkeypatch.setattr("provisioner.maintenance.controller.find_leftover", lambda node, **_: None)


def _clears_all_taints(monkeypatch: pytest.MonkeyPatch) -> None:
    def clear(self: Any, node: Any, value: str | None, effect: str = "NoSchedule") -> None:
        ours = {"key": "provisioner.dev/maintenance", "value": value, "effect": effect}
        self._patch_node(node, {pointer("spec", "taints"): [ours] if value is not None else None})

    monkeypatch.setattr("provisioner.maintenance.effects.MaintenanceEffects.set_taint", clear)


def _ignores_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provisioner.maintenance.model.budget.Budget.has_room", property(lambda self: True))


def _never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provisioner.maintenance.decide.find_end", lambda facts: None)


def _believes_every_boot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes the boot before for the new one: done at once, without a boot."""
    _replace(monkeypatch, "new_boot", "rebooting", by=lambda facts: facts.maintenance.status.boot_id_before)
    _replace(monkeypatch, "_doubt", "verifying", by=lambda facts, attempt: None)


def _restarted(monkeypatch: pytest.MonkeyPatch, step: Callable[[Any, Any], Any]) -> None:
    """Each process decides by `step` about what it finds begun when it sees a Maintenance for the first time.

    `step` gets the facts and the moment; where it returns None the process decides as it should.
    """
    begin, decide = MaintenanceController.__init__, controller.decide
    found: dict[str, str | None] = {}

    def start(self: Any, *args: Any, **kwargs: Any) -> None:
        found.clear()
        begin(self, *args, **kwargs)

    def look(facts: Any, now: Any) -> Any:
        status = facts.maintenance.status
        begun = found.setdefault(facts.maintenance.name, status.phase)
        wrong = step(facts, now) if begun == status.phase and read_verdict(status) is None else None
        return wrong or decide(facts, now)

    monkeypatch.setattr(MaintenanceController, "__init__", start)
    monkeypatch.setattr(controller, "decide", look)


def _gives_up_after_a_restart(monkeypatch: pytest.MonkeyPatch, cause: Cause = "RebootFailed") -> None:
    """Ends as Failed whatever it finds Claiming, Draining or Drained."""

    def give_up(facts: Any, now: Any) -> Any:
        if facts.maintenance.status.phase not in ("Claiming", "Draining", "Drained"):
            return None
        return WriteStatus(status=judge(facts.maintenance, cause, "lost in a restart", now))

    _restarted(monkeypatch, give_up)


def _waits_for_ever_after_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goes back to Waiting where it finds a server cordoned that is not drained, and stays there."""

    def wait(facts: Any, now: Any) -> Any:
        m = facts.maintenance
        if m.status.phase == "Claiming" and facts.node.taint is not None:
            stuck.add(m.name)
            return WriteStatus(status=replace(m.status, phase="Waiting"))
        return Wait(seconds=60) if m.name in stuck and m.status.phase == "Waiting" else None

    stuck: set[str] = set()
    _restarted(monkeypatch, wait)
    look = controller.decide
    still = lambda facts, now: wait(facts, now) if facts.maintenance.name in stuck else look(facts, now)  # noqa: E731
    monkeypatch.setattr(controller, "decide", still)


def _forgets_a_requestor_on_merge(monkeypatch: pytest.MonkeyPatch) -> None:
    write = MaintenanceEffects.set_requestors
    monkeypatch.setattr(
        MaintenanceEffects, "set_requestors", lambda self, m, requestors: write(self, m, requestors[-1:])
    )


def _boots_the_image_of_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reboots, onto the old image, and calls that what was asked for."""

    def begin(facts: Any, status: Any, method: Any, now: Any) -> Any:
        image = facts.pool.spec.image_ref
        digest = f"sha256:{1:064x}"
        other = replace(facts, image=replace(facts.image, spec=replace(facts.image.spec, digest=digest)))
        other = replace(other, wanted=replace(facts.wanted, image=image))
        return real(other, status, method, now)

    real = claiming.begin_attempt
    _replace(monkeypatch, "begin_attempt", "claiming", by=begin)


def _skips_the_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    def doubt(facts: Any, attempt: Any) -> Any:
        found = real(facts, attempt)
        return None if found is not None and found[0] == "NotVerified" else found

    real = verifying._doubt
    _replace(monkeypatch, "_doubt", "verifying", by=doubt)


def _loses_a_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives the server back after the reboot, though somebody wants it out of use."""
    monkeypatch.setattr("provisioner.rules.requests.NodeRequest.keeps_drained", property(lambda self: False))


def _reboots_again_after_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes the attempt that it finds for a failed one, without a look, and makes the next."""

    def again(facts: Any, now: Any) -> Any:
        attempt = facts.maintenance.status.reboot
        if facts.maintenance.status.phase != "Rebooting" or attempt is None or attempt.outcome is not None:
            return None
        return WriteStatus(status=end_attempt(facts.maintenance.status, "Booted", "lost in a restart", now))

    _restarted(monkeypatch, again)


def _answers_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    _replace(monkeypatch, "_answer", "release", by=lambda facts, verdict: ())


def _knows_no_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provisioner.api.nodes.maintenance.Requestor.has_turn", property(lambda self: True))


def _boots_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Boots the Image of whoever names one, whether it is that one's turn or not."""

    def named(maintenance: Any) -> Any:
        wanted = real(maintenance)
        images = [r.image_ref for r in maintenance.spec.requestors if r.image_ref]
        return replace(wanted, image=images[0]) if wanted is not None and images else wanted

    real = merge
    monkeypatch.setattr("provisioner.maintenance.reads.merge", named)


def _closes_nothing_early(monkeypatch: pytest.MonkeyPatch) -> None:
    _replace(monkeypatch, "closing_effect", "closing", "release", by=lambda facts: None)


def _steers_instead_of_closing(monkeypatch: pytest.MonkeyPatch) -> None:
    def effect(facts: Any) -> Any:
        return real(facts) and "PreferNoSchedule"

    real = closing.closing_effect
    _replace(monkeypatch, "closing_effect", "closing", "release", by=effect)


def _leaves_it_drained(monkeypatch: pytest.MonkeyPatch) -> None:
    _replace(monkeypatch, "_reopen", "closing", by=lambda facts: None)


def _drains_it_once_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def last_closed(facts: Any) -> Any:
        return last_noted(facts.maintenance.status, ("Closed",), phase="Waiting")

    _replace(monkeypatch, "_last_closed", "closing", by=last_closed)


def _forgets_its_reservation(monkeypatch: pytest.MonkeyPatch) -> None:
    def reopen(drain: Any) -> Any:
        return replace(real(drain), reserved=False)

    real = kept_drain.reopen_step
    _replace(monkeypatch, "reopen_step", "closing", "release", "kept_drain", by=reopen)


def _reserves_before_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    _replace(monkeypatch, "_reserve", "closing", by=lambda facts, begins: ReserveSlurm(begins=begins))


def _keeps_the_reservation_for_a_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never drains what is reserved, whatever the turn says by then."""

    def drain(facts: Any) -> Any:
        return real(facts) if closing._last_closed(facts) is None else None

    real = closing._drain
    _replace(monkeypatch, "_drain", "closing", by=drain)


def _keeps_what_was_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goes on with a claim though the turn was taken back."""

    def end(facts: Any) -> Any:
        found = real(facts)
        return None if found is not None and found[0] == "NotItsTurn" else found

    real = decide_module.find_end
    monkeypatch.setattr(decide_module, "find_end", end)


TURNS = "a rollout's turns, and a reboot"
STILL_START = "a rollout's turns, in which jobs still start"


@pytest.mark.parametrize(
    ("fault", "scenario", "killed", "words"),
    [
        (
            _gives_up_after_a_restart,
            "reboot when idle",
            ("phase Claiming", "after"),
            "ended as Failed .RebootFailed: lost",
        ),
        (
            _gives_up_after_a_restart,
            "reboot by a deadline",
            ("phase Draining", "after"),
            "ended as Failed .RebootFailed: lost",
        ),
        (_gives_up_after_a_restart, "drain", ("phase Drained", "after"), "ended as Failed .RebootFailed: lost"),
        (_waits_for_ever_after_a_restart, "reboot when idle", ("taints", "after"), "s1-1 did not end: it is Waiting"),
        (_forgets_a_requestor_on_merge, "a reimage merged with a reboot", None, "user-alice.* it was forgotten"),
        (
            _boots_the_image_of_the_pool,
            "reimage when idle, by reset",
            None,
            "ended as Completed .*, but no boot into s-image-new passed",
        ),
        (_skips_the_checks, "reboot when idle", None, "has not passed its checks"),
        (_loses_a_drain, "reboot, then kept drained", None, "though nobody withdrew the drain"),
        (
            _reboots_again_after_a_restart,
            "reboot now",
            ("phase Rebooting", "after"),
            "went on from Kexec, which ended Booted",
        ),
        (_answers_nobody, "reboot when idle", None, "the answer of s1-1 is not on the Node"),
        (_knows_no_turns, TURNS, None, "was claimed before anybody's turn"),
        (_knows_no_turns, "a rollout's turns, by a deadline", None, "was claimed before anybody's turn"),
        (_boots_what_waits, TURNS, None, "boots s-image-new, which nobody wants whose turn has come"),
        (_closes_nothing_early, TURNS, None, "it is Steered, and s1 has the taint \\[\\]"),
        (_steers_instead_of_closing, TURNS, None, "it is Closed, and s1 has the taint .'PreferNoSchedule'"),
        (_leaves_it_drained, TURNS, None, "it is Waits, and s1 is drained in Slurm: True"),
        (_drains_it_once_only, TURNS, None, "it is Closed, and s1 is drained in Slurm: False"),
        (_forgets_its_reservation, STILL_START, None, "s1 is reserved in Slurm for s1-1 without a record of it"),
        (_reserves_before_it_says_so, STILL_START, None, "s1 is reserved in Slurm for s1-1 without a record of it"),
        (_keeps_the_reservation_for_a_drain, STILL_START, None, "it is Closed, and s1 is drained in Slurm: False"),
        (_keeps_what_was_claimed, TURNS, None, "it is Closed, and s1-2 is Claiming"),
    ],
    ids=lambda value: value.__name__.strip("_") if callable(value) else None,
)
def test_lost_work_is_found(
    monkeypatch: pytest.MonkeyPatch, fault: Break, scenario: str, killed: tuple[str, str] | None, words: str
) -> None:
    """Without any trouble, or with a crash alone: nothing excuses it."""
    strike = None
    if killed is not None:
        effects = run(SCENARIO[scenario]).meter.effects
        number = next(effect.number for effect in effects if killed[0] in effect.words)
        strike = (number, killed[1], INJECTION["nothing else"])
    fault(monkeypatch)
    with pytest.raises(InvariantBroken, match=words):
        run(SCENARIO[scenario], strike=strike)


@pytest.mark.parametrize(
    ("cause", "trouble", "words"),
    [
        ("RebootFailed", "no boot ever returns", "Kexec was not tried"),
        ("NotVerified", "checks fail", "no check of the boot that ran had failed"),
        ("NodeReplaced", "a boot never returns", "which nothing in this history permits"),
    ],
)
def test_a_trouble_is_no_blanket_excuse(
    monkeypatch: pytest.MonkeyPatch, cause: Cause, trouble: str, words: str
) -> None:
    """A cause that the trouble could bring about, ahead of the trouble: nothing of it has happened yet."""
    _gives_up_after_a_restart(monkeypatch, cause)
    with pytest.raises(InvariantBroken, match=words):
        run(SCENARIO["reboot when idle"], strike=(7, "after", INJECTION[trouble]))


@pytest.mark.parametrize(
    ("fault", "scenario", "words"),
    [
        (_sees_no_jobs, "reboot when idle", "was interrupted"),
        (_never_undoes, "drain", "is still tainted by us"),
        (_clears_all_taints, "drain", "taint on s1 was taken off"),
        (_ignores_the_budget, "two servers, budget one", "more than 1"),
        (_never_ends, "drain", "did not end"),
        (_believes_every_boot, "power cycle", "never booted"),
    ],
    ids=lambda value: value.__name__.strip("_") if callable(value) else None,
)
def test_a_broken_executor_is_found(monkeypatch: pytest.MonkeyPatch, fault: Break, scenario: str, words: str) -> None:
    fault(monkeypatch)
    with pytest.raises(InvariantBroken, match=words):
        run(SCENARIO[scenario], strike=(3, "before", INJECTION["cordoned by an administrator"]), live=True)


def test_the_story_tells_what_led_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    _never_undoes(monkeypatch)
    with pytest.raises(InvariantBroken) as caught:
        run(SCENARIO["drain"], strike=(3, "after", INJECTION["409"]))
    story = str(caught.value)
    for words in ("in: drain / killed after effect 3 / 409", "CRASHES", "executor-2", "phase Drained", "BROKEN"):
        assert words in story
