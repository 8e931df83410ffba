"""Pods on the real API server: seen, warned, evicted within their budgets."""

from __future__ import annotations

from datetime import timedelta

import pytest

from provisioner.api.machinery.errors import NotFound, Refused, Retryable
from provisioner.api.machinery.meta import rfc3339
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import PODS
from provisioner.jobs.ended_pods import SummarizeEnded, trim_ended_pod
from provisioner.jobs.model.ended import EndedJob
from provisioner.jobs.model.work import Workloads
from provisioner.jobs.pods import NOT_OVER, OVER, job_rules
from provisioner.jobs.selectors import parse_selector
from tests.jobs.kubernetes_site import Site
from tests.jobs.pod_samples import GPU, budget, gang_member, pod, pool
from tests.jobs.test_selectors import BAD, LABELS, MATCHING, NOT_MATCHING

WARNING = "provisioner.dev/maintenance-deadline"
POOL = pool()


def test_what_runs_on_a_node_is_seen_with_the_gangs_other_servers(site: Site) -> None:
    site.run(pod("web"))
    site.run(pod("notebook", resources=GPU))
    site.run(pod("over", resources=GPU, phase="Succeeded"))
    site.run(gang_member("train-0"))
    site.run(gang_member("train-1"), node=site.other)
    site.run(gang_member("other-0", gang="other"), node=site.other)
    workloads: Workloads = site.workloads
    work = workloads.look(site.server, POOL)
    found = {job.name: (job.kind, job.servers) for job in work.jobs}
    assert found == {
        f"{site.namespace}/notebook": ("Pod", (site.node,)),
        f"{site.namespace}/train": ("PodGroup", (site.node, site.other)),
    }
    assert work.evictable == tuple(f"{site.namespace}/{name}" for name in ("notebook", "train-0", "web"))
    assert not work.is_idle


def test_a_gang_known_by_a_pods_annotation_is_found_on_other_servers(site: Site) -> None:
    for name, node in (("v-0", site.node), ("v-1", site.other)):
        site.run(pod(name, annotations={"scheduling.k8s.io/group-name": "v"}), node=node)
    (job,) = site.workloads.look(site.server, POOL).jobs
    assert job.servers == (site.node, site.other)


def test_a_tenant_who_names_a_gang_for_each_pod_makes_nobody_read_its_namespace_as_often(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(8):
        site.run(pod(f"v-{number}", annotations={"scheduling.k8s.io/group-name": f"v-{number}"}))
    asked: list[object] = []
    real = site.cluster.list
    monkeypatch.setattr(site.cluster, "list", lambda *args, **more: (asked.append(more), real(*args, **more))[1])
    assert len(site.workloads.look(site.server, POOL).jobs) == 8
    assert len(asked) == 2, "the node's pods, and the namespace's"


def test_a_node_with_nothing_but_ended_pods_is_idle(site: Site) -> None:
    site.run(pod("over", resources=GPU, phase="Failed"))
    assert site.workloads.look(site.server, POOL).is_idle


def test_a_node_is_not_idle_while_a_selector_of_the_pool_is_not_readable(site: Site) -> None:
    work = site.workloads.look(site.server, pool(selectors=("app in (",)))
    assert not work.is_idle
    assert "spec.jobs.kubernetes.selectors[0]" in work.unknown[0]


def test_an_eviction_is_asked_once_and_waited_for_until_the_pod_is_gone(site: Site) -> None:
    site.run(pod("web", spec={"terminationGracePeriodSeconds": 300}))
    (held,) = site.workloads.evict(site.server, POOL, spare=(), force=False)
    assert (held.kind, held.name) == ("Pod", f"{site.namespace}/web")
    asked = site.read("web")["metadata"]["deletionTimestamp"]
    assert f"may take until {asked}" in held.message
    assert site.workloads.evict(site.server, POOL, spare=(), force=False) == (held,)
    assert site.read("web")["metadata"]["deletionTimestamp"] == asked
    site.end("web")
    assert site.workloads.evict(site.server, POOL, spare=(), force=False) == ()


def test_a_budget_holds_a_pod_and_is_named_until_it_allows_the_eviction(site: Site) -> None:
    site.run(pod("web", labels={"app": "web"}))
    site.allow(budget("web", labels={"app": "web"}, allowed=0))
    for force in (False, True):
        (held,) = site.workloads.evict(site.server, POOL, spare=(), force=force)
        assert (held.kind, held.name) == ("PodDisruptionBudget", f"{site.namespace}/web")
        assert "allows no disruption now" in held.message
        assert not site.is_terminating("web")
    site.allow(budget("web", labels={"app": "web"}, allowed=1))
    (held,) = site.workloads.evict(site.server, POOL, spare=(), force=False)
    assert held.kind == "Pod"
    assert site.is_terminating("web")


def test_two_budgets_on_one_pod_are_told_as_what_they_are(site: Site) -> None:
    site.run(pod("web"))
    site.allow(budget("one", allowed=1))
    site.allow(budget("two", allowed=1))
    (held,) = site.workloads.evict(site.server, POOL, spare=(), force=False)
    assert "at most one" in held.message
    assert not site.is_terminating("web")


def test_a_gang_is_evicted_on_all_its_servers_or_on_none(site: Site) -> None:
    site.run(gang_member("train-0"))
    site.run(gang_member("train-1"), node=site.other)
    site.allow(budget("train", allowed=1))
    (held,) = site.workloads.evict(site.server, POOL, spare=(), force=True)
    assert held.kind == "PodDisruptionBudget"
    assert "all of it is evicted at once, or nothing" in held.message
    assert not site.is_terminating("train-0")
    assert not site.is_terminating("train-1")
    site.allow(budget("train", allowed=2))
    (held,) = site.workloads.evict(site.server, POOL, spare=(), force=False)
    assert (held.kind, held.name) == ("Pod", f"{site.namespace}/train-0")
    assert site.is_terminating("train-0")
    assert site.is_terminating("train-1")


def test_a_pod_that_tolerates_everything_is_evicted_nevertheless(site: Site) -> None:
    site.run(pod("tolerant", spec={"tolerations": [{"operator": "Exists"}]}))
    site.workloads.evict(site.server, POOL, spare=(), force=False)
    assert site.is_terminating("tolerant")


def test_a_mirror_pod_is_left_alone(site: Site) -> None:
    site.run(pod("static", annotations={"kubernetes.io/config.mirror": "x"}))
    assert site.workloads.evict(site.server, POOL, spare=(), force=True) == ()
    assert not site.is_terminating("static")


def test_every_pod_of_a_gang_is_warned_once_and_others_are_not(site: Site) -> None:
    site.run(pod("web"))
    site.run(gang_member("train-0"))
    site.run(gang_member("train-1"), node=site.other)
    deadline = site.now + timedelta(hours=1)
    for _ in range(2):
        assert site.workloads.warn(site.server, POOL, deadline, "image gpu-2") == 2
    assert site.read("train-0")["metadata"]["annotations"][WARNING] == rfc3339(deadline)
    assert site.read("train-1")["metadata"]["annotations"][WARNING] == rfc3339(deadline)
    assert "annotations" not in site.read("web")["metadata"]
    message = f"node {site.node} is taken out of use at {rfc3339(deadline)}: image gpu-2; checkpoint before that"
    assert sorted((told.name, told.reason, told.message) for told in site.events.told) == [
        ("train-0", "MaintenanceDeadline", message),
        ("train-1", "MaintenanceDeadline", message),
    ]


def test_of_two_deadlines_ahead_the_earlier_one_stands_and_one_that_is_past_is_replaced(site: Site) -> None:
    site.run(gang_member("train-0"))
    early, late = (site.now + timedelta(hours=hours) for hours in (1, 2))
    site.workloads.warn(site.server, POOL, early, "one")
    site.workloads.warn(site.server, POOL, late, "two")
    assert site.read("train-0")["metadata"]["annotations"][WARNING] == rfc3339(early)
    site.now = early + timedelta(minutes=1)
    site.workloads.warn(site.server, POOL, late, "two")
    assert site.read("train-0")["metadata"]["annotations"][WARNING] == rfc3339(late)


def test_without_an_api_server_every_method_says_to_try_again(site: Site) -> None:
    from kubernetes.client import Configuration

    from provisioner.cluster.access import Access
    from provisioner.cluster.transport import Transport
    from provisioner.jobs.cluster_workloads import ClusterWorkloads

    configuration = Configuration()
    configuration.host = "http://127.0.0.1:1"
    nowhere = Cluster(Transport(Access(lambda: configuration), user_agent="test"))
    workloads = ClusterWorkloads(nowhere, site.events, now=lambda: site.now)
    with pytest.raises(Retryable):
        workloads.look(site.server, POOL)
    with pytest.raises(Retryable):
        workloads.warn(site.server, POOL, site.now, "")
    with pytest.raises(Retryable):
        workloads.evict(site.server, POOL, spare=(), force=True)


@pytest.mark.parametrize("phase", ["Pending", "Running", "Succeeded", "Failed"])
def test_a_pod_is_followed_as_running_or_as_over(phase: str, site: Site) -> None:
    site.run(pod("train", resources=GPU, phase=phase, began="2026-01-01T00:00:00Z"))
    for selector, found in ((NOT_OVER, phase in ("Pending", "Running")), (OVER, phase in ("Succeeded", "Failed"))):
        items = site.cluster.list(PODS, namespace=site.namespace, field_selector=selector).items
        assert bool(items) == found
        if found and selector == OVER:
            kept = trim_ended_pod(items[0])
            assert kept is not None
            (said,) = SummarizeEnded(job_rules(POOL))([kept])
            assert isinstance(said, EndedJob)
            assert said.succeeded == (phase == "Succeeded")


@pytest.mark.parametrize("text", [*MATCHING, *NOT_MATCHING])
def test_selectors_select_what_the_api_server_selects(text: str, site: Site) -> None:
    site.run(pod("labelled", labels=LABELS))
    selected = site.cluster.list(PODS, namespace=site.namespace, label_selector=text).items
    assert bool(selected) == parse_selector(text).matches(LABELS)


@pytest.mark.parametrize("text", [text for text in BAD if text.strip()])
def test_selectors_that_are_refused_are_refused_by_the_api_server_too(text: str, site: Site) -> None:
    with pytest.raises((Refused, NotFound)):
        site.cluster.list(PODS, namespace=site.namespace, label_selector=text)
