"""Requests to an API server that drips, floods or packs its answers."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from provisioner.api.machinery.errors import Retryable
from provisioner.cluster import transport
from provisioner.cluster.client import Cluster
from provisioner.cluster.failures import Busy
from provisioner.cluster.resources import NODES
from provisioner.outbound.deadline import current_call
from tests.outbound.backend import HEAD, Script, answer, backend

SECONDS = 1.0
PATIENCE = 180.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@contextmanager
def connected(folder: Path, script: Script) -> Iterator[Cluster]:
    with backend(script) as url:
        named = {"clusters": [{"name": "c", "cluster": {"server": url}}], "users": [{"name": "u", "user": {}}]}
        contexts = [{"name": "x", "context": {"cluster": "c", "user": "u"}}]
        content = {"apiVersion": "v1", "kind": "Config", **named, "contexts": contexts, "current-context": "x"}
        (folder / "kubeconfig").write_text(yaml.safe_dump(content))
        yield Cluster.connect(folder / "kubeconfig")


def test_a_request_ends_at_its_deadline_though_bytes_keep_coming(folder: Path) -> None:
    with (
        connected(folder, lambda send, drip: (send(HEAD + b"Content-Length: 5000\r\n\r\n"), drip(b" "))) as cluster,
        pytest.raises(Retryable, match=r"GET Node r01-u01: no answer .* may take 1 s in all"),
    ):
        cluster.with_timeout(SECONDS).get(NODES, "r01-u01")


def test_a_list_may_take_longer_but_not_for_ever(folder: Path) -> None:
    with (
        connected(folder, lambda send, drip: (send(HEAD + b"Content-Length: 5000\r\n\r\n"), drip(b" "))) as cluster,
        pytest.raises(Retryable, match=r"LIST Node: no answer .* may take 4 s in all"),
    ):
        cluster.with_timeout(SECONDS).list(NODES)


def test_the_headers_of_a_watch_end_at_a_deadline(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "READ_SECONDS", 0.1)
    with connected(folder, lambda send, drip: (send(HEAD + b"X-Long: "), drip(b"a"))) as cluster:
        watch = cluster.watch(NODES, "1", timeout_seconds=60, silence_seconds=SECONDS)
        with pytest.raises(Retryable, match="WATCH Node: no answer"), watch:
            pass


@pytest.mark.parametrize(
    "body",
    [
        lambda send, drip: drip(b"0"),
        lambda send, drip: drip(b"1\r\n \r\n"),
        lambda send, drip: drip(b"3\r\n{}\n\r\n"),
    ],
    ids=["length of a chunk", "a line", "lines"],
)
def test_a_watch_ends_though_bytes_keep_coming(folder: Path, body: Script) -> None:
    def begin(send: Callable[[bytes], None], drip: Callable[[bytes], None]) -> None:
        send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        body(send, drip)

    with (
        connected(folder, begin) as cluster,
        cluster.watch(NODES, "1", timeout_seconds=60, silence_seconds=PATIENCE) as stream,
    ):
        stream._ends = time.monotonic() + SECONDS
        with pytest.raises(Retryable, match="WATCH Node: the API server was not done"):
            list(stream.lines())


def test_a_watch_whose_lines_are_long_in_use_brings_them_all(folder: Path) -> None:
    """What the caller does between two lines may take calls of its own."""
    with (
        connected(folder, lambda send, _: send(answer(b"1\n2\n"))) as cluster,
        cluster.watch(NODES, "1", timeout_seconds=60, silence_seconds=PATIENCE) as stream,
    ):
        for line in stream.lines():
            assert line in (b"1", b"2")
            assert current_call() is None


def test_an_object_of_any_size_is_not_read(folder: Path) -> None:
    def flood(send: object, _: object) -> None:
        assert callable(send)
        send(HEAD + b"\r\n")
        for _ in range(100_000):
            send(b" " * 65536)

    with connected(folder, flood) as cluster, pytest.raises(Retryable, match="sent more than 16777216 bytes"):
        cluster.get(NODES, "r01-u01")


BUSY = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 0\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def test_a_command_asks_a_busy_api_server_again_for_a_while_and_a_service_is_told_at_once(folder: Path) -> None:
    answers = [BUSY, BUSY, BUSY, answer(b'{"kind": "Node"}')]
    with connected(folder, lambda send, _: send(answers.pop(0))) as service:
        with pytest.raises(Busy, match=r"GET Node r01-u01: Too Many Requests \(HTTP 429\)"):
            service.get(NODES, "r01-u01")
        command = Cluster.connect(folder / "kubeconfig", busy_seconds=60)
        assert command.get(NODES, "r01-u01") == {"kind": "Node"}
    assert answers == []


def test_a_command_does_not_wait_longer_than_it_may(folder: Path) -> None:
    with connected(folder, lambda send, _: send(BUSY.replace(b"After: 0", b"After: 30"))):
        command = Cluster.connect(folder / "kubeconfig", busy_seconds=20)
        with pytest.raises(Busy):
            command.get(NODES, "r01-u01")


def test_a_packed_answer_is_refused(folder: Path) -> None:
    packed = gzip.compress(json.dumps({"kind": "Node"}).encode())
    with (
        connected(folder, lambda send, _: send(answer(packed, b"Content-Encoding: gzip"))) as cluster,
        pytest.raises(Retryable, match="Content-Encoding 'gzip', which was not asked for"),
    ):
        cluster.get(NODES, "r01-u01")


def test_an_answer_in_time_is_taken(folder: Path) -> None:
    with connected(folder, lambda send, _: send(answer(json.dumps({"kind": "Node"}).encode()))) as cluster:
        assert cluster.get(NODES, "r01-u01") == {"kind": "Node"}
