"""Tenants and nodes fill the objects that they may write: the copies of the controllers take little memory for them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from werkzeug import Request, Response

from tests.attacks.hostile_objects import COUNT, MADE, SECONDS, WRITTEN_BY_OTHERS, written
from tests.http_peer import HttpPeer

pytestmark = pytest.mark.programs
MOST_MIB = 120
"""By which the process may grow. All objects together are 280 MB of JSON, as lists and once more as changes."""
MOST_KEPT = {"SecurityGroup": 80_000, "Node": 250_000}
"""Bytes of JSON of one of a kind; others have `FEW_KEPT`."""
FEW_KEPT = 40_000


def listed(plural: str) -> Iterator[bytes]:
    yield b'{"kind": "List", "metadata": {"resourceVersion": "%d"}, "items": [' % COUNT
    for number in range(COUNT if plural in MADE else 0):
        yield (b"," if number else b"") + written(plural, number, number + 1)
    yield b"]}"


def changed(plural: str, version: str, over: threading.Event) -> Iterator[bytes]:
    for number in range(COUNT if plural in MADE and int(version) == COUNT else 0):
        yield b'{"type": "MODIFIED", "object": ' + written(plural, number, COUNT + number + 1) + b"}\n"
    over.wait(SECONDS)


def answer(request: Request, over: threading.Event) -> Response:
    plural = request.path.rpartition("/")[2]
    asked = request.args.get("resourceVersion", "")
    body = changed(plural, asked, over) if request.args.get("watch") else listed(plural)
    return Response(body, content_type="application/json")


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    over = threading.Event()
    with HttpPeer() as peer:
        peer.expect_request(re.compile("/.*")).respond_with_handler(partial(answer, over=over))
        named = {"clusters": [{"name": "c", "cluster": {"server": peer.url}}], "users": [{"name": "u", "user": {}}]}
        contexts = [{"name": "x", "context": {"cluster": "c", "user": "u"}}]
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump({**named, "contexts": contexts, "current-context": "x"}))
        yield path
        over.set()


def follow(kubeconfig: Path, *more: str) -> dict[str, Any]:
    program = [sys.executable, "-m", "tests.attacks.hostile_objects", str(kubeconfig), *more]
    done = subprocess.run(program, capture_output=True, text=True, timeout=2 * SECONDS)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_large_objects_of_each_kind_take_little_memory_of_the_controllers(kubeconfig: Path) -> None:
    found = follow(kubeconfig)
    assert set(found["kinds"]) == {*MADE, *WRITTEN_BY_OTHERS}, "say of a kind who can write it"
    kept = {kind: size for kind, size in found["kept_bytes"].items() if size > MOST_KEPT.get(kind, FEW_KEPT)}
    assert kept == {}
    assert found["grown_mib"] < MOST_MIB, found


def test_large_objects_take_much_memory_without_trims(kubeconfig: Path) -> None:
    assert follow(kubeconfig, "whole")["grown_mib"] > MOST_MIB
