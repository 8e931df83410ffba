"""The HTTP of the join, on a real waitress: which answer becomes which status, and what is never passed on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flask import Flask

from provisioner.api.machinery.errors import NeedsHuman, Retryable
from provisioner.api.machinery.values import Secret
from provisioner.join.admission.admit import Challenged, Denied, NotYet
from provisioner.join.admission.configuration import JoinConfiguration
from provisioner.join.admission.kubelet_configuration import kubelet_configuration
from provisioner.join.admission.request import MAX_REQUEST_BYTES
from provisioner.join.admission.web import join_blueprint
from tests.join.front import post_as_nginx, serve
from tests.join.samples import ADDRESS, body, request

CONFIGURATION = JoinConfiguration(
    node_name="r01-u01",
    api_server_url="https://10.80.0.1:6443",
    cluster_ca="-----BEGIN CERTIFICATE-----\n",
    bootstrap_token=Secret("abc123.0123456789abcdef"),
    node_address=ADDRESS,
    kubelet=kubelet_configuration({}),
)


class FakeJoinService:
    """A service that answers what it is told to, and remembers what it was asked."""

    def __init__(self) -> None:
        self.answer: Any = CONFIGURATION
        self.asked: list[Any] = []

    def join(self, request: Any, source_address: str, *, by_dpu: bool = False) -> Any:
        self.asked.append((request, source_address, *(["by DPU"] if by_dpu else [])))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def service() -> FakeJoinService:
    return FakeJoinService()


@pytest.fixture
def path(service: FakeJoinService, tmp_path: Path) -> Iterator[Path]:
    with serve(service, tmp_path / "s") as socket_path:
        yield socket_path


def test_a_configuration_is_sent_whole_and_cached_nowhere(path: Path, service: FakeJoinService) -> None:
    reply = post_as_nginx(path, body(), ADDRESS)
    assert reply.status == 200
    assert reply.headers["Cache-Control"] == "no-store"
    assert reply.body == {
        "nodeName": "r01-u01",
        "apiServer": "https://10.80.0.1:6443",
        "clusterCA": "-----BEGIN CERTIFICATE-----\n",
        "bootstrapToken": "abc123.0123456789abcdef",
        "nodeAddress": ADDRESS,
        "kubeletConfiguration": kubelet_configuration({}),
    }
    assert service.asked == [(request(), ADDRESS)]


@pytest.mark.parametrize(
    ("answer", "status", "expected"),
    [
        (Denied("NotAccepted", "it is Pending"), 403, {"reason": "NotAccepted", "message": "it is Pending"}),
        (
            NotYet("NotOrdered", "nobody ordered it", 4.2),
            425,
            {"reason": "NotOrdered", "message": "nobody ordered it", "retryAfterSeconds": 5},
        ),
        (
            Challenged({"nonce": "abc"}),
            401,
            {"reason": "Challenge", "message": "prove who you are", "challenge": {"nonce": "abc"}},
        ),
        (
            Retryable("GET Server r01-u01: connection refused", after_seconds=2.5),
            503,
            {"reason": "Unavailable", "message": "the cluster does not answer now", "retryAfterSeconds": 3},
        ),
        (
            NeedsHuman("secrets is forbidden", hint="grant it"),
            503,
            {"reason": "Unavailable", "message": "the join service has a fault; see its log", "retryAfterSeconds": 15},
        ),
        (
            KeyError("boom"),
            503,
            {"reason": "Unavailable", "message": "the join service has a fault; see its log", "retryAfterSeconds": 15},
        ),
    ],
)
def test_every_answer_has_its_status(
    path: Path, service: FakeJoinService, answer: Any, status: int, expected: dict[str, Any]
) -> None:
    service.answer = answer
    reply = post_as_nginx(path, body(), ADDRESS)
    assert (reply.status, reply.body) == (status, expected)
    assert reply.headers["Cache-Control"] == "no-store"
    if "retryAfterSeconds" in expected:
        assert reply.headers["Retry-After"] == str(expected["retryAfterSeconds"])
    schemes = [value for name, value in reply.headers.items() if name.lower() == "www-authenticate"]
    assert schemes == (["Attestation"] if status == 401 else [])


@pytest.mark.parametrize(
    ("raw", "headers", "status"),
    [
        (b"{", {}, 400),
        (body(requestKey="x"), {}, 400),
        (body(), {"Content-Type": "text/plain"}, 415),
        (body(), {"Content-Type": "application/x-www-form-urlencoded"}, 415),
        (b"x" * (MAX_REQUEST_BYTES + 1), {}, 413),
    ],
)
def test_what_is_malformed_does_not_reach_the_service(
    path: Path, service: FakeJoinService, raw: bytes, headers: dict[str, str], status: int
) -> None:
    assert post_as_nginx(path, raw, ADDRESS, headers).status == status
    assert service.asked == []


def test_a_proxy_that_names_no_source_is_not_guessed_at(path: Path, service: FakeJoinService) -> None:
    assert post_as_nginx(path, body(), "unknown").status == 400
    assert service.asked == []


def test_another_header_than_nginx_s_own_names_no_source(path: Path, service: FakeJoinService) -> None:
    assert post_as_nginx(path, body(), ADDRESS, {"X-Forwarded-For": "10.80.0.99"}).status == 200
    assert service.asked == [(request(), ADDRESS)]


@pytest.mark.parametrize(
    ("peer", "source"),
    [(ADDRESS, ADDRESS), (f"::ffff:{ADDRESS}", ADDRESS), ("fd00::5", "fd00::5"), ("localhost", None), ("", None)],
)
def test_who_asks_is_the_peer_and_one_without_an_address_is_refused(
    service: FakeJoinService, peer: str, source: str | None
) -> None:
    application = Flask("join")
    application.register_blueprint(join_blueprint(service, is_known=lambda source: False))
    reply = application.test_client().post(
        "/v1/join",
        data=body(),
        content_type="application/json",
        headers={"X-Forwarded-For": "10.80.0.99"},
        environ_overrides={"REMOTE_ADDR": peer},
    )
    assert reply.get_json().get("reason") == (None if source else "NoSourceAddress")
    assert service.asked == ([(request(), source)] if source else [])
