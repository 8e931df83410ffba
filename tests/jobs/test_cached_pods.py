"""Looks at servers by a cache of pods: what they say, and that it is never older than the cache."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.cluster.source import Index
from provisioner.jobs import pod_jobs
from provisioner.jobs.pod_jobs import find_jobs, gangs_of
from provisioner.jobs.pod_workloads import PodView, PodWorkloads
from provisioner.jobs.pods import job_rules, trim_pod
from tests.boot.fake_source import FakeSource
from tests.cluster.fake_events import FakeEvents
from tests.jobs.pod_samples import GPU, gang_member, pod, pool
from tests.maintenance.samples import NOON

Body = dict[str, Any]
POOL = pool()


class Cache(FakeSource):
    """Of pods, which a test changes."""

    def __init__(self, *pods: Body) -> None:
        super().__init__()
        self.objects = {each["metadata"]["name"]: each for each in pods}

    def change(self, *pods: Body) -> None:
        for each in pods:
            kept, name = trim_pod(each), each["metadata"]["name"]
            assert kept is not None
            self.objects[name] = kept
            self._tell(name, None, kept)


class Desk:
    def __init__(self, *pods: Body) -> None:
        self.cache = Cache(*pods)
        self.workloads = PodWorkloads(None, FakeEvents(), self.cache, now=lambda: NOON)  # type: ignore[arg-type]

    def look(self, node: str = "r01-u01") -> PodView:
        return self.workloads.look(node, POOL, fresh=False)


def gang(count: int) -> list[Body]:
    return [gang_member(f"train-{number}", node=f"r01-u{number + 1:02}") for number in range(count)]


def test_a_look_says_what_is_found_among_all_pods() -> None:
    here = [gang(1)[0], pod("notebook", resources=GPU), pod("web"), gang_member("train-9")]
    everywhere = [*here, *gang(5)[1:], pod("over", resources=GPU, phase="Succeeded")]
    rules = job_rules(POOL)
    found = find_jobs(here, dict.fromkeys(gangs_of(here, rules), everywhere), rules)
    said = Desk(*everywhere).look()
    assert said.jobs == tuple(each.job for each in found)
    assert said.evictable == ("ml/notebook", "ml/train-0", "ml/train-9", "ml/web")
    assert said.requests.quantities["nvidia.com/gpu"] == 24


def test_what_changes_elsewhere_in_a_gang_is_seen_at_the_next_look() -> None:
    desk = Desk(*gang(3))
    assert desk.look().jobs[0].servers == ("r01-u01", "r01-u02", "r01-u03")
    desk.cache.change(gang_member("train-3", node="r01-u04"))
    assert desk.look().jobs[0].servers == ("r01-u01", "r01-u02", "r01-u03", "r01-u04")
    desk.cache.change(gang_member("train-1", node="r01-u02", phase="Succeeded"))
    desk.cache.remove("train-2")
    assert desk.look().jobs[0].servers == ("r01-u01", "r01-u04")
    assert desk.look("r01-u03").jobs == ()
    desk.cache.change(gang_member("train-3", node="r01-u04", annotations={"karpenter.sh/do-not-disrupt": "true"}))
    assert desk.look().jobs[0].do_not_disrupt


def test_a_pool_whose_rules_change_is_looked_at_by_the_new_ones() -> None:
    desk = Desk(pod("web", labels={"app": "web"}))
    assert desk.look().jobs == ()
    other = pool(selectors=("app=web",))
    assert [job.name for job in desk.workloads.look("r01-u01", other, fresh=False).jobs] == ["ml/web"]
    assert desk.look().jobs == ()


def test_a_gang_is_put_together_once_for_each_change_however_many_servers_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = []
    whole = pod_jobs._of_gang

    def counted(*arguments: Any) -> Any:
        made.append(arguments)
        return whole(*arguments)

    monkeypatch.setattr(pod_jobs, "_of_gang", counted)
    desk = Desk(*gang(100))
    for _ in range(3):
        for number in range(100):
            assert len(desk.look(f"r01-u{number + 1:02}").jobs[0].servers) == 100
    assert len(made) == 1


def test_a_gang_that_is_gone_leaves_nothing_behind() -> None:
    desk = Desk(*gang(3))
    desk.look()
    (index,) = desk.cache._indices
    assert isinstance(index, Index)
    assert index._made
    for number in range(3):
        desk.cache.remove(f"train-{number}")
    assert desk.look().jobs == ()
    assert not index._made
