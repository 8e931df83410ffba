"""How much of a server is free, by what its pods request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from provisioner.api.machinery.meta import ObjectMeta
from provisioner.api.servers.server import Server, ServerSpec
from provisioner.jobs.cluster_workloads import ClusterWorkloads
from provisioner.jobs.free import MAX_QUANTITY, free_share, read_quantity, requests_of, requests_on
from provisioner.jobs.pods import trim_pod
from tests.boot.fake_source import FakeSource
from tests.cluster.fake_events import FakeEvents
from tests.jobs.pod_samples import GPU, pod, pool
from tests.maintenance.samples import NOON

Body = dict[str, Any]
HGX = {"cpu": "192", "memory": "2Ti", "nvidia.com/gpu": "8"}


def gpus(count: Any, name: str = "nvidia.com/gpu") -> Body:
    return {"requests": {name: count, "cpu": "1"}}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("4", 4.0), ("0", 0.0), ("500m", 0.5), ("0.5", 0.5), ("2k", 2000.0), ("2Ki", 2048.0), ("1E", 1e18)),
        *(("1e3", 1000.0), ("5e-1", 0.5), (2, 2.0), ("100n", 1e-7)),
    ],
)
def test_a_quantity_is_read_as_kubernetes_means_it(text: Any, value: float) -> None:
    assert read_quantity(text) == pytest.approx(value)


@pytest.mark.parametrize("value", ["", "-1", "NaN", "inf", "1e999", "four", "1 ", "9" * 10_000, None, [], {}, "\u0664"])
def test_what_is_no_quantity_is_nothing(value: Any) -> None:
    assert read_quantity(value) == 0.0


def test_no_quantity_is_more_than_the_most() -> None:
    assert read_quantity("9" * 20 + "E") == read_quantity("1e99") == MAX_QUANTITY


@pytest.mark.parametrize(
    ("pods", "free"),
    [
        ([], 1.0),
        ([pod(resources=gpus("2"))], 0.75),
        ([pod("a", resources=gpus("2")), pod("b", resources=gpus("4"))], 0.25),
        ([pod("a", resources=GPU)], 0.0),
        ([pod("a", resources=GPU), pod("b", resources=GPU)], 0.0),
        ([pod(resources=gpus("9" * 19))], 0.0),
        ([pod(resources=gpus("-8"))], 1.0),
        ([pod(resources={"limits": {"nvidia.com/gpu": "2"}})], 0.75),
        ([pod(resources={"requests": {"cpu": "192"}})], 1.0),
        ([pod("over", resources=GPU, phase="Succeeded"), pod("daemon", resources=GPU, owner="DaemonSet")], 1.0),
    ],
)
def test_a_server_with_gpus_is_free_as_far_as_they_are(pods: Sequence[Body], free: float) -> None:
    assert free_share(HGX, requests_on(pods)) == free


def test_slices_count_as_what_they_are_of() -> None:
    sliced = {"nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "28", "nvidia.com/mig-3g.40gb": "8"}
    pods = [pod(resources=gpus("7", "nvidia.com/mig-1g.10gb"))]
    assert free_share(sliced, requests_on(pods)) == pytest.approx(0.875)


def test_a_server_without_gpus_is_free_as_far_as_its_cpus_are() -> None:
    assert free_share({"cpu": "4"}, requests_on([pod(resources={"requests": {"cpu": "500m"}})])) == 0.875


@pytest.mark.parametrize("allocatable", [{}, {"cpu": "0"}, {"cpu": "x", "nvidia.com/gpu": "none"}])
def test_of_a_node_that_does_not_say_what_it_has_nothing_is_known(allocatable: Body) -> None:
    assert free_share(allocatable, requests_on([pod(resources=GPU)])) is None


def test_what_a_pod_has_by_a_claim_is_not_known_where_the_node_shows_no_gpus() -> None:
    claimed = pod(spec={"resourceClaims": [{"name": "gpu"}]})
    assert free_share({"cpu": "4"}, requests_on([claimed])) is None
    assert free_share(HGX, requests_on([claimed])) == 1.0


def test_containers_that_run_one_after_the_other_share_what_they_request() -> None:
    init = [
        {"name": "warm-up", "resources": gpus("4")},
        {"name": "sidecar", "restartPolicy": "Always", "resources": gpus("1")},
    ]
    made = pod(resources=gpus("2"), spec={"initContainers": init, "containers": [{"resources": gpus("2")}]})
    assert requests_of(made) == {"nvidia.com/gpu": 4.0, "cpu": 2.0}
    kept = trim_pod(made)
    assert kept is not None
    assert requests_of(kept) == requests_of(made)


def test_what_is_requested_for_a_pod_as_a_whole_counts() -> None:
    made = pod(resources=gpus("2"), spec={"resources": {"requests": {"cpu": "8"}}})
    assert requests_of(made) == {"nvidia.com/gpu": 2.0, "cpu": 8.0}


def look(pods: Sequence[Body], allocatable: Body | None) -> float:
    nodes, cache = FakeSource(), FakeSource()
    if allocatable is not None:
        nodes.objects["r01-u01"] = {"metadata": {"name": "r01-u01"}, "status": {"allocatable": allocatable}}
    cache.objects = {each["metadata"]["name"]: each for each in pods}
    workloads = ClusterWorkloads(
        None,  # type: ignore[arg-type]
        FakeEvents(),
        cache,
        nodes=nodes,
        now=lambda: NOON,
    )
    server = Server(metadata=ObjectMeta(name="r01-u01"), spec=ServerSpec(boot_mac_address="52:54:00:00:00:01"))
    return workloads.look(server, pool(), fresh=False).free


def test_a_look_says_how_much_is_free_and_where_that_is_not_known_all_or_nothing() -> None:
    job = pod("train", resources=gpus("2"))
    assert look([job], HGX) == 0.75
    assert look([job], None) == 0.0
    assert look([], None) == 1.0
