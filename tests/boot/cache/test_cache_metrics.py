"""The real cache, measured: what it gave, from where, what boot hosts gave it, and whether it is well."""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.boot.cache.fake_boot_host import FakeBootHost, serving_boot_host
from tests.boot.cache.running import PART, RunningCache, part_path, running_cache, until
from tests.boot.conftest import Programs
from tests.boot.metrics.exposition import check_by_promtool, risen, samples

PATH = part_path(PART)
OTHER = PART[:1000]
FALSE_PATH = part_path(b"what nobody has")


@pytest.fixture
def boot_host() -> Iterator[FakeBootHost]:
    host = FakeBootHost({PATH: PART, part_path(OTHER): OTHER, FALSE_PATH: b"something else"})
    with serving_boot_host(host):
        yield host


@pytest.fixture
def cache(programs: Programs, boot_host: FakeBootHost) -> Iterator[RunningCache]:
    with running_cache(programs, [boot_host.url], kept_bytes=len(PART)) as cache:
        yield cache


def measured(cache: RunningCache) -> dict[str, float]:
    return samples(cache.service.meters.registry)


def value(cache: RunningCache, name: str) -> float:
    return measured(cache)[f"provisioner_{name}"]


def test_each_byte_is_counted_where_it_came_from_and_where_it_went(cache: RunningCache) -> None:
    until(lambda: cache.get("/readyz").status == 200, "it is not ready")
    before = measured(cache)
    assert cache.get(PATH).body == PART
    until(lambda: value(cache, "cache_kept_files") == 1, "it is not kept")
    assert cache.get(PATH).body == PART
    assert cache.get(part_path(b"nothing")).status == 404
    assert cache.get(FALSE_PATH).status == 502
    assert cache.get(PATH, method="POST").status == 405

    def counted() -> dict[str, float]:
        return risen(before, measured(cache))

    until(lambda: 'provisioner_cache_requests_total{code="4xx",source="none"}' in counted(), "it was not counted")
    rose = counted()
    assert rose['provisioner_cache_requests_total{code="2xx",source="fetcher"}'] == 1
    assert rose['provisioner_cache_requests_total{code="2xx",source="disk"}'] == 1
    assert rose['provisioner_cache_requests_total{code="4xx",source="fetcher"}'] == 1
    assert rose['provisioner_cache_sent_bytes_total{source="disk"}'] == len(PART)
    assert rose['provisioner_cache_sent_bytes_total{source="fetcher"}'] >= len(PART)
    assert rose['provisioner_cache_fetches_total{result="kept"}'] == 1
    assert rose['provisioner_cache_fetches_total{result="false"}'] == 1
    assert rose['provisioner_cache_fetches_total{result="not_found"}'] == 1
    assert rose["provisioner_cache_fetched_bytes_total"] == len(PART) + len(b"something else")
    assert value(cache, "cache_limit_bytes") == len(PART)
    check_by_promtool(cache.service.meters.registry)


def test_what_makes_room_and_what_rots_is_counted(cache: RunningCache) -> None:
    cache.get(PATH)
    until(lambda: value(cache, "cache_kept_bytes") == len(PART), "it is not kept")
    cache.get(part_path(OTHER))
    until(lambda: value(cache, "cache_evicted_files_total") == 1, "none made room")
    cache.kept(part_path(OTHER)).write_bytes(b"rotten")
    cache.service.rechecker._checked.clear()
    until(lambda: value(cache, "cache_thrown_away_files_total") == 1, "it was not thrown away")


def test_whoever_asks_makes_no_series(cache: RunningCache) -> None:
    until(lambda: cache.get("/readyz").status == 200, "it is not ready")
    until(lambda: 'provisioner_http_connections{state="waiting"}' in measured(cache), "nginx does not say how many")
    before = measured(cache)
    for number in range(50):
        digest = hashlib.sha256(bytes([number])).hexdigest()
        cache.get(f"/images/parts/sha256-{digest}", **{"User-Agent": f'x"}} {number}', "Range": f"bytes={number}-"})
        cache.get(f"/{digest}")
    key = 'cache_fetches_total{result="not_found"}'
    until(lambda: value(cache, key) >= 50, "they were not counted")
    until(lambda: measured(cache).keys() >= before.keys(), "nginx does not say how many")
    assert measured(cache).keys() <= before.keys()
    assert value(cache, 'http_log_faults_total{fault="unreadable_line"}') == 0


def test_a_cache_whose_boot_hosts_are_gone_is_ready_and_one_without_nginx_is_not(
    cache: RunningCache, boot_host: FakeBootHost
) -> None:
    boot_host.dies_after_bytes = 0
    until(lambda: cache.get("/readyz").status == 200, "it is not ready")
    assert cache.get(PATH).status == 502
    assert cache.service.health.is_ready
    master = (cache.site.run / "nginx.pid").read_text().strip()
    workers = [int(pid) for pid in Path(f"/proc/{master}/task/{master}/children").read_text().split()]
    assert workers
    for pid in workers:
        os.kill(pid, signal.SIGSTOP)
    until(lambda: not cache.service.health.is_ready, "it is not told that nginx does not answer")
    until(lambda: not cache.site.ready.exists(), "/readyz does not say so")
    for pid in workers:
        os.kill(pid, signal.SIGCONT)
    until(lambda: cache.get("/readyz").status == 200, "it is not ready again")
