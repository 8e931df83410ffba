"""The real cache on loopback: nginx and the fetcher, in front of boot hosts of these tests."""

from __future__ import annotations

import hashlib
import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.control_plane.ports import free_port
from provisioner.boot.cache.nginx import CacheSite, read_upstream
from provisioner.boot.cache.service import CacheService
from tests.boot.conftest import Programs

PATIENCE_SECONDS = 120
SERVER = "127.0.0.2"
"""The address of who asks: the cache itself has another one."""
SLICE = 256 * 1024
PART = hashlib.shake_256(b"part").digest(5 * SLICE + 1234)


def part_path(content: bytes) -> str:
    return f"/images/parts/sha256-{hashlib.sha256(content).hexdigest()}"


@dataclass
class Answered:
    status: int
    headers: dict[str, str]
    body: bytes
    is_whole: bool


@dataclass
class RunningCache:
    service: CacheService
    site: CacheSite

    def connect(self, client: str = SERVER) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(
            "127.0.0.1", self.site.port, timeout=PATIENCE_SECONDS, source_address=(client, 0)
        )

    def get(self, path: str, method: str = "GET", **headers: str) -> Answered:
        connection = self.connect()
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in {"Host": "cache", **headers}.items():
                connection.putheader(name, value)
            connection.endheaders()
            answer = connection.getresponse()
            try:
                body, whole = answer.read(), True
            except http.client.IncompleteRead as cut:
                body, whole = cut.partial, False
            except ConnectionError:
                body, whole = b"", False
            return Answered(answer.status, {k.lower(): v for k, v in answer.getheaders()}, body, whole)
        finally:
            connection.close()

    def kept(self, path: str) -> Path:
        return self.site.kept / path.lstrip("/")

    def status(self) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(self.get("/healthz").body)
        return said


def until(what: Callable[[], object], words: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not what():
        assert time.monotonic() < deadline, words
        time.sleep(0.05)


@contextmanager
def running_cache(
    programs: Programs, boot_hosts: Sequence[str], *, kept_bytes: int = 1 << 30, **fields: Any
) -> Iterator[RunningCache]:
    port = free_port("127.0.0.1")
    site = CacheSite(
        **{
            "addresses": ("127.0.0.1",),
            "upstreams": tuple(read_upstream(url) for url in boot_hosts),
            "state": programs.shared / f"cache-{port}",
            "slots": 1000,
            "user": "www-data",
            "port": port,
            "workers": "2",
            "open_files": 1024,
            "requests_per_second": 1000,
            "answers_per_client": 500,
            **fields,
        }
    )
    service = CacheService(site, kept_bytes=kept_bytes, least_rate=1000, enter=programs.enter)
    stop = threading.Event()
    thread = threading.Thread(target=service.run, args=(stop,), daemon=True)
    thread.start()
    cache = RunningCache(service, site)

    def answers() -> bool:
        try:
            return cache.get("/healthz").status == 200
        except OSError:
            return False

    try:
        until(answers, "the cache does not answer")
        yield cache
    finally:
        stop.set()
        thread.join(PATIENCE_SECONDS)
