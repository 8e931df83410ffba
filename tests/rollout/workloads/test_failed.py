"""Which job failed for its image's sake: the default rule, users' expressions, and expressions that go wrong."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from provisioner.api.machinery.errors import NeedsHuman
from provisioner.rollout.workloads.failed import MAX_TEXT, JobOutcome, compile_failed_if
from tests.rollout.workloads.ended import ended

DEFAULT = compile_failed_if(None)


@pytest.mark.parametrize("reason", ["FAILED", "OUT_OF_MEMORY", "NODE_FAIL", "BOOT_FAIL", "OOMKilled", "Error", ""])
def test_by_default_what_ended_other_than_in_success_failed(reason: str) -> None:
    assert DEFAULT(ended(reason=reason)) == JobOutcome(True)
    assert DEFAULT(ended(reason=reason, succeeded=True)) == JobOutcome(False)


@pytest.mark.parametrize(
    "reason",
    ["CANCELLED", "PREEMPTED", "TIMEOUT", "DEADLINE", "Evicted", "DeadlineExceeded", "PreemptionByScheduler"],
)
def test_by_default_what_somebody_else_ended_did_not_fail(reason: str) -> None:
    assert DEFAULT(ended(reason=reason)) == JobOutcome(False)


@pytest.mark.parametrize(
    ("expression", "failed"),
    [
        ("exitCode == 1", True),
        ("exitCode == 1 && signal == 0 && kind == 'SlurmJob' && name == '4711'", True),
        ("reason in ['NODE_FAIL', 'OUT_OF_MEMORY']", False),
        ("exitCode in [1, 137] && !(partition in ['debug'])", True),
        ("__namespace__ == '' && qos == ''", True),
        ("reason.startsWith('FAIL') && reason.endsWith('ED') && reason.contains('ILE')", True),
        ("'team' in labels && labels['team'] == 'vision'", True),
        ("has(labels.team) && labels.team == 'speech'", False),
        ("has(labels.absent) && labels.absent == 'x'", False),
        ("exitCode > 128 ? signal == 9 : exitCode >= 1", True),
    ],
)
def test_an_expression_decides_over_what_is_known_of_the_job(expression: str, failed: bool) -> None:
    job = ended(labels={"team": "vision"})
    assert compile_failed_if(expression)(job) == JobOutcome(failed)


def test_an_expression_may_count_what_the_default_rule_does_not_and_the_other_way_round() -> None:
    assert compile_failed_if("reason == 'TIMEOUT'")(ended(reason="TIMEOUT")).failed
    assert not compile_failed_if("signal == 7")(ended()).failed


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("exitCode ==", "cannot be read"),
        ("exitcode == 1", "undeclared reference to 'exitcode'"),
        ("exitCode == '1'", "no matching overload"),
        ("namespace == 'x'", "reserved identifier"),
        ("exitCode", "yields int, not bool"),
        ("dyn(reason)", "yields dyn, not bool"),
        ("reason.matches('^FAIL')", "undeclared reference to 'matches'"),
        ("matches(reason, '^FAIL')", "undeclared reference to 'matches'"),
        ("labels.all(key, key != 'x')", "undeclared reference to 'all'"),
        ("[1, 2].exists(x, x == exitCode)", "undeclared reference to 'exists'"),
        ("size(['a'].map(x, x + x)) == 1", "undeclared reference to 'map'"),
        ("(" * 500 + "true" + ")" * 500, "limit"),
        ("true" + " && true" * 300, "has 2404 characters"),
        ("reason == '\ud800'", "cannot be read"),
    ],
)
def test_what_cannot_be_an_expression_is_told_with_its_place_and_a_remedy(expression: str, told: str) -> None:
    with pytest.raises(NeedsHuman) as caught:
        compile_failed_if(expression)
    assert "spec.upgradeStrategy.workloads.failedIf '" in str(caught.value)
    assert told in str(caught.value)
    assert len(str(caught.value)) < 1024
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "expression", ["labels['team'] == 'x'", "1 / signal == 1", "int(reason) == 1", "9223372036854775807 + exitCode > 0"]
)
def test_an_expression_that_fails_on_a_job_leaves_it_to_the_default_rule_and_says_so(expression: str) -> None:
    failed_if = compile_failed_if(expression)
    failed, cancelled = failed_if(ended()), failed_if(ended(reason="CANCELLED"))
    assert failed.failed
    assert not cancelled.failed
    assert failed.fault
    assert cancelled.fault


def test_values_that_no_job_should_have_raise_nothing() -> None:
    failed_if = compile_failed_if("exitCode > 0 && reason != '' || 'x' in labels")
    huge = {f"key-{number}": "v" * 10_000 for number in range(10_000)}
    assert failed_if(ended(exit_code=2**80, reason="r" * 10**6, labels=huge)) == JobOutcome(True)
    assert failed_if(ended(exit_code=-(2**80), reason="\0")) == JobOutcome(False)
    assert failed_if(ended(reason="\ud800")).failed


def test_the_longest_expression_over_the_longest_values_is_evaluated_at_once() -> None:
    each = "(reason+reason+reason+reason).contains(reason+'y')"
    text = "||".join([each] * (MAX_TEXT // (len(each) + 2)))
    failed_if, job = compile_failed_if(text), ended(reason="x" * 10**6)
    began = time.process_time()
    for _ in range(10):
        assert failed_if(job) == JobOutcome(False)
    assert time.process_time() - began < 2


WORDS = ["exitCode", "reason", "labels", "'a'", "1", "==", "&&", "||", "!", "(", ")", "[", "]", "in", ".", "has", "+"]


@given(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join) | st.text(max_size=40))
@settings(max_examples=200)
@example("exitCode in [1] || !(reason == 'a')")
def test_any_text_is_a_rule_or_refused(text: str) -> None:
    """One that was taken and cannot be evaluated is a fault of the rule: the job did not fail by it."""
    try:
        outcome = compile_failed_if(text)(ended())
    except NeedsHuman as refused:
        outcome = JobOutcome(False, str(refused))
    assert outcome.failed in (True, False)
    assert not (outcome.failed and outcome.fault)


def test_the_example_of_the_documentation_is_one() -> None:
    text = (Path(__file__).parents[3] / "docs" / "rollouts.md").read_text()
    found = re.search(r'failedIf: "(.+)"', text)
    assert found is not None
    failed_if = compile_failed_if(found.group(1))
    assert failed_if(ended()) == JobOutcome(True)
    assert failed_if(ended(labels={"experimental": ""})) == JobOutcome(False)
