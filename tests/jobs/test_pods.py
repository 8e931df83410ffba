"""Which pods are jobs, which a drain has to end, and which belong together."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from provisioner.api.machinery.meta import rfc3339
from provisioner.jobs.gangs import gang_of
from provisioner.jobs.pod_jobs import evictable_keys, find_jobs, gangs_of
from provisioner.jobs.pods import belongs_to_node, is_evictable, is_job, job_rules, trim_pod
from tests.jobs.pod_samples import GPU, gang_member, pod, pool

DEFAULT = job_rules(pool())

JOBS: dict[str, Any] = {
    "a pod that requests GPUs": pod(resources=GPU),
    "a pod with a limit only": pod(resources={"limits": {"amd.com/gpu": "1"}}),
    "a pod with a MIG slice": pod(resources={"limits": {"nvidia.com/mig-1g.10gb": "1"}}),
    "a pod with a shared GPU": pod(resources={"limits": {"nvidia.com/gpu.shared": "1"}}),
    "a pod with any vendor's GPU": pod(resources={"requests": {"example.com/gpu": 2}}),
    "a pod with Intel's GPU": pod(resources={"requests": {"gpu.intel.com/xe": "1"}}),
    "a pod whose init container requests a GPU": pod(
        spec={"initContainers": [{"name": "warm-up", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}
    ),
    "a pod with a claim": pod(spec={"resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}]}),
    "a Job's pod": pod(owner="Job"),
    "a PyTorchJob's pod": pod(owner="PyTorchJob"),
    "a JobSet's pod by label": pod(labels={"jobset.sigs.k8s.io/jobset-name": "train"}),
    "a pod in a queue of Kueue": pod(labels={"kueue.x-k8s.io/queue-name": "team"}),
    "a pod of a Kueue Workload": pod(annotations={"kueue.x-k8s.io/workload": "w"}),
    "a pod of a PodGroup by label": pod(labels={"scheduling.x-k8s.io/pod-group": "g"}),
    "a pod of a PodGroup by the older label": pod(labels={"pod-group.scheduling.sigs.k8s.io": "g"}),
    "a pod of Volcano's PodGroup": pod(annotations={"scheduling.k8s.io/group-name": "g"}),
    "a pod of Kubernetes' own PodGroup": pod(spec={"schedulingGroup": {"podGroupName": "g"}}),
    "a pod of Kubernetes' Workload as of 1.35": pod(spec={"workloadRef": {"name": "w", "podGroup": "p"}}),
    "a pod that has not begun": pod(resources=GPU, phase="Pending"),
    "a pod that ends by itself": pod(resources=GPU, began="2026-01-01T00:00:00Z", spec={"activeDeadlineSeconds": 60}),
    "a pod that is terminating": pod(resources=GPU, deleted="2026-01-01T00:00:00Z"),
    "a pod that nobody may disturb": pod(annotations={"provisioner.dev/do-not-disrupt": "true"}),
    "a pod that Karpenter may not disturb": pod(annotations={"karpenter.sh/do-not-disrupt": "true"}),
    "a pod that is not safe to evict": pod(annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}),
}
NO_JOBS: dict[str, Any] = {
    "a plain pod": pod(),
    "a Deployment's pod": pod(owner="ReplicaSet"),
    "a pod that requests no GPU in as many words": pod(resources={"requests": {"nvidia.com/gpu": "0", "cpu": "4"}}),
    "a DaemonSet's pod with GPUs": pod(owner="DaemonSet", resources=GPU),
    "a mirror pod": pod(owner="Node", resources=GPU, annotations={"kubernetes.io/config.mirror": "x"}),
    "a mirror pod by its owner": pod(owner="Node", resources=GPU),
    "a pod that has succeeded": pod(owner="Job", resources=GPU, phase="Succeeded"),
    "a pod that has failed": pod(owner="Job", resources=GPU, phase="Failed"),
    "a check of our own": pod(owner="Job", resources=GPU, labels={"provisioner.dev/check": "nccl"}),
    "a pod that is safe to evict": pod(annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}),
    "a pod whose do-not-disrupt is off": pod(annotations={"provisioner.dev/do-not-disrupt": "false"}),
}


@pytest.mark.parametrize("which", JOBS)
def test_by_default_this_is_a_job(which: str) -> None:
    assert is_job(JOBS[which], DEFAULT)


@pytest.mark.parametrize("which", NO_JOBS)
def test_by_default_this_is_no_job(which: str) -> None:
    assert not is_job(NO_JOBS[which], DEFAULT)


def test_a_drain_ends_what_runs_and_neither_daemons_nor_static_pods_nor_what_is_over() -> None:
    pods = [
        pod("web"),
        pod("train", resources=GPU),
        pod("check", labels={"provisioner.dev/check": "nccl"}),
        pod("tolerant", spec={"tolerations": [{"operator": "Exists"}]}),
        pod("daemon", owner="DaemonSet"),
        pod("static", annotations={"kubernetes.io/config.mirror": "x"}),
        pod("over", phase="Succeeded"),
    ]
    assert evictable_keys(pods) == ("ml/check", "ml/tolerant", "ml/train", "ml/web")


def test_selectors_of_the_pool_replace_the_default() -> None:
    rules = job_rules(pool(selectors=("app=training", "tier in (a,b)")))
    assert is_job(pod(labels={"app": "training"}), rules)
    assert is_job(pod(labels={"tier": "b"}), rules)
    assert not is_job(pod(resources=GPU), rules)


def test_what_the_pool_ignores_is_no_job_whatever_else_it_is() -> None:
    rules = job_rules(pool(ignored=("app=filler",)))
    filler = pod(labels={"app": "filler"}, resources=GPU, annotations={"provisioner.dev/do-not-disrupt": "true"})
    assert not is_job(filler, rules)
    assert is_evictable(filler)
    assert is_job(pod(resources=GPU), rules)


def test_with_a_selector_that_nobody_can_read_every_pod_may_be_a_job_and_it_is_said_why() -> None:
    rules = job_rules(pool(selectors=("app=training",), ignored=("app in (",)))
    assert is_job(pod(), rules)
    assert not is_job(pod(owner="DaemonSet"), rules)
    (said,) = rules.unknown
    assert said.startswith("NodePool gpu: spec.jobs.kubernetes.ignoredSelectors[0]: label selector 'app in (' is not")
    assert said.endswith("such as app=training,tier in (a,b),!debug")
    assert is_job(pod(), job_rules(pool(selectors=("app in (",))))


GANGS = {
    "JobSet": ("JobSet ml/train", pod(owner="Job", labels={"jobset.sigs.k8s.io/jobset-name": "train"})),
    "LeaderWorkerSet": (
        "LeaderWorkerSet ml/serve-3",
        pod(labels={"leaderworkerset.sigs.k8s.io/name": "serve", "leaderworkerset.sigs.k8s.io/group-index": "3"}),
    ),
    "Kueue's plain pods": ("Kueue pod group ml/g", pod(labels={"kueue.x-k8s.io/pod-group-name": "g"})),
    "PodGroup": ("PodGroup ml/g", pod(labels={"scheduling.x-k8s.io/pod-group": "g"})),
    "Volcano": ("PodGroup ml/g", pod(annotations={"scheduling.k8s.io/group-name": "g"})),
    "Volcano's label": ("Volcano job ml/g", pod(labels={"volcano.sh/job-name": "g"})),
    "KAI": ("PodGroup ml/g", pod(annotations={"pod-group-name": "g"})),
    "Grove": ("PodGang ml/g", pod(labels={"grove.io/podgang": "g"})),
    "KubeRay": ("Ray cluster ml/g", pod(labels={"ray.io/cluster": "g"})),
    "Koordinator": ("Koordinator gang ml/g", pod(annotations={"gang.scheduling.koordinator.sh/name": "g"})),
    "Gödel": ("PodGroup ml/g", pod(annotations={"godel.bytedance.com/pod-group-name": "g"})),
    "Armada": ("Armada gang ml/g", pod(annotations={"armadaproject.io/gangId": "g"})),
    "CodeFlare": ("AppWrapper ml/g", pod(labels={"workload.codeflare.dev/appwrapper": "g"})),
    "a mark of the site's own": (
        "gang ml/whole",
        pod(labels={"provisioner.dev/gang": "whole", "jobset.sigs.k8s.io/jobset-name": "part"}),
    ),
    "an empty mark beside another": (
        "PodGroup ml/g",
        pod(labels={"ray.io/cluster": ""}, annotations={"pod-group-name": "g"}),
    ),
    "Kubernetes 1.36": ("PodGroup ml/g", pod(spec={"schedulingGroup": {"podGroupName": "g"}})),
    "Kubernetes 1.35": (
        "Workload ml/w-workers-0",
        pod(spec={"workloadRef": {"name": "w", "podGroup": "workers", "podGroupReplicaKey": "0"}}),
    ),
    "a PodGroup in a JobSet": (
        "JobSet ml/train",
        pod(labels={"scheduling.x-k8s.io/pod-group": "g", "jobset.sigs.k8s.io/jobset-name": "train"}),
    ),
}


@pytest.mark.parametrize("which", GANGS)
def test_a_gang_is_known_by_its_mark(which: str) -> None:
    name, member = GANGS[which]
    assert str(gang_of(member)) == name


SAMPLES = {**JOBS, **NO_JOBS, **{name: member for name, (_, member) in GANGS.items()}}


@pytest.mark.parametrize("which", SAMPLES)
def test_what_a_cache_keeps_of_a_pod_says_the_same_of_it(which: str) -> None:
    whole = SAMPLES[which]
    kept = trim_pod(copy.deepcopy(whole))
    if kept is None:
        assert belongs_to_node(whole)
        return
    told = [
        job
        for pods in (whole, kept)
        for job in find_jobs([pods], {g: [pods] for g in gangs_of([pods], DEFAULT)}, DEFAULT)
    ]
    assert [job.job for job in told[: len(told) // 2]] == [job.job for job in told[len(told) // 2 :]]
    assert evictable_keys([kept]) == evictable_keys([whole])
    assert gang_of(kept) == gang_of(whole)


def test_a_cache_keeps_little_of_a_pod_however_much_its_owner_writes_into_it() -> None:
    environment = [{"name": f"PAD_{number}", "value": "x" * 1000} for number in range(500)]
    large = pod(annotations={"example.com/notes": "x" * 200_000}, resources=GPU)
    large["spec"]["containers"][0]["env"] = environment
    large["status"]["containerStatuses"] = [{"name": "main", "state": {"waiting": {"message": "x" * 10_000}}}]
    kept = trim_pod(large)
    assert kept is not None
    assert len(json.dumps(kept)) < 2048
    assert is_job(kept, DEFAULT)


def test_a_cache_keeps_little_of_a_pod_that_is_filled_in_the_fields_that_count() -> None:
    many = {f"example.com/{number:05}": "x" * 60 for number in range(15_000)}
    filled = pod(
        labels=many | {"jobset.sigs.k8s.io/jobset-name": "train"}, annotations={"kueue.x-k8s.io/workload": "x" * 9999}
    )
    container = {
        "name": "c",
        "resources": {"limits": {f"e{number}.com/gpu": "1" for number in range(9000)} | GPU["limits"]},
    }
    filled["spec"]["containers"] = [container] * 2
    owner = {"kind": "x" * 9999, "name": "y", "uid": "z", "controller": True}
    filled["metadata"]["ownerReferences"] = [{**owner, "controller": False}] * 500 + [owner]
    kept = trim_pod(filled)
    assert kept is not None
    assert len(json.dumps(kept)) < 20_000
    assert gang_of(kept) == gang_of(filled)
    assert is_job(kept, DEFAULT)


def test_a_plain_jobs_pods_stand_for_themselves() -> None:
    assert gang_of(pod(owner="Job", resources=GPU)) is None


def test_a_gang_is_one_job_on_all_its_servers() -> None:
    here = [gang_member("train-0"), gang_member("train-1"), pod("web")]
    others = [
        *here[:2],
        gang_member("train-2", node="r01-u02"),
        gang_member("train-3", node="r01-u03", deleted="2026-01-01T00:00:00Z"),
        gang_member("not-placed", node=None),
        gang_member("over", node="r01-u04", phase="Succeeded"),
        gang_member("another", node="r01-u05", gang="other"),
    ]
    (gang,) = gangs_of(here, DEFAULT)
    (found,) = find_jobs(here, {gang: others}, DEFAULT)
    assert (found.job.kind, found.job.name) == ("PodGroup", "ml/train")
    assert found.job.servers == ("r01-u01", "r01-u02", "r01-u03")
    assert found.job.message == "JobSet ml/train: 4 pods on r01-u01, r01-u02, r01-u03, 1 of them terminating"
    assert not found.job.do_not_disrupt


def test_one_member_that_must_not_be_disturbed_protects_the_gang() -> None:
    here = [gang_member("train-0")]
    elsewhere = [gang_member("train-1", node="r01-u02", annotations={"karpenter.sh/do-not-disrupt": "true"})]
    (gang,) = gangs_of(here, DEFAULT)
    (found,) = find_jobs(here, {gang: elsewhere}, DEFAULT)
    assert found.job.do_not_disrupt


def test_a_gang_began_with_its_first_member_and_ends_with_its_last() -> None:
    limit = {"spec": {"activeDeadlineSeconds": 3600}}
    first = gang_member("train-0", began="2026-01-01T00:00:00Z", **limit)
    last = gang_member("train-1", node="r01-u02", began="2026-01-01T00:30:00Z", **limit)
    without_limit = gang_member("train-2", began="2026-01-01T00:00:30Z")
    starting = gang_member("train-3", phase="Pending", **limit)
    assert times(first, last) == ("2026-01-01T00:00:00Z", "2026-01-01T01:30:00Z")
    assert times(last, without_limit) == ("2026-01-01T00:00:30Z", None)
    assert times(last, starting) == ("2026-01-01T00:30:00Z", None)
    assert times(starting) == (None, None)


def times(*pods: dict[str, Any]) -> tuple[str | None, str | None]:
    """When the one job of `pods` began, and by when it ends."""
    (found,) = find_jobs(pods, dict.fromkeys(gangs_of(pods, DEFAULT), pods), DEFAULT)
    began, ends = found.job.began, found.job.ends
    return rfc3339(began) if began else None, rfc3339(ends) if ends else None


@pytest.mark.parametrize("began", ["0000-01-01T00:00:00Z", "2026-01-01T00:00:00", "soon", 5, None])
def test_a_begin_that_is_no_time_is_not_known(began: Any) -> None:
    assert times(pod(resources=GPU, began=began, spec={"activeDeadlineSeconds": 60})) == (None, None)


@pytest.mark.parametrize("seconds", [2**63, 0, -5, "60", None])
def test_a_deadline_that_is_no_time_is_none(seconds: Any) -> None:
    (_, ends) = times(pod(resources=GPU, began="9999-12-31T00:00:00Z", spec={"activeDeadlineSeconds": seconds}))
    assert ends is None


def test_a_pod_is_told_with_its_owner_and_its_state() -> None:
    pods = [
        pod("a", owner="Job"),
        pod("b", resources=GPU, phase="Pending"),
        pod("c", resources=GPU, deleted="2026-01-01T00:00:00Z"),
    ]
    assert [found.job.message for found in find_jobs(pods, {}, DEFAULT)] == [
        "pod ml/a of Job owner runs",
        "pod ml/b is starting",
        "pod ml/c is terminating until 2026-01-01T00:00:00Z",
    ]
