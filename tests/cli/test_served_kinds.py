"""A version that meets kinds of an older one says which fields are missing, and waits: nothing is written in halves."""

from __future__ import annotations

import copy
import threading
from typing import Any

import pytest
from structlog.testing import capture_logs

from provisioner.api.machinery.errors import NotFound, Retryable
from provisioner.cli.service import served_kinds
from provisioner.cli.service.served_kinds import find_missing, wait_for_kinds, warn_of_kinds
from provisioner.cluster.client import Cluster
from tests.people import until

SERVER = "dev.provisioner.v1alpha1.Server"


class FakeCluster:
    """Serves one document after the other, and the last one for ever. An error is raised."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)

    def served_schemas(self) -> Any:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture(scope="module")
def served(cluster: Cluster) -> Any:
    """What a real API server says once the manifests of this version were applied."""
    until(lambda: find_missing(cluster.served_schemas()) == [])  # a moment after the CRDs themselves
    return cluster.served_schemas()


def _without(served: Any, *path: str) -> Any:
    older = copy.deepcopy(served)
    schema = older["components"]["schemas"][SERVER]
    for name in path[:-1]:
        schema = schema["properties"][name]
    del schema["properties"][path[-1]]
    return older


def test_a_real_api_server_serves_all_once_the_manifests_are_applied(served: Any) -> None:
    assert find_missing(served) == []


def test_every_account_may_ask(account: Any) -> None:
    for name in ("controller", "boot", "power"):
        assert find_missing(account(name).served_schemas()) == []


def test_a_field_that_is_missing_is_named(served: Any) -> None:
    assert find_missing(_without(served, "status", "order", "attemptID")) == ["Server.status.order.attemptID"]
    assert find_missing(_without(served, "status", "order")) == ["Server.status.order"]


def test_a_kind_that_is_missing_is_named(served: Any) -> None:
    older = copy.deepcopy(served)
    del older["components"]["schemas"][SERVER]
    assert find_missing(older) == ["Server"]
    assert "Server" in find_missing({})


def test_fields_that_only_a_later_version_has_are_none_of_our_business(served: Any) -> None:
    newer = copy.deepcopy(served)
    newer["components"]["schemas"][SERVER]["properties"]["status"]["properties"]["later"] = {"type": "string"}
    assert find_missing(newer) == []


def test_a_controller_waits_and_says_once_for_what(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_kinds, "ASK_AGAIN_SECONDS", 0.001)
    older = _without(served, "status", "order")
    fake: Any = FakeCluster(
        NotFound("no such group", hint=""), older, older, Retryable("busy", after_seconds=1), served
    )
    with capture_logs() as logs:
        assert wait_for_kinds(fake, threading.Event())
    told = [each for each in logs if each["event"] == "kinds are older than this version"]
    assert [each["missing"] for each in told[1:]] == [["Server.status.order"]]
    assert len(told[0]["missing"]) == served_kinds.SHOWN
    assert told[0]["more"] > 0
    assert "provisioner crds | kubectl apply --server-side" in told[1]["remedy"]


def test_who_is_stopped_while_it_waits_begins_nothing() -> None:
    stop = threading.Event()
    stop.set()
    fake: Any = FakeCluster({})
    assert not wait_for_kinds(fake, stop)


def test_a_boot_host_warns_and_goes_on(served: Any) -> None:
    fake: Any = FakeCluster(_without(served, "status", "order"))
    with capture_logs() as logs:
        warn_of_kinds(fake)
    assert [each["missing"] for each in logs] == [["Server.status.order"]]
