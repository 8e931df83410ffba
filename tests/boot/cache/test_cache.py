"""The real cache, nginx and fetcher, in front of boot hosts that are honest, slow, full, false, or gone."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

import pytest

from provisioner.boot.cache import boot_hosts, signatures
from tests.boot.cache.fake_boot_host import FakeBootHost, serving_boot_host
from tests.boot.cache.running import (
    PART,
    SERVER,
    SLICE,
    RunningCache,
    part_path,
    running_cache,
    until,
)
from tests.boot.conftest import Programs

PATH = part_path(PART)
FALSE = PART[:-1] + bytes([PART[-1] ^ 1])
IMAGE = "/images/sha256-" + "ab" * 32


@contextmanager
def holding(cache: RunningCache, client: str = SERVER) -> Iterator[int]:
    """The status of an answer that is under way meanwhile."""
    connection = cache.connect(client)
    try:
        connection.request("GET", PATH)
        yield connection.getresponse().status
    finally:
        connection.close()


@pytest.fixture
def hosts() -> Iterator[tuple[FakeBootHost, FakeBootHost]]:
    one, two = FakeBootHost({PATH: PART}), FakeBootHost({PATH: PART}, etag='"two"')
    with serving_boot_host(one), serving_boot_host(two):
        yield one, two


@pytest.fixture
def cache(programs: Programs, hosts: tuple[FakeBootHost, FakeBootHost]) -> Iterator[RunningCache]:
    with running_cache(programs, [host.url for host in hosts]) as cache:
        yield cache


def test_of_eight_who_ask_at_once_each_gets_the_whole_and_each_byte_was_fetched_once(
    cache: RunningCache, hosts: tuple[FakeBootHost, FakeBootHost]
) -> None:
    hosts[0].bytes_per_second = 1_000_000
    given: list[bytes] = []
    threads = [threading.Thread(target=lambda: given.append(cache.get(PATH).body)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [len(body) for body in given] == [len(PART)] * 8
    assert set(given) == {PART}
    assert hosts[0].asked == [(PATH, 0)]
    assert hosts[1].asked == [], "the second one is asked while the first fails"


def test_who_asks_while_the_fetch_is_under_way_gets_what_is_there_and_the_rest_as_it_comes(
    cache: RunningCache, hosts: tuple[FakeBootHost, FakeBootHost]
) -> None:
    hosts[0].stops_after_bytes = 400_000
    first = threading.Thread(target=cache.get, args=(PATH,))
    first.start()
    with closing(cache.connect()) as connection:
        connection.request("GET", PATH, headers={"Range": "bytes=1000-"})
        answer = connection.getresponse()
        assert answer.read(100_000) == PART[1000:101_000]
        assert hosts[0].sent_bytes < len(PART), "the rest is still to come"
        hosts[0].goes_on.set()
        assert answer.read() == PART[101_000:]
    first.join()
    assert len(hosts[0].asked) == 1


def test_what_was_found_right_is_kept_whole_and_is_served_when_no_boot_host_is_left(
    cache: RunningCache, hosts: tuple[FakeBootHost, FakeBootHost]
) -> None:
    assert cache.get(PATH).body == PART
    for host in hosts:
        host.dies_after_bytes = 0
    assert cache.get(PATH).body == PART
    ranged = cache.get(PATH, Range=f"bytes={SLICE + 7}-{SLICE + 16}")
    assert (ranged.status, ranged.body) == (206, PART[SLICE + 7 : SLICE + 17])
    assert cache.get(PATH, method="HEAD").headers["content-length"] == str(len(PART))
    until(lambda: cache.status()["keptBytes"] == len(PART), "the status does not say so")


def test_what_is_kept_outlives_a_restart(programs: Programs, hosts: tuple[FakeBootHost, FakeBootHost]) -> None:
    with running_cache(programs, [hosts[0].url]) as cache:
        cache.get(PATH)
    with running_cache(programs, [hosts[0].url], state=cache.site.state) as again:
        assert again.get(PATH).body == PART
    assert len(hosts[0].asked) == 1


def test_a_boot_goes_on_where_it_was_cut(cache: RunningCache, hosts: tuple[FakeBootHost, FakeBootHost]) -> None:
    for start in (len(PART) - 1, 1, SLICE, 3 * SLICE + 5):  # the first one before the file is kept
        rest = cache.get(PATH, Range=f"bytes={start}-")
        assert (rest.status, rest.body) == (206, PART[start:])
        assert rest.headers["content-range"] == f"bytes {start}-{len(PART) - 1}/{len(PART)}"
    assert cache.get(PATH, Range=f"bytes={len(PART)}-").status == 416
    assert hosts[0].asked == [(PATH, 0)]


def test_a_boot_host_that_dies_midway_is_left_for_the_next_one_and_no_server_notices(
    cache: RunningCache, hosts: tuple[FakeBootHost, FakeBootHost]
) -> None:
    hosts[0].dies_after_bytes = 2 * SLICE
    answered = cache.get(PATH)
    assert (answered.is_whole, answered.body) == (True, PART)
    assert hosts[1].asked == [(PATH, 2 * SLICE)], "the second one gave the rest"


def test_a_boot_host_that_lies_is_named_and_nobody_gets_the_end_of_its_lie(
    cache: RunningCache, hosts: tuple[FakeBootHost, FakeBootHost]
) -> None:
    hosts[0].files[PATH] = FALSE
    lied_to = cache.get(PATH)
    assert (lied_to.is_whole, len(lied_to.body) < len(PART)) == (False, True)
    assert not cache.kept(PATH).exists()
    assert cache.get(PATH).body == PART, "of the next boot host, from the beginning"
    assert hosts[1].asked == [(PATH, 0)]
    assert [(r.boot_host, r.path, r.observed) for r in cache.service.boot_hosts.refusals] == [
        (hosts[0].url, PATH, hashlib.sha256(FALSE).hexdigest())
    ]
    until(lambda: [r["bootHost"] for r in cache.status()["refusals"]] == [hosts[0].url], "the status does not name it")


def test_where_two_gave_what_does_not_fit_together_nobody_is_named_and_who_ended_midway_is_asked_last(
    cache: RunningCache, hosts: tuple[FakeBootHost, FakeBootHost]
) -> None:
    hosts[0].files[PATH] = bytes(2 * SLICE) + PART[2 * SLICE :]
    hosts[0].dies_after_bytes = 2 * SLICE
    assert not cache.get(PATH).is_whole
    assert cache.service.boot_hosts.refusals == [], "nobody can say who lied"
    assert cache.get(PATH).body == PART
    assert hosts[1].asked == [(PATH, 2 * SLICE), (PATH, 0)]


def test_what_no_boot_host_gives_right_is_given_to_nobody_until_one_does(
    cache: RunningCache, hosts: tuple[FakeBootHost, FakeBootHost], monkeypatch: pytest.MonkeyPatch
) -> None:
    for host in hosts:
        host.files[PATH] = FALSE
    assert [cache.get(PATH).is_whole for _ in range(2)] == [False, False]
    assert {refusal.boot_host for refusal in cache.service.boot_hosts.refusals} == {host.url for host in hosts}
    asked = len(hosts[0].asked) + len(hosts[1].asked)
    assert cache.get(PATH).status == 502
    assert len(hosts[0].asked) + len(hosts[1].asked) == asked, "they are not asked again at once"
    hosts[1].files[PATH] = PART
    monkeypatch.setattr(boot_hosts, "REFUSED_SECONDS", 0.0)
    until(lambda: cache.get(PATH).body == PART, "it is not served once a boot host has it")


def test_a_kept_file_that_rots_is_thrown_away_and_fetched_again(
    cache: RunningCache, hosts: tuple[FakeBootHost, FakeBootHost]
) -> None:
    assert cache.get(PATH).body == PART
    cache.kept(PATH).write_bytes(FALSE)
    cache.service.rechecker._checked.clear()
    until(lambda: not cache.kept(PATH).exists(), "it is still there")
    assert cache.get(PATH).body == PART
    assert len(hosts[0].asked) == 2
    until(lambda: cache.status()["thrownAway"] == 1, "the status does not say so")


def test_the_longest_unused_goes_when_the_disk_is_full(
    programs: Programs, hosts: tuple[FakeBootHost, FakeBootHost]
) -> None:
    contents = [PART[:-n] for n in range(1, 4)]
    for content in contents:
        hosts[0].files[part_path(content)] = content
    with running_cache(programs, [hosts[0].url], kept_bytes=2 * len(PART)) as cache:
        for content in contents[:2]:
            assert cache.get(part_path(content)).body == content
        assert cache.get(part_path(contents[0])).body == contents[0]
        latest = part_path(contents[0])
        until(lambda: cache.service.kept.all()[-1].asked.path == latest, "that it was used is not heard of")
        assert cache.get(part_path(contents[2])).body == contents[2]
        assert [cache.kept(part_path(content)).exists() for content in contents] == [True, False, True]
        assert cache.get(part_path(contents[1])).body == contents[1], "it is fetched again"
        large = PART * 3
        hosts[0].files[part_path(large)] = large
        assert cache.get(part_path(large)).status == 502, "larger than all that may be kept"
        assert sum(file.size_bytes for file in cache.service.kept.all()) <= 2 * len(PART)


def test_a_cache_stands_behind_a_cache(programs: Programs, hosts: tuple[FakeBootHost, FakeBootHost]) -> None:
    with (
        running_cache(programs, [hosts[0].url]) as row,
        running_cache(programs, [f"http://127.0.0.1:{row.site.port}"]) as rack,
    ):
        assert rack.get(PATH).body == PART
        assert rack.kept(PATH).exists()
        assert row.kept(PATH).exists()
        assert hosts[0].asked == [(PATH, 0)]
        hosts[0].is_full, hosts[0].files[part_path(b"other")] = True, b"other"
        assert rack.get(part_path(b"other")).status == 503


def test_an_image_of_format_1_is_known_by_its_manifest(
    cache: RunningCache, hosts: tuple[FakeBootHost, FakeBootHost]
) -> None:
    root = hashlib.sha256(PART).hexdigest()
    manifest = f"provisioner-image 1\nkernel {'0' * 64} 9\nroot {root} {len(PART)}\n".encode()
    folder = f"/images/sha256-{hashlib.sha256(manifest).hexdigest()}"
    for host in hosts:
        host.files |= {f"{folder}/root.squashfs": FALSE, f"{folder}/manifest": manifest}
    hosts[1].files[f"{folder}/root.squashfs"] = PART
    assert not cache.get(f"{folder}/root.squashfs").is_whole
    assert cache.get(f"{folder}/root.squashfs").body == PART
    assert cache.kept(f"{folder}/manifest").read_bytes() == manifest
    assert [refusal.boot_host for refusal in cache.service.boot_hosts.refusals] == [hosts[0].url]
    assert cache.get(f"{folder}/vmlinuz").status == 404, "the boot hosts have none"
    assert cache.get(f"{folder}/stage1.img").status == 404, "the manifest names none"


NOTHING_OF_A_CACHE = [
    "/", "/images/", "/images/parts/", "/images/parts/sha256-abc", f"{PATH}x", f"{PATH}/", f"{IMAGE}/secret",
    f"{IMAGE}/.manifest", f"{IMAGE}/manifest/../secret", "/images/../etc/passwd", "/run/nginx.conf", f"/kept{PATH}",
    "/images/parts/%2e%2e/%2e%2e/run/nginx.conf", "/images/parts/sha256-" + "AB" * 32, "/v1/join", "/boot.ipxe",
    "/ipxe/52-54-00-00-00-01.ipxe", "/healthz/..%2fnginx.conf", "/status.json", "//images//parts/../../etc/passwd",
    f"/images/parts/sha256-{'ab' * 32}%0a", f"/images/parts/sha256-{'ab' * 32}%00", "/images/parts/.new-abcdefgh",
    "/signatures/x",
]  # fmt: skip


def test_nothing_but_files_of_images_is_asked_of_a_boot_host(
    cache: RunningCache, hosts: tuple[FakeBootHost, FakeBootHost]
) -> None:
    given = {path: cache.get(path).status for path in NOTHING_OF_A_CACHE}
    assert {path: status for path, status in given.items() if status not in (400, 404)} == {}
    assert [host.asked for host in hosts] == [[], []]


def test_of_what_a_server_says_a_boot_host_hears_the_path_alone(
    cache: RunningCache, hosts: tuple[FakeBootHost, FakeBootHost]
) -> None:
    said = {"X-Forwarded-For": "10.0.0.9", "Cookie": "a=b", "X-Secret": "s", "If-Modified-Since": "x"}
    assert cache.get(f"{PATH}?serial=S1", **said).body == PART
    assert {path for path, _ in hosts[0].asked} == {PATH}
    heard = {name.lower() for headers in hosts[0].seen_headers for name in headers}
    assert heard == {"host", "accept-encoding", "user-agent"}


def test_a_cache_is_only_read(cache: RunningCache, hosts: tuple[FakeBootHost, FakeBootHost]) -> None:
    for method in ("POST", "PUT", "DELETE", "PURGE", "OPTIONS"):
        answered = cache.get(PATH, method=method)
        assert (answered.status, answered.headers["allow"]) == (405, "GET, HEAD"), method
    assert hosts[0].asked == []


def test_a_boot_host_cannot_have_something_else_served(
    cache: RunningCache, hosts: tuple[FakeBootHost, FakeBootHost]
) -> None:
    hosts[0].headers = {"X-Accel-Redirect": "/healthz", "Set-Cookie": "a=b", "X-Accel-Expires": "0"}
    answered = cache.get(PATH)
    assert answered.body == PART
    assert not {"set-cookie", "etag", "x-accel-redirect"} & answered.headers.keys()


@pytest.mark.parametrize("length", [1 << 40, None])
def test_an_answer_without_an_end_is_not_read(
    cache: RunningCache, hosts: tuple[FakeBootHost, FakeBootHost], length: int | None
) -> None:
    hosts[0].endless, hosts[0].says_length = True, length
    hosts[1].is_full = True
    assert cache.get(PATH).status in (502, 503)
    assert sum(file.stat().st_size for file in cache.site.state.rglob("*") if file.is_file()) < 1 << 20


def test_what_a_boot_host_does_not_have_is_not_remembered(
    cache: RunningCache, hosts: tuple[FakeBootHost, FakeBootHost]
) -> None:
    later = PART[: SLICE + 5]
    assert cache.get(part_path(later)).status == 404
    hosts[1].files[part_path(later)] = later
    assert cache.get(part_path(later)).body == later, "the second boot host is asked for what the first one lacks"


def test_that_its_boot_host_is_full_is_passed_on(cache: RunningCache, hosts: tuple[FakeBootHost, FakeBootHost]) -> None:
    hosts[0].is_full = True
    assert cache.get(PATH).body == PART, "the other one has room"
    for host in hosts:
        host.is_full, host.files[part_path(b"other")] = True, b"other"
    answered = cache.get(part_path(b"other"))
    assert (answered.status, answered.headers["retry-after"]) == (503, "10")
    hosts[0].is_full = False
    assert cache.get(part_path(b"other")).body == b"other"


def test_a_signature_is_asked_for_again_after_minutes_and_the_last_one_stands_in_for_a_dead_boot_host(
    cache: RunningCache, hosts: tuple[FakeBootHost, FakeBootHost], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"{IMAGE}/manifest.sig"
    hosts[0].files[path] = b"first"
    assert cache.get(path).body == b"first"
    hosts[0].files[path] = b"second"
    assert cache.get(path).body == b"first"
    monkeypatch.setattr(signatures, "FRESH_SECONDS", 0.0)
    assert cache.get(path).body == b"second"
    for host in hosts:
        host.dies_after_bytes = 0
    assert cache.get(path).body == b"second"
    assert cache.get(f"{IMAGE[:-1]}c/manifest.sig").status == 502
    hosts[1].dies_after_bytes, hosts[1].files[path] = None, b"x" * 5000
    assert cache.get(path).body == b"second", "what is too long is no signature"


def test_a_cache_that_is_full_says_when_to_ask_again(
    programs: Programs, hosts: tuple[FakeBootHost, FakeBootHost]
) -> None:
    hosts[0].stops_after_bytes = 400_000
    with running_cache(programs, [hosts[0].url], slots=2) as cache, ExitStack() as stack:
        assert [stack.enter_context(holding(cache)) for _ in range(3)] == [200, 200, 503]
        assert cache.get(PATH).headers["retry-after"] == "10"


def test_a_machine_alone_does_not_take_all_slots(programs: Programs, hosts: tuple[FakeBootHost, FakeBootHost]) -> None:
    hosts[0].stops_after_bytes = 400_000
    with running_cache(programs, [hosts[0].url], answers_per_client=2) as cache, ExitStack() as stack:
        assert [stack.enter_context(holding(cache)) for _ in range(3)] == [200, 200, 503]
        assert stack.enter_context(holding(cache, "127.0.0.3")) == 200


def test_a_manifest_that_is_said_to_be_large_drives_out_nothing_that_is_kept(
    programs: Programs, hosts: tuple[FakeBootHost, FakeBootHost]
) -> None:
    """Room is made before a byte of it is known to be right."""
    large, small = bytes(len(PART)), b"provisioner-image 2\n"
    folder = f"/images/sha256-{hashlib.sha256(small).hexdigest()}"
    hosts[0].files[f"{IMAGE}/manifest"] = large
    hosts[0].files[f"{folder}/manifest"] = small
    with running_cache(programs, [hosts[0].url], kept_bytes=len(PART) + 1000) as cache:
        assert cache.get(PATH).body == PART
        assert cache.get(f"{folder}/manifest").body == small, "the honest twin"
        assert cache.get(f"{IMAGE}/manifest").status == 502
        assert cache.kept(PATH).exists()
