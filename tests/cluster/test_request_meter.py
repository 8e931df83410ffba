"""What is asked of the API server is counted by verb, resource and class of the answer, whoever asks."""

from __future__ import annotations

from contextlib import suppress

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from lab.control_plane.plane import ControlPlane
from provisioner.api import Server
from provisioner.api.machinery.errors import Conflict, Forbidden
from provisioner.cluster.client import Cluster
from provisioner.cluster.request_meter import CODES, RequestMeter, class_of
from provisioner.cluster.request_name import verb_and_resource
from provisioner.cluster.resources import CONFIG_MAPS, LEASES, NODES, PODS, SELF_REVIEWS, of

SERVERS = of(Server)
APPLY = "application/apply-patch+yaml"


@pytest.mark.parametrize(
    ("method", "path", "query", "content_type", "expected"),
    [
        ("GET", SERVERS.item("r01-u01"), None, None, ("get", "servers")),
        ("GET", SERVERS.path, {"limit": 500}, None, ("list", "servers")),
        ("GET", SERVERS.path, {"watch": "true"}, None, ("watch", "servers")),
        ("GET", LEASES.item("a", "provisioner-system"), None, None, ("get", "leases")),
        ("GET", LEASES.collection("kube-node-lease"), None, None, ("list", "leases")),
        ("GET", "/api/v1/namespaces", None, None, ("list", "namespaces")),
        ("GET", "/api/v1/namespaces/a", None, None, ("get", "namespaces")),
        ("POST", PODS.item("a", "b", "eviction"), None, "application/json", ("create", "pods/eviction")),
        ("POST", SELF_REVIEWS.path, None, "application/json", ("create", "selfsubjectreviews")),
        ("PATCH", SERVERS.item("a", None, "status"), None, APPLY, ("apply", "servers/status")),
        ("PATCH", NODES.item("a"), None, "application/json-patch+json", ("patch", "nodes")),
        ("PUT", NODES.item("a"), None, "application/json", ("update", "nodes")),
        ("DELETE", CONFIG_MAPS.item("a", "b"), None, "application/json", ("delete", "configmaps")),
        ("GET", "/apis/example.com/v1", None, None, ("get", "discovery")),
        ("GET", "/openapi/v3/apis/provisioner.dev/v1alpha1", None, None, ("get", "discovery")),
        ("GET", "/version", None, None, ("get", "discovery")),
    ],
)
def test_a_request_is_called_what_rbac_calls_it(
    method: str, path: str, query: dict[str, object] | None, content_type: str | None, expected: tuple[str, str]
) -> None:
    assert verb_and_resource(method, path, query, content_type) == expected


def test_an_answer_has_one_of_few_classes() -> None:
    statuses = (200, 201, 304, 401, 403, 404, 409, 422, 429, 500, 504, None)
    classes = ("2xx", "2xx", "2xx", "401", "403", "404", "409", "4xx", "429", "5xx", "5xx", "none")
    assert tuple(map(class_of, statuses)) == classes
    assert {class_of(status) for status in range(100, 1000)} | {"none"} == set(CODES)


def counts(registry: CollectorRegistry) -> dict[str, float]:
    lines = generate_latest(registry).decode().splitlines()
    found = (line.rpartition(" ") for line in lines if line.startswith("provisioner_api_request"))
    return {name: float(value) for name, _, value in found if float(value) and "_created" not in name}


def requests(registry: CollectorRegistry) -> dict[str, float]:
    return {
        name[len("provisioner_api_requests_total") :]: v for name, v in counts(registry).items() if "_total" in name
    }


def test_requests_are_counted_as_the_api_server_answers_them_by_whichever_account(
    control_plane: ControlPlane, cluster: Cluster, unique: str
) -> None:
    registry = CollectorRegistry()
    meter = RequestMeter(registry)
    assert meter.answered_ago() is None
    metered = Cluster.connect(control_plane.kubeconfig, meter=meter)
    body = {"metadata": {"name": unique, "namespace": "default"}}
    metered.create(CONFIG_MAPS, body)
    with suppress(Conflict):
        metered.create(CONFIG_MAPS, body)
    other = metered.with_timeout(20).acting_as("nobody")
    with suppress(Forbidden):
        other.get(NODES, unique)
    position = metered.list(CONFIG_MAPS, namespace="default").resource_version
    with metered.watch(CONFIG_MAPS, position, timeout_seconds=1, silence_seconds=30, namespace="default"):
        pass
    cluster.delete(CONFIG_MAPS, unique, namespace="default")
    assert requests(registry) == {
        '{code="2xx",resource="configmaps",verb="create"}': 1,
        '{code="409",resource="configmaps",verb="create"}': 1,
        '{code="403",resource="nodes",verb="get"}': 1,
        '{code="2xx",resource="configmaps",verb="list"}': 1,
        '{code="2xx",resource="configmaps",verb="watch"}': 1,
    }
    assert unique not in str(counts(registry))
    assert counts(registry)['provisioner_api_request_seconds_count{resource="configmaps",verb="create"}'] == 2
    assert (meter.answered_ago() or 0) >= 0


def test_what_gets_no_answer_is_counted_and_is_none() -> None:
    registry, now = CollectorRegistry(), [100.0]
    meter = RequestMeter(registry, clock=lambda: now[0])
    for status in (200, None):
        meter.seen("get", "nodes", status, 0.5)
        now[0] += 30
    assert requests(registry)['{code="none",resource="nodes",verb="get"}'] == 1
    assert meter.answered_ago() == 60


def test_series_of_a_kind_are_born_together_so_that_the_first_refusal_is_an_increase() -> None:
    registry = CollectorRegistry()
    RequestMeter(registry).seen("patch", "nodes", 200, 0.1)
    told = [line for line in generate_latest(registry).decode().splitlines() if "requests_total{" in line]
    assert len(told) == len(CODES)


def test_however_many_kinds_are_asked_for_the_series_stay_few() -> None:
    registry = CollectorRegistry()
    meter = RequestMeter(registry)
    for number in range(5000):
        meter.seen("get", f"kind{number}", 200, 0.1)
    assert len(requests(registry)) <= 1601
