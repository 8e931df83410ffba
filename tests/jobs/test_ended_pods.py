"""What pods that are over say of the jobs that they were."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest

from provisioner.api.machinery.meta import rfc3339
from provisioner.jobs.cluster_workloads import ClusterWorkloads
from provisioner.jobs.ended_pods import SummarizeEnded, ended_gang, trim_ended_pod
from provisioner.jobs.gangs import gang_of
from provisioner.jobs.model.ended import EndedJob
from provisioner.jobs.pod_workloads import SETTLED_AFTER
from provisioner.jobs.pods import NOT_OVER, OVER, job_rules
from tests.boot.fake_source import FakeSource
from tests.cluster.fake_events import FakeEvents
from tests.cluster.fake_selectors import matches_fields
from tests.jobs.pod_samples import GPU, gang_member, pod, pool
from tests.maintenance.samples import NOON

Body = dict[str, Any]
DEFAULT = job_rules(pool())


def at(minutes: float) -> str:
    return rfc3339(NOON + timedelta(minutes=minutes))


def ran(exit_code: int = 0, reason: str = "", *, until: float = -10, **more: Any) -> Body:
    """A container that ended so many minutes after noon."""
    said = {"exitCode": exit_code, "reason": reason or ("Error" if exit_code else "Completed"), "finishedAt": at(until)}
    return {"state": {"terminated": said | more}}


def over(made: Body, *containers: Body, phase: str = "", **status: Any) -> Body:
    """`made`, of which nothing runs any more."""
    failed = any(each["state"]["terminated"]["exitCode"] for each in containers)
    made["status"] = {"phase": phase or ("Failed" if failed else "Succeeded"), "startTime": at(-60)} | status
    made["status"] |= {"containerStatuses": list(containers)} if containers else {}
    return made


def job(name: str = "train-0", **more: Any) -> Body:
    return pod(name, owner="Job", resources=GPU, **more)


def told(made: Body) -> EndedJob:
    """What is said of a pod, which is the same whether a cache has cut it down or not."""
    kept = trim_ended_pod(copy.deepcopy(made))
    assert kept is not None
    (said,) = SummarizeEnded(DEFAULT)([kept])
    assert SummarizeEnded(DEFAULT)([made]) == (said,)
    assert isinstance(said, EndedJob)
    return said


def disrupted(reason: str) -> Body:
    return {"type": "DisruptionTarget", "status": "True", "reason": reason, "lastTransitionTime": at(-10)}


def test_a_job_that_succeeded_is_told_with_all_that_is_known_of_it() -> None:
    made = over(job(labels={"app": "train"}), ran())
    assert told(made) == EndedJob(
        kind="Pod",
        key=made["metadata"]["uid"],
        namespace="ml",
        name="train-0",
        servers=("r01-u01",),
        began=NOON - timedelta(minutes=60),
        ended=NOON - timedelta(minutes=10),
        succeeded=True,
        reason="Completed",
        exit_code=0,
        labels={"app": "train"},
    )


def deleted(made: Body) -> Body:
    """Somebody asked for it half a minute before ten minutes before noon."""
    made["metadata"] |= {"deletionTimestamp": at(-10), "deletionGracePeriodSeconds": 30}
    return made


ENDS: dict[str, tuple[Body, tuple[str, int | None, int | None]]] = {
    "an error": (over(job(), ran(3)), ("Error", 3, None)),
    "too much memory": (over(job(), ran(137, "OOMKilled")), ("OOMKilled", 137, 9)),
    "a signal that is said": (over(job(), ran(1, signal=11)), ("Error", 1, 11)),
    "the first of several": (over(job(), ran(143, until=-5), ran(4, "Odd", until=-9), ran(0)), ("Odd", 4, None)),
    "one that came before": (
        over(job(), phase="Failed", initContainerStatuses=[ran(7)]),
        ("Error", 7, None),
    ),
    "its deadline": (over(job(), ran(137), reason="DeadlineExceeded"), ("DeadlineExceeded", 137, 9)),
    "an eviction by its kubelet": (over(job(), phase="Failed", reason="Evicted"), ("Evicted", None, None)),
    "a preemption": (
        over(job(), ran(143), conditions=[disrupted("PreemptionByScheduler")]),
        ("PreemptionByScheduler", 143, 15),
    ),
    "a deletion while it ran": (over(deleted(job()), ran(143, until=-10.2)), ("Deleted", 143, 15)),
    "a deletion in the second of its end": (over(deleted(job()), ran(137, until=-10.5)), ("Deleted", 137, 9)),
    "an error before it was deleted": (over(deleted(job()), ran(1, until=-10.5)), ("Error", 1, None)),
    "nothing that is said": (over(job(), phase="Failed"), ("Error", None, None)),
}


@pytest.mark.parametrize("which", ENDS)
def test_a_job_fails_of(which: str) -> None:
    made, expected = ENDS[which]
    said = told(made)
    assert (said.succeeded, (said.reason, said.exit_code, said.signal)) == (False, expected)


def test_a_pod_that_says_of_no_container_when_it_ended_did_when_it_was_no_longer_ready() -> None:
    ready = {"type": "Ready", "status": "False", "lastTransitionTime": at(-7)}
    made = over(job(), phase="Failed", reason="Evicted", conditions=[ready])
    assert told(made).ended == NOON - timedelta(minutes=7)
    assert told(over(job(), phase="Failed")).ended == NOON - timedelta(minutes=60)


@pytest.mark.parametrize(
    "made",
    [
        pod("daemon", owner="DaemonSet", resources=GPU, phase="Failed"),
        pod("never-placed", owner="Job", node=None, phase="Failed"),
        pod("check", owner="Job", labels={"provisioner.dev/check": "nccl"}, phase="Failed"),
    ],
)
def test_what_is_no_job_at_all_is_not_kept(made: Body) -> None:
    assert trim_ended_pod(made) is None


def test_the_pools_rules_say_which_pods_were_jobs() -> None:
    web = over(pod("web", labels={"app": "web"}), ran())
    assert SummarizeEnded(DEFAULT)([web]) == ()
    assert len(SummarizeEnded(job_rules(pool(selectors=("app=web",))))([web])) == 1


def test_a_cache_keeps_little_of_a_pod_however_much_is_written_into_it() -> None:
    many = {f"example.com/{number:03}": "x" * 63 for number in range(5000)}
    marks = {"jobset.sigs.k8s.io/jobset-name": "train", "kueue.x-k8s.io/queue-name": "team"}
    made = over(
        job(labels=many | marks, annotations={"kueue.x-k8s.io/workload": "x" * 100_000, "notes": "x" * 100_000}),
        *(ran(1, "x" * 1000, until=-number, message="x" * 10_000) for number in range(100)),
        reason="y" * 100_000,
        message="x" * 100_000,
        conditions=[disrupted("z" * 100_000)] * 50,
    )
    made["metadata"]["ownerReferences"][0]["kind"] = "x" * 10_000 + "Job"
    made["spec"]["containers"] *= 500
    kept = trim_ended_pod(made)
    assert kept is not None
    assert len(json.dumps(kept)) < 2048
    assert gang_of(kept) == gang_of(made)
    (said,) = SummarizeEnded(DEFAULT)([kept])
    assert said == gang_of(made)
    usual = trim_ended_pod(over(job(labels={"app": "train", "team": "ml"}), ran(1, message="x" * 4096)))
    assert len(json.dumps(usual)) < 1024


@pytest.mark.parametrize("code", [2**40, -(2**40), "1", None, 1.5])
@pytest.mark.parametrize("moment", ["0000-01-01T00:00:00Z", "soon", None, 5])
def test_what_is_odd_is_not_known_and_breaks_nothing(code: Any, moment: Any) -> None:
    made = over(
        job(), {"state": {"terminated": {"exitCode": code, "finishedAt": moment, "signal": "x"}}}, phase="Failed"
    )
    made["metadata"] |= {"deletionTimestamp": "0001-01-01T00:00:00Z", "deletionGracePeriodSeconds": 2**62}
    said = told(made)
    assert (said.succeeded, said.reason, said.exit_code, said.signal) == (False, "Error", None, None)


def test_a_gang_is_one_job_that_failed_for_the_reason_of_its_first_failure() -> None:
    members = [
        over(gang_member("train-0"), ran(0, until=-2)),
        over(gang_member("train-1", node="r01-u02", labels={"role": "worker"}), ran(137, "OOMKilled", until=-4)),
        over(gang_member("train-2", node="r01-u03"), ran(143, until=-3)),
    ]
    members[2]["status"]["startTime"] = at(-90)
    said = ended_gang(members)
    assert said is not None
    assert (said.kind, said.namespace, said.name, said.servers) == (
        "PodGroup",
        "ml",
        "train",
        ("r01-u01", "r01-u02", "r01-u03"),
    )
    assert (said.succeeded, said.reason, said.exit_code, said.signal) == (False, "OOMKilled", 137, 9)
    assert (said.began, said.ended) == (NOON - timedelta(minutes=90), NOON - timedelta(minutes=2))
    assert said.labels["role"] == "worker"


def test_a_gang_of_which_nothing_failed_succeeded() -> None:
    said = ended_gang([over(gang_member("train-0"), ran()), over(gang_member("train-1"), ran())])
    assert said is not None
    assert (said.succeeded, said.reason) == (True, "Completed")
    assert ended_gang([]) is None


class Desk:
    """Workloads over caches that a test fills."""

    def __init__(self, ended: Iterable[Body], running: Iterable[Body] = ()) -> None:
        self.now = NOON
        caches = FakeSource(), FakeSource()
        for cache, bodies in zip(caches, (running, ended), strict=True):
            cache.objects = {each["metadata"]["name"]: each for each in bodies}
        self.running, self.ended = caches
        self.workloads = ClusterWorkloads(
            None,  # type: ignore[arg-type]
            FakeEvents(),
            self.running,
            ended_pods=self.ended,
            now=lambda: self.now,
        )

    def told(self, *servers: str, minutes: float = -30) -> list[str]:
        since = NOON + timedelta(minutes=minutes)
        return [said.name for said in self.workloads.ended(pool(), servers or ("r01-u01",), since)]


def test_what_ended_since_then_on_these_servers_is_told_the_last_first() -> None:
    desk = Desk(
        [
            over(job("a"), ran(until=-20)),
            over(job("b"), ran(until=-10)),
            over(job("long-ago"), ran(until=-40)),
            over(job("elsewhere", node="r01-u02"), ran()),
            over(pod("web", owner="ReplicaSet"), ran()),
        ]
    )
    assert desk.told() == ["b", "a"]
    assert desk.told("r01-u01", "r01-u02", minutes=-15) == ["elsewhere", "b"]
    assert desk.told("r99-u01") == []


def test_a_gang_is_told_once_nothing_of_it_runs_and_all_of_it_was_heard_of() -> None:
    members = [over(gang_member(f"train-{n}", node=f"r01-u0{n}"), ran(until=-n)) for n in (1, 2)]
    runs = gang_member("train-3", node="r01-u03")
    assert Desk(members, [runs]).told() == []
    desk = Desk(members)
    assert desk.told("r01-u01", "r01-u02") == ["train"]
    desk.now = NOON - timedelta(minutes=1) + SETTLED_AFTER - timedelta(seconds=1)
    assert desk.told() == []
    desk.now += timedelta(seconds=1)
    assert desk.told() == ["train"]


def test_a_node_whose_clock_is_ahead_ends_no_job_in_the_future() -> None:
    desk = Desk([over(job(), ran(until=60)), over(gang_member("train-1"), ran(until=60))])
    said = desk.workloads.ended(pool(), ["r01-u01"], NOON - timedelta(minutes=1))
    assert [each.ended for each in said] == [NOON, NOON]


def test_without_a_cache_nothing_is_told() -> None:
    workloads = ClusterWorkloads(None, FakeEvents(), FakeSource(), now=lambda: NOON)  # type: ignore[arg-type]
    assert workloads.ended(pool(), ["r01-u01"], NOON) == ()


@pytest.mark.parametrize("phase", ["Pending", "Running", "Unknown", "Succeeded", "Failed"])
def test_each_pod_is_in_one_of_the_two_caches(phase: str) -> None:
    made = pod(phase=phase)
    assert matches_fields(made, OVER) == (phase in ("Succeeded", "Failed"))
    assert matches_fields(made, NOT_OVER) != matches_fields(made, OVER)
