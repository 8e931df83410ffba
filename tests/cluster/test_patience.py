"""After a restart the API server refuses what it allows a moment later: nothing is lost or given up for that."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from provisioner.api.machinery.errors import Forbidden, ProvisionerError, Retryable
from provisioner.cluster.client import Cluster
from provisioner.cluster.events import EventRecorder
from provisioner.cluster.patience import (
    FORGET_SECONDS,
    MOST_REQUESTS,
    PATIENCE_SECONDS,
    ForbiddenPatience,
    NotYetAllowed,
)
from provisioner.cluster.resources import NODES
from provisioner.join.tokens.mint import token_secret_name
from provisioner.join.tokens.stale_tokens import TokenCleaner
from tests.cluster.fault_injecting_proxy import FaultInjectingProxy, Injected, Seen, status_body
from tests.cluster.test_events import GENEROUS_SECONDS, create_node, events_of

PATCH = "PATCH Node r01-u01"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def forbidden() -> Forbidden:
    return Forbidden(f"{PATCH}: nodes is forbidden", hint="grant the right")


def judged(patience: ForbiddenPatience, request: str = PATCH) -> type[ProvisionerError]:
    return type(patience.judge(request, forbidden()))


def test_what_is_forbidden_is_tried_again_for_a_while_since_the_first_time() -> None:
    clock = Clock()
    patience = ForbiddenPatience(clock)
    waits = []
    while clock.now < PATIENCE_SECONDS:
        error = patience.judge(PATCH, forbidden())
        assert isinstance(error, NotYetAllowed)
        assert "nodes is forbidden" in str(error)
        waits.append(error.after_seconds)
        clock.now += error.after_seconds
    assert 3 < len(waits) < 30
    for _ in range(5):
        assert judged(patience) is Forbidden
        clock.now += 300  # as seldom as a controller tries what needs a person


def test_each_request_has_its_own_time() -> None:
    clock = Clock()
    patience = ForbiddenPatience(clock)
    judged(patience)
    clock.now = PATIENCE_SECONDS
    assert judged(patience) is Forbidden
    assert judged(patience, "PATCH Node r01-u02") is NotYetAllowed


@pytest.mark.parametrize("after", ["it was allowed", "a long time"])
def test_a_new_refusal_is_tried_again_anew(after: str) -> None:
    clock = Clock()
    patience = ForbiddenPatience(clock)
    judged(patience)
    clock.now = PATIENCE_SECONDS
    assert judged(patience) is Forbidden
    if after == "it was allowed":
        patience.is_allowed(PATCH)
    else:
        clock.now += FORGET_SECONDS + 1
    assert judged(patience) is NotYetAllowed


def test_what_it_remembers_is_bounded() -> None:
    patience = ForbiddenPatience(Clock())
    for number in range(2 * MOST_REQUESTS):
        patience.judge(f"PATCH Node n{number}", forbidden())
    assert len(patience._refused) == MOST_REQUESTS


def refuses(first: int, matches: Callable[[Seen], bool] = lambda _: True) -> Callable[[Seen], Injected | None]:
    """As an API server that has just started: the first so many requests are forbidden."""
    left = [first]

    def decide(request: Seen) -> Injected | None:
        if left[0] <= 0 or not matches(request):
            return None
        left[0] -= 1
        return Injected(403, status_body(403, "User cannot do that: RBAC: clusterrole not found"))

    return decide


@pytest.fixture
def patient(faulty: Cluster) -> Cluster:
    """The client of a service, through the proxy."""
    return Cluster(faulty._transport, patience=ForbiddenPatience())


def test_a_service_tries_again_and_a_command_says_so_at_once(
    patient: Cluster, faulty: Cluster, proxy: FaultInjectingProxy, unique: str
) -> None:
    create_node(faulty, unique)
    proxy.inject(refuses(2))
    with pytest.raises(Retryable, match="clusterrole not found"):
        patient.get(NODES, unique)
    with pytest.raises(Forbidden, match="clusterrole not found"):
        faulty.get(NODES, unique)
    assert patient.get(NODES, unique)["metadata"]["name"] == unique


def test_an_event_that_was_forbidden_after_a_restart_is_not_lost(
    patient: Cluster, faulty: Cluster, proxy: FaultInjectingProxy, unique: str
) -> None:
    node = create_node(faulty, unique)
    dropped: list[str] = []
    recorder = EventRecorder(patient, "test-recorder", dropped=dropped.append)
    proxy.inject(refuses(5, lambda seen: seen.method == "POST"))
    recorder.record(node, "Warning", "DrainTimedOut", "not empty")
    assert recorder.flush(GENEROUS_SECONDS)
    assert dropped == []
    assert "DrainTimedOut" in [event["reason"] for event in events_of(faulty, unique)]


def test_a_token_that_could_not_be_deleted_after_a_restart_is_not_called_anothers(
    patient: Cluster, proxy: FaultInjectingProxy
) -> None:
    proxy.inject(refuses(1, lambda seen: seen.path.endswith(token_secret_name("abcdef"))))
    with pytest.raises(Retryable):
        TokenCleaner(cluster=patient).reconcile("abcdef")
    TokenCleaner(cluster=patient).reconcile("abcdef")
