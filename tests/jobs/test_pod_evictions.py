"""Which pods are asked to end, in which order, and what is said of those that are not."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from provisioner.jobs.budgets import DisruptionBudget, read_budget
from provisioner.jobs.model.work import JobKind
from provisioner.jobs.pod_evictions import EvictionPlan, plan_evictions, refused, still_there
from provisioner.jobs.pod_jobs import find_jobs, gangs_of
from provisioner.jobs.pods import job_rules, key_of
from tests.jobs.pod_samples import GPU, budget, gang_member, pod, pool

Body = dict[str, Any]
NODE = "r01-u01"
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
ALL: tuple[JobKind, ...] = ("Pod", "PodGroup", "SlurmJob")


def plan(
    here: Sequence[Body],
    elsewhere: Sequence[Body] = (),
    budgets: Sequence[Body] = (),
    *,
    spare: tuple[JobKind, ...] = (),
    force: bool = False,
) -> EvictionPlan:
    rules = job_rules(pool())
    jobs = find_jobs(here, dict.fromkeys(gangs_of(here, rules), elsewhere), rules)
    read: tuple[DisruptionBudget, ...] = tuple(read_budget(body) for body in budgets)
    return plan_evictions(NODE, here, jobs, read, spare=spare, force=force)


def asked(made: EvictionPlan) -> list[str]:
    return [key_of(pod) for pod in made.evict]


def said(made: EvictionPlan) -> list[tuple[str, str, str]]:
    return [(held.kind, held.name, held.message) for held in made.held.values()]


def test_all_that_a_drain_has_to_end_is_asked_and_nothing_else() -> None:
    made = plan(
        [pod("web"), pod("train", resources=GPU), pod("daemon", owner="DaemonSet"), pod("over", phase="Failed")]
    )
    assert sorted(asked(made)) == ["ml/train", "ml/web"]
    assert said(made) == []


def test_jobs_that_are_spared_are_not_asked_while_others_are() -> None:
    made = plan([pod("web"), pod("train", resources=GPU), gang_member("gang")], spare=ALL)
    assert asked(made) == ["ml/web"]
    assert said(made) == [
        ("Pod", "ml/train", "pod ml/train runs: it is not interrupted"),
        ("Pod", "ml/gang", "JobSet ml/train: 1 pod on r01-u01: it is not interrupted"),
    ]


def test_with_force_alone_jobs_that_must_not_be_disturbed_are_asked() -> None:
    keep = pod("keep", annotations={"provisioner.dev/do-not-disrupt": "true"})
    assert asked(plan([keep])) == []
    ((kind, name, message),) = said(plan([keep]))
    assert (kind, name) == ("Pod", "ml/keep")
    assert message.endswith("its owner forbids its eviction by an annotation, which policy Now overrides")
    assert asked(plan([keep], force=True)) == ["ml/keep"]


def test_force_does_not_override_a_budget_of_a_gang() -> None:
    assert asked(plan([gang_member("train-0")], budgets=[budget(allowed=0)], force=True)) == []


def test_a_gang_is_asked_on_all_its_servers_those_elsewhere_first() -> None:
    here = [gang_member("train-0"), pod("web")]
    elsewhere = [*here, gang_member("train-1", node="r01-u02"), gang_member("train-2", node="r01-u03")]
    assert asked(plan(here, elsewhere)) == ["ml/train-1", "ml/train-2", "ml/train-0", "ml/web"]


def test_a_gang_whose_budget_is_too_small_for_all_of_it_keeps_all_of_it() -> None:
    here = [gang_member("train-0")]
    made = plan(here, [gang_member("train-1", node="r01-u02")], [budget("train", allowed=1, healthy=2, desired=1)])
    assert asked(made) == []
    ((kind, name, message), _) = said(made)
    assert (kind, name) == ("PodDisruptionBudget", "ml/train")
    assert message == (
        "JobSet ml/train: 2 pods on r01-u01, r01-u02: all of it is evicted at once, or nothing; PodDisruptionBudget "
        "ml/train allows 1 disruption now (2 pods are healthy, 1 must stay so): wait until more of its pods are "
        "Ready, add replicas, raise its maxUnavailable or lower its minAvailable, or delete the pods by hand"
    )


def test_a_gang_whose_budget_is_large_enough_is_asked() -> None:
    here = [gang_member("train-0")]
    made = plan(here, [gang_member("train-1", node="r01-u02")], [budget(allowed=2)])
    assert asked(made) == ["ml/train-1", "ml/train-0"]


def test_a_gang_that_has_begun_to_end_is_ended_as_its_budget_allows() -> None:
    here = [gang_member("train-0")]
    begun = gang_member("train-1", node="r01-u02", deleted="2026-01-01T12:00:30Z")
    assert asked(plan(here, [begun], [budget(allowed=1)])) == ["ml/train-0"]


def test_members_that_are_not_ready_need_no_budget_where_the_budget_says_so() -> None:
    here = [gang_member("train-0", ready=False)]
    assert asked(plan(here, (), [budget(allowed=0, policy="AlwaysAllow")])) == ["ml/train-0"]
    assert asked(plan(here, (), [budget(allowed=0, healthy=2, desired=2)])) == ["ml/train-0"]
    assert asked(plan(here, (), [budget(allowed=0, healthy=1, desired=2)])) == []
    assert asked(plan([gang_member("train-0", phase="Pending")], (), [budget(allowed=0)])) == ["ml/train-0"]


def test_a_budget_that_was_not_counted_yet_allows_nothing_and_says_so() -> None:
    made = plan([gang_member("train-0")], (), [budget(allowed=5, generation=2, observed=1)])
    assert asked(made) == []
    ((_, _, message),) = said(made)
    assert "was not counted yet in its present form: wait for the disruption controller" in message


def test_a_budget_of_another_namespace_or_other_pods_is_none_of_its_business() -> None:
    other = [budget(namespace="web"), budget(labels={"app": "web"})]
    assert asked(plan([gang_member("train-0")], (), other)) == ["ml/train-0"]


def test_a_pod_with_two_budgets_is_left_because_kubernetes_never_evicts_it() -> None:
    made = plan([pod("web")], (), [budget("one", allowed=1), budget("two", allowed=1)])
    assert asked(made) == []
    ((kind, _, message),) = said(made)
    assert kind == "PodDisruptionBudget"
    assert "has 2 PodDisruptionBudgets (ml/one, ml/two)" in message
    assert message.endswith("narrow their selectors, or delete the pod by hand")


def test_a_pod_that_is_terminating_is_not_asked_again() -> None:
    assert asked(plan([pod("web", deleted="2026-01-01T12:00:30Z")])) == []


def test_of_what_is_still_there_each_says_what_is_waited_for() -> None:
    pods = [
        pod("ends", deleted="2026-01-01T12:00:20Z"),
        pod("hangs", deleted="2026-01-01T11:00:00Z"),
        pod("daemon", owner="DaemonSet"),
        pod("over", phase="Succeeded"),
    ]
    assert [(held.kind, held.name, held.message) for held in still_there(pods, {}, NOW)] == [
        ("Pod", "ml/ends", "pod ml/ends is terminating, and may take until 2026-01-01T12:00:20Z"),
        (
            "Pod",
            "ml/hangs",
            "pod ml/hangs should have ended at 2026-01-01T11:00:00Z, and its kubelet does not say that it has: see "
            "whether r01-u01 is alive; if it is off for good, taint it node.kubernetes.io/out-of-service",
        ),
    ]


def test_pods_that_wait_for_one_budget_are_told_together() -> None:
    pods = [pod(name) for name in ("a", "b", "c")]
    budgets = (read_budget(budget("web")),)
    reasons = {body["metadata"]["uid"]: refused(body, budgets, "HTTP 429") for body in pods}
    (held,) = still_there(pods, reasons, NOW)
    assert (held.kind, held.name) == ("PodDisruptionBudget", "ml/web")
    assert held.message.startswith("pod ml/a waits: PodDisruptionBudget ml/web allows no disruption now (2 pods are")
    assert held.message.endswith("(as ml/b, ml/c)")


def test_a_refusal_that_no_budget_explains_is_told_in_the_servers_own_words() -> None:
    held = refused(pod("web"), (), "admission webhook said no")
    assert (held.kind, held.message) == ("Pod", "pod ml/web was not evicted: admission webhook said no")
