"""Each answer of the API server becomes the error that says what to do."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
import yaml

from lab.control_plane.plane import ControlPlane
from provisioner.api.machinery.errors import (
    Conflict,
    Forbidden,
    NeedsHuman,
    NotFound,
    ProvisionerError,
    Refused,
    Retryable,
)
from provisioner.cluster.changes import read_changes
from provisioner.cluster.client import Cluster
from provisioner.cluster.failures import Busy, Expired, Inapplicable, raise_failure
from provisioner.cluster.resources import NODES
from tests.cluster.fault_injecting_proxy import FaultInjectingProxy, Injected, status_body


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, Refused),
        (401, Refused),
        (403, Forbidden),
        (404, NotFound),
        (405, Refused),
        (409, Conflict),
        (410, Expired),
        (413, Refused),
        (415, Refused),
        (422, Inapplicable),
        (408, Retryable),
        (429, Busy),
        (500, Retryable),
        (502, Retryable),
        (503, Retryable),
        (504, Retryable),
    ],
)
def test_each_status_has_its_error_and_keeps_the_servers_words(status: int, error: type[ProvisionerError]) -> None:
    with pytest.raises(error, match="GET Node a: words of the server") as raised:
        raise_failure(status, {}, status_body(status, "words of the server"), "GET Node a")
    assert type(raised.value) is error


def test_a_patch_that_does_not_fit_is_told_from_an_object_that_is_refused() -> None:
    """What a policy or the kind's rules refuse is named in the details."""
    for details, error in (({}, Inapplicable), ({"name": "a", "kind": "Node", "causes": []}, Refused)):
        body = json.dumps({"kind": "Status", "message": "in words", "reason": "Invalid", "details": details}).encode()
        with pytest.raises(Refused) as raised:
            raise_failure(422, {}, body, "PATCH Node a")
        assert type(raised.value) is error


@pytest.mark.parametrize(
    ("headers", "body", "seconds"),
    [
        ({"Retry-After": "7"}, b"", 7.0),
        ({}, status_body(429, "slow down", retryAfterSeconds=3), 3.0),
        ({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, b"", 1.0),
        ({"Retry-After": "999999"}, b"", 300.0),
        ({}, b"<html>502 Bad Gateway</html>", 1.0),
    ],
)
def test_the_wait_that_the_server_asks_for_is_kept_within_reason(
    headers: dict[str, str], body: bytes, seconds: float
) -> None:
    with pytest.raises(Retryable) as raised:
        raise_failure(429, headers, body, "GET Node a")
    assert raised.value.after_seconds == seconds


def test_a_conflict_in_the_way_is_the_callers_conflict(proxy: FaultInjectingProxy, faulty: Cluster) -> None:
    proxy.inject(lambda _: Injected(409, status_body(409, "the object has been modified")))
    with pytest.raises(Conflict, match="the object has been modified"):
        faulty.get(NODES, "a")


def test_an_answer_that_is_no_json_is_worth_another_try(proxy: FaultInjectingProxy, faulty: Cluster) -> None:
    proxy.inject(lambda _: Injected(200, b"<html>captive portal</html>"))
    with pytest.raises(Retryable, match="answered no JSON"):
        faulty.list(NODES)


def test_a_page_that_expired_leads_to_a_list_in_one_piece(proxy: FaultInjectingProxy, faulty: Cluster) -> None:
    gone = [Injected(410, status_body(410, "The provided continue parameter is too old"))]
    proxy.inject(lambda _: gone.pop() if gone else None)
    assert int(faulty.list(NODES).resource_version) > 0
    assert "limit" not in proxy.seen()[-1].query


def test_a_hung_request_ends_with_its_timeout(proxy: FaultInjectingProxy, faulty: Cluster) -> None:
    with proxy.hanging(), pytest.raises(Retryable, match="timed out"):
        faulty.with_timeout(0.5).list(NODES)


def test_nobody_listening_is_worth_another_try(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        kubeconfig = tmp_path / "kubeconfig"
        server = f"http://127.0.0.1:{taken.getsockname()[1]}"
        kubeconfig.write_text(
            yaml.safe_dump(
                {
                    "clusters": [{"name": "a", "cluster": {"server": server}}],
                    "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
                    "users": [{"name": "a", "user": {}}],
                    "current-context": "a",
                }
            )
        )
        with pytest.raises(Retryable, match=f"no answer from {server}"):
            Cluster.connect(kubeconfig).list(NODES)


def test_a_server_with_a_foreign_certificate_is_not_talked_to(control_plane: ControlPlane, tmp_path: Path) -> None:
    content = yaml.safe_load(control_plane.kubeconfig.read_text())
    del content["clusters"][0]["cluster"]["certificate-authority-data"]
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(content))
    with pytest.raises(Retryable, match="CERTIFICATE_VERIFY_FAILED"):
        Cluster.connect(kubeconfig).list(NODES)


def test_an_absent_kubeconfig_is_named(tmp_path: Path) -> None:
    with pytest.raises(NeedsHuman, match=r"absent\.kubeconfig"):
        Cluster.connect(tmp_path / "absent.kubeconfig")


def test_without_kubeconfig_outside_a_pod_the_remedy_is_named() -> None:
    with pytest.raises(NeedsHuman, match=r"service account.*name a kubeconfig"):
        Cluster.connect(None)


class _Lines:
    def __init__(self, *lines: bytes) -> None:
        self._lines = lines

    def lines(self) -> object:
        return iter(self._lines)


@pytest.mark.parametrize("line", [b"<html>", b"[]", b"{}", b'{"type": "ADDED"}', b'"ADDED"', b"17"])
def test_nonsense_on_a_watch_breaks_it_off(line: bytes) -> None:
    with pytest.raises(Retryable, match="carried no change"):
        list(read_changes(_Lines(line), deadline=1, clock=lambda: 0))  # type: ignore[arg-type]


def test_a_watch_that_outlives_its_time_is_broken_off() -> None:
    with pytest.raises(Retryable, match="outlived"):
        list(read_changes(_Lines(b""), deadline=1, clock=lambda: 2))  # type: ignore[arg-type]


def test_a_malformed_apply_is_refused_though_the_api_server_calls_it_an_internal_error(
    cluster: Cluster, unique: str
) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": unique, "namespace": "default"},
        "noSuchField": 1,
    }
    with pytest.raises(Refused, match="noSuchField"):
        cluster.apply(body, manager="test")
