"""The authorization webhook: its opinions, and its port under those who mean it no good."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from lab.control_plane.pki import Authority
from provisioner.api.machinery.errors import NeedsHuman
from provisioner.cluster.source import Snapshot
from provisioner.join.credentials import web
from provisioner.join.credentials.listed import ListedServer, role_of, shard_of
from provisioner.join.credentials.review import (
    FRESH_SECONDS,
    CredentialDenied,
    CredentialList,
    NoOpinion,
    Opinion,
    Requester,
    judge,
)
from provisioner.join.credentials.web import MAX_BODY_BYTES, MAX_CONNECTIONS, PATH, AuthorizerServer, ServerTLS
from provisioner.node.http import lingering_close

PATIENCE_SECONDS = 180.0
OURS, CURRENT, OLD = "r01-u01", "X509SHA256=" + "a" * 64, "X509SHA256=" + "b" * 64
NODE = ("system:nodes", "system:authenticated")


def listed(age: float = 0.0) -> CredentialList:
    role = role_of(shard_of(OURS), {OURS: ListedServer(credentials=(CURRENT,))})
    return CredentialList(Snapshot({f"provisioner-credentials/{shard_of(OURS)}": role}), lambda: age)


def opinion(user: str, credential: str | None, groups: tuple[str, ...] = NODE, age: float = 0.0) -> Opinion:
    return judge(Requester(user=user, groups=groups, credential=credential), listed(age))


def test_a_certificate_of_an_earlier_boot_is_denied_and_the_current_one_is_left_to_others() -> None:
    assert isinstance(opinion(f"system:node:{OURS}", OLD), CredentialDenied)
    assert isinstance(opinion(f"system:node:{OURS}", None), CredentialDenied)
    assert isinstance(opinion(f"system:node:{OURS}", CURRENT), NoOpinion)


@pytest.mark.parametrize(
    ("user", "groups"),
    [
        ("system:node:stranger", NODE),
        ("system:node:", NODE),
        ("system:kube-scheduler", ("system:authenticated",)),
        (OURS, NODE),
        (f"system:node:{OURS}", ("system:authenticated",)),
    ],
)
def test_who_is_no_node_of_ours_is_left_to_others(user: str, groups: tuple[str, ...]) -> None:
    assert isinstance(opinion(user, OLD, groups), NoOpinion)


def test_on_a_list_that_may_be_old_nobody_is_denied() -> None:
    assert isinstance(opinion(f"system:node:{OURS}", OLD, age=FRESH_SECONDS), CredentialDenied)
    stale = opinion(f"system:node:{OURS}", OLD, age=FRESH_SECONDS + 1)
    assert isinstance(stale, NoOpinion)
    assert "121 s ago" in stale.reason


# The port


class Site:
    """A running webhook, and who may ask it."""

    def __init__(self, folder: Path) -> None:
        servers, clients = Authority.create(folder, "servers"), Authority.create(folder, "clients")
        self.served = servers.issue("authorizer", "authorizer", server_names=["127.0.0.1"])
        self.client, self.other = clients.issue("api", "kube-apiserver"), servers.issue("api2", "kube-apiserver")
        self.servers, self.clients = servers, clients
        self.tls = ServerTLS(self.served.certificate, self.served.key, clients.files.certificate)
        self.server = AuthorizerServer("127.0.0.1", 0, self.tls, listed())
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05})
        self.thread.start()

    def context(self, pair: Any = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.servers.files.certificate))
        if pair is not None:
            context.load_cert_chain(pair.certificate, pair.key)
        return context

    def connect(self, pair: Any = None) -> http.client.HTTPSConnection:
        context = self.context(pair if pair is not None else self.client)
        return http.client.HTTPSConnection("127.0.0.1", self.server.port, context=context, timeout=PATIENCE_SECONDS)

    def post(self, body: bytes, path: str = PATH, **headers: str) -> tuple[int, dict[str, Any]]:
        with closing(self.connect()) as connection:
            connection.request("POST", path, body, {"Content-Type": "application/json", **headers})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(PATIENCE_SECONDS)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.close()


def review(user: str = f"system:node:{OURS}", credential: str = OLD, **spec: Any) -> bytes:
    extra = {"authentication.kubernetes.io/credential-id": [credential]}
    asked = {"user": user, "groups": list(NODE), "extra": extra, "resourceAttributes": {"verb": "list"}, **spec}
    return json.dumps({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": asked}).encode()


def test_an_api_server_is_told_by_the_connection_that_it_keeps(site: Site) -> None:
    with closing(site.connect()) as connection:
        for credential, denied in ((OLD, True), (CURRENT, False), (OLD, True)):
            connection.request("POST", f"{PATH}?timeout=3s", review(credential=credential))
            answer = connection.getresponse()
            said = json.loads(answer.read())
            assert answer.status == 200
            assert (said["kind"], said["status"]["allowed"]) == ("SubjectAccessReview", False)
            assert said["status"]["denied"] is denied


@pytest.mark.parametrize(
    ("what", "body", "status"),
    [
        ("no JSON", b"{", 400),
        ("deep JSON", b"[" * 50_000, 400),
        ("another kind", b'{"kind":"TokenReview"}', 400),
        ("no spec", review().replace(b'"spec"', b'"speck"'), 400),
        ("an extra that is no map", review(extra=["a"]), 400),
        ("a credential that is no text", review(extra={"authentication.kubernetes.io/credential-id": [1]}), 400),
        ("groups that are text", review(groups="system:nodes"), 400),
        ("too much", b" " * (MAX_BODY_BYTES + 1), 413),
        ("as much as may be", review() + b" " * (MAX_BODY_BYTES - len(review())), 200),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_review_is_refused_and_the_next_one_answered(
    site: Site, what: str, body: bytes, status: int
) -> None:
    assert site.post(body)[0] == status
    assert site.post(review())[0] == 200


def test_another_path_and_a_body_without_length_are_refused(site: Site) -> None:
    assert site.post(review(), path="/")[0] == 404
    assert site.post(review(), **{"Transfer-Encoding": "chunked"})[0] == 411


@pytest.mark.parametrize("who", ["nobody", "somebody of another authority"])
def test_who_shows_no_certificate_of_the_clients_authority_is_told_nothing(site: Site, who: str) -> None:
    context = site.context(site.other if who != "nobody" else None)
    stranger = http.client.HTTPSConnection("127.0.0.1", site.server.port, context=context, timeout=PATIENCE_SECONDS)

    def ask() -> None:
        stranger.request("POST", PATH, review())
        stranger.getresponse()

    with closing(stranger), pytest.raises((OSError, http.client.HTTPException)):
        ask()
    assert site.post(review())[0] == 200


def test_who_connects_without_end_and_says_nothing_keeps_no_api_server_out(site: Site) -> None:
    with ExitStack() as stack:
        for _ in range(MAX_CONNECTIONS + 10):
            stack.enter_context(socket.create_connection(("127.0.0.1", site.server.port), PATIENCE_SECONDS))
        assert site.post(review())[0] == 200


def test_who_drips_is_cut_off(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "REQUEST_SECONDS", 1.0)
    plain = socket.create_connection(("127.0.0.1", site.server.port), PATIENCE_SECONDS)

    def drip(connection: ssl.SSLSocket) -> None:
        for byte in f"POST {PATH} HTTP/1.1\r\nHost: a\r\nX: {'a' * 1000}".encode():
            connection.sendall(bytes([byte]))
            time.sleep(0.1)

    slow = site.context(site.client).wrap_socket(plain, server_hostname="127.0.0.1")
    with slow, pytest.raises((ConnectionError, ssl.SSLError)):
        drip(slow)
    assert site.post(review())[0] == 200


def test_who_drips_after_a_refusal_is_cut_off_with_the_time_of_its_request(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "REQUEST_SECONDS", 1.0)
    monkeypatch.setattr(lingering_close, "LINGER_SECONDS", 3600.0)
    plain = socket.create_connection(("127.0.0.1", site.server.port), PATIENCE_SECONDS)

    def drip(connection: ssl.SSLSocket) -> None:
        connection.sendall(f"POST {PATH} HTTP/1.1\r\nHost: a\r\nContent-Length: {10 * MAX_BODY_BYTES}\r\n\r\n".encode())
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            connection.sendall(b"x")
            time.sleep(0.05)

    with (
        site.context(site.client).wrap_socket(plain, server_hostname="127.0.0.1") as slow,
        pytest.raises((ConnectionError, ssl.SSLError)),
    ):
        drip(slow)
    assert site.post(review())[0] == 200


def test_a_renewed_certificate_serves_without_a_restart_and_a_broken_one_counts_for_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "LOOK_AGAIN_SECONDS", 0.0)

    def serial() -> str:
        with closing(site.connect()) as connection:
            connection.connect()
            return str(connection.sock.getpeercert()["serialNumber"])

    first = serial()
    whole = site.served.certificate.read_bytes()
    site.served.certificate.write_bytes(whole[: len(whole) // 2])
    assert serial() == first
    renewed = site.servers.issue("renewed", "authorizer", server_names=["127.0.0.1"])
    site.served.key.write_bytes(renewed.key.read_bytes())
    site.served.certificate.write_bytes(renewed.certificate.read_bytes())
    assert serial() != first


def test_files_that_are_no_certificates_are_named(tmp_path: Path) -> None:
    nothing = tmp_path / "nothing.pem"
    nothing.write_text("")
    with pytest.raises(NeedsHuman, match=r"nothing\.pem"):
        ServerTLS(nothing, nothing, nothing)
