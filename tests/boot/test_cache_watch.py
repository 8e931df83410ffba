"""The condition CacheAvailable: what a boot host finds of a rack's cache, and what it may say of it."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from provisioner.api import Image, Rack
from provisioner.api.images.image import Artifact, NamedArtifact
from provisioner.api.machinery.codec import decode
from provisioner.api.servers.rack import LEAST_RATE_BYTES_PER_SECOND, RackStatus
from provisioner.boot.host import cache_probe, cache_watch
from provisioner.boot.host.cache_probe import probe
from provisioner.boot.host.cache_watch import LANES, CacheVerdict, CacheWatch, RackCache, judge_cache, least_rate_of
from provisioner.boot.rack_cache import usable_cache
from provisioner.node.image.command_line import LEAST_RATE
from provisioner.outbound.bulkhead import Bulkhead, Lane
from provisioner.outbound.deadline import OutboundFailed, TooSlow
from tests.boot.fake_source import FakeSource
from tests.boot.objects import NOON, image, pool, rack
from tests.hostile_mirror import (
    FALSE,
    ROOT,
    Behaviour,
    Mirrors,
    drips,
    head,
    honest,
    pours,
    ranged,
    redirects,
    reply,
    sends,
    serving,
)

GOOD = Lane()
OUT = Lane(failures=3, probe_at=99.0, words="it sends nothing")
FAILED_ONCE = Lane(failures=1, words="it sends nothing")
CACHED = rack(cache_url="http://10.80.0.5")


def judged(lane: Lane | None, before: Rack = CACHED, host: str = "boot1", minutes: float = 0) -> CacheVerdict | None:
    return judge_cache(before, lane, host, NOON + timedelta(minutes=minutes))


def written(verdict: CacheVerdict | None, before: Rack = CACHED) -> Rack:
    """The Rack with what was said of its cache."""
    assert verdict is not None
    conditions = (verdict.condition,) if verdict.condition is not None else ()
    return replace(before, status=RackStatus(conditions=conditions, cache_reports=verdict.reports))


def test_a_cache_that_fails_is_out_and_the_message_says_what_was_observed_expected_and_to_do() -> None:
    verdict = judged(OUT)
    assert verdict is not None
    assert verdict.condition is not None
    assert (verdict.condition.status, verdict.condition.reason, verdict.news) == ("False", "CacheFails", True)
    for words in ("http://10.80.0.5: observed", "'boot1': it sends nothing", "expected", "256 KiB/s", "look at"):
        assert words in verdict.condition.message
    assert usable_cache(written(verdict)) is None


def test_a_cache_that_gives_what_it_should_is_used() -> None:
    good = written(judged(GOOD))
    assert usable_cache(good) == "http://10.80.0.5"
    assert judged(GOOD, good, minutes=4) is None, "what stands is not written again"
    repeated = judged(GOOD, good, minutes=6)
    assert repeated is not None
    assert not repeated.news


def test_a_failure_or_two_change_nothing() -> None:
    assert judged(FAILED_ONCE) is None
    assert judged(FAILED_ONCE, written(judged(GOOD)), minutes=1) is None
    assert judged(FAILED_ONCE, written(judged(OUT)), minutes=1) is None


def test_a_cache_that_was_out_comes_back() -> None:
    back = judged(GOOD, written(judged(OUT)), minutes=7)
    assert back is not None
    assert back.news
    assert usable_cache(written(back)) == "http://10.80.0.5"


def test_other_words_for_the_same_trouble_are_no_write() -> None:
    out = written(judged(OUT))
    assert judged(replace(OUT, words="it sends nothing still", failures=4), out, minutes=1) is None


def test_one_host_that_finds_it_good_is_enough_and_all_must_find_it_bad() -> None:
    one = written(judged(OUT, host="boot1"))
    both = judged(GOOD, one, host="boot2", minutes=1)
    assert usable_cache(written(both)) is not None
    assert usable_cache(written(judged(OUT, written(both), host="boot2", minutes=2))) is None


def test_a_host_that_is_gone_does_not_keep_a_bad_cache_in_use() -> None:
    good = written(judged(GOOD, host="replaced"))
    assert usable_cache(written(judged(OUT, good, host="boot2", minutes=14))) is not None
    assert usable_cache(written(judged(OUT, good, host="boot2", minutes=16))) is None


def test_another_cache_in_the_spec_begins_without_a_verdict() -> None:
    out = written(judged(OUT))
    moved = replace(
        out, spec=replace(out.spec, cache_url="http://10.80.0.6"), metadata=replace(out.metadata, generation=2)
    )
    assert usable_cache(moved) == "http://10.80.0.6"
    assert judged(None, moved, minutes=1) is None
    assert [report.problem for report in written(judged(GOOD, moved, minutes=1)).status.cache_reports] == [None]


def test_a_rack_that_has_no_cache_any_more_loses_what_was_said_of_it() -> None:
    out = written(judged(OUT))
    gone = judged(None, replace(out, spec=replace(out.spec, cache_url=None)))
    assert gone is not None
    assert gone.status == {"conditions": [], "cacheReports": []}
    assert judged(None, rack()) is None


def test_stage_1_the_agent_and_the_boot_host_go_by_one_least_rate() -> None:
    assert LEAST_RATE == LEAST_RATE_BYTES_PER_SECOND


# Looks at a real HTTP server.

MANIFEST = b"provisioner-image 1\n"
DIGEST = f"sha256:{hashlib.sha256(MANIFEST).hexdigest()}"
RATE = 10_000_000


def real_image() -> Image:
    root = Artifact(path="x/root.squashfs", sha256="sha256:" + "0" * 64, size_bytes=len(ROOT))
    manifest = Artifact(path="x/manifest", sha256=DIGEST, size_bytes=len(MANIFEST))
    return image(digest=DIGEST, manifest=manifest, root=root)


@pytest.fixture
def mirrors() -> Iterator[Mirrors]:
    with serving({("cache", "manifest"): honest(MANIFEST), ("cache", "root.squashfs"): honest(ROOT)}) as running:
        yield running


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "x").mkdir()
    (tmp_path / "x/root.squashfs").write_bytes(ROOT)
    return tmp_path


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
EXTENDED = b"1;%s\r\na\r\n" % (b"a" * 9000)
LIES: dict[str, tuple[str, Behaviour, type[Exception], str]] = {
    "a manifest that drips": ("manifest", drips(head(700)), TooSlow, "not done after"),
    "a header that drips": ("manifest", drips(b"HTTP/1.1 200 OK\r\nX: "), TooSlow, "not done after"),
    "another manifest": ("manifest", honest(b"other"), OutboundFailed, f"expected {DIGEST}"),
    "a manifest without end": ("manifest", pours(head(1 << 40), b"x" * 65536), OutboundFailed, "more than 65536 bytes"),
    "no manifest": ("manifest", sends(reply(b"", status="404 Not Found")), OutboundFailed, "HTTP 404"),
    "a redirect": ("root.squashfs", redirects, OutboundFailed, "HTTP 302"),
    "a root that drips": ("root.squashfs", drips(head(len(ROOT)) + ROOT[:1000]), TooSlow, "not done after"),
    "a root of extensions": ("root.squashfs", pours(CHUNKED, EXTENDED), OutboundFailed, "more than 1114112 bytes"),
    "a false root": ("root.squashfs", honest(FALSE), OutboundFailed, "not the first 1048576"),
    "a short root": ("root.squashfs", honest(ROOT[:1000]), OutboundFailed, "1000 bytes that are not"),
}


@pytest.mark.parametrize("name", LIES)
def test_a_cache_that_does_not_give_what_it_should_fails_the_look(
    mirrors: Mirrors, store: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    file, behaviour, error, words = LIES[name]
    if error is TooSlow:
        monkeypatch.setattr(cache_probe, "MANIFEST_SECONDS" if file == "manifest" else "PART_SECONDS", 0.5)
    mirrors.behaviours["cache", file] = behaviour
    with pytest.raises(error, match=words):
        probe(f"{mirrors.url}/cache", real_image(), RATE, store)


@pytest.mark.parametrize("behaviour", [honest(ROOT), sends(reply(ROOT)), sends(ranged(ROOT, 0))])
def test_an_honest_cache_passes_whether_it_knows_ranges_or_not(
    mirrors: Mirrors, store: Path, tmp_path: Path, behaviour: Behaviour
) -> None:
    mirrors.behaviours["cache", "root.squashfs"] = behaviour
    probe(f"{mirrors.url}/cache", real_image(), RATE, store)
    probe(f"{mirrors.url}/cache", real_image(), RATE, tmp_path / "a host without the image")


def test_of_an_image_in_layers_the_largest_is_looked_at(mirrors: Mirrors, store: Path) -> None:
    digests = {name: digit * 64 for name, digit in (("base", "5"), ("kubelet", "6"), ("site", "7"))}
    sizes = {"base": 10, "kubelet": len(ROOT), "site": 20}
    layers = tuple(
        NamedArtifact(name=name, path=f"parts/sha256-{digest}", sha256=f"sha256:{digest}", size_bytes=sizes[name])
        for name, digest in digests.items()
    )
    layered = replace(real_image(), spec=replace(real_image().spec, root=None, layers=layers))
    mirrors.behaviours["cache", f"sha256-{digests['kubelet']}"] = honest(ROOT)
    probe(f"{mirrors.url}/cache", layered, RATE, store)
    mirrors.behaviours["cache", f"sha256-{digests['kubelet']}"] = honest(ROOT[:1000])
    with pytest.raises(OutboundFailed, match="parts/sha256-66"):
        probe(f"{mirrors.url}/cache", layered, RATE, store)


class FakeCluster:
    """Keeps what is applied, and shows it to who watches."""

    def __init__(self, racks: FakeSource) -> None:
        self.racks = racks

    def apply_status(self, kind: type[Rack], name: str, status: dict[str, Any], **_: Any) -> None:
        self.racks.objects[name] = self.racks.objects[name] | {"status": status}


class FakeEvents:
    def __init__(self) -> None:
        self.reasons: list[str] = []

    def record(self, regarding: Any, type: str, reason: str, message: str) -> None:  # noqa: A002
        self.reasons.append(reason)


def watch_of(racks: FakeSource, store: Path, events: FakeEvents, now: Callable[[], datetime]) -> CacheWatch:
    wanted = real_image()
    return CacheWatch(
        FakeCluster(racks),  # type: ignore[arg-type]
        events,
        racks=racks,
        pools=FakeSource(pool(image_ref=wanted.name)),
        images=FakeSource(wanted),
        store=store,
        host="boot1",
        now=now,
    )


def test_caches_that_hang_hold_a_few_threads_and_a_good_one_is_looked_at_all_the_same(
    mirrors: Mirrors, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_probe, "MANIFEST_SECONDS", 0.3)
    monkeypatch.setattr(cache_watch, "LOOK_SECONDS", 0.1)
    mirrors.behaviours["cache", "manifest"] = drips(head(700))
    mirrors.behaviours["boot host", "manifest"] = honest(MANIFEST)
    mirrors.behaviours["boot host", "root.squashfs"] = honest(ROOT)
    hanging = [rack(cache_url=f"{mirrors.url}/cache/{number}") for number in range(16)]
    named = [replace(one, metadata=replace(one.metadata, name=f"r{n}")) for n, one in enumerate(hanging)]
    good = replace(rack(cache_url=mirrors.url), metadata=replace(CACHED.metadata, name="good"))
    racks = FakeSource(*named, good)
    watch, stop = watch_of(racks, store, FakeEvents(), lambda: NOON), threading.Event()
    before = set(threading.enumerate())
    thread = threading.Thread(target=watch.run, args=(stop,))
    thread.start()

    def verdicts() -> set[tuple[str, str]]:
        conditions = {name: (body.get("status") or {}).get("conditions") or () for name, body in racks.objects.items()}
        return {(name == "good", c["status"]) for name, said in conditions.items() for c in said if len(said) == 1}

    try:
        deadline = time.monotonic() + 120
        while (found := verdicts()) != {(True, "True"), (False, "False")}:
            assert time.monotonic() < deadline, found
            time.sleep(0.05)
        looking = [t for t in set(threading.enumerate()) - before if t.name.startswith("cache-")]
        assert len(looking) == 2 * cache_watch.WORKERS
    finally:
        stop.set()
        watch.wake()
        thread.join()


def test_a_cache_that_failed_once_waits_among_those_that_fail(mirrors: Mirrors, store: Path) -> None:
    """A hundred that go mute at once: the good ones wait for one look at each, not for three."""
    failing = rack(cache_url=f"{mirrors.url}/cache")
    cache = RackCache(f"{mirrors.url}/cache", least_rate_of(failing))
    watch = watch_of(FakeSource(failing), store, FakeEvents(), lambda: NOON)
    mirrors.behaviours["cache", "manifest"] = honest(b"other")
    watch.look(cache)
    watch.enqueue()
    assert [waiting.qsize() for waiting in watch._queues] == [0, 1]
    mirrors.behaviours["cache", "manifest"] = honest(MANIFEST)
    watch.look(cache)
    watch._waiting.clear()
    watch.enqueue()
    assert [waiting.qsize() for waiting in watch._queues] == [1, 1]


def test_a_cache_that_fails_many_times_is_asked_less_often_and_comes_back_by_itself(
    mirrors: Mirrors, store: Path
) -> None:
    now = [0.0]
    cached = rack(cache_url=f"{mirrors.url}/cache/", least_rate_bytes_per_second=RATE)
    racks, events = FakeSource(cached), FakeEvents()
    watch = watch_of(racks, store, events, lambda: NOON + timedelta(seconds=now[0]))
    watch.bulkhead = Bulkhead("cache", LANES, clock=lambda: now[0], spread=lambda: 1.0)
    cache = RackCache(f"{mirrors.url}/cache", RATE)

    def look_for(minutes: int) -> list[str | None]:
        """Each half minute; what servers are told in between."""
        told = []
        for _ in range(2 * minutes):
            now[0] += 30
            watch.enqueue()
            watch.look(cache)
            told.append(usable_cache(decode(Rack, racks.objects[cached.name])))
        return told

    good = mirrors.behaviours["cache", "manifest"]
    assert set(look_for(2)) == {cache.url}
    mirrors.behaviours["cache", "manifest"] = sends(b"")
    before = len(mirrors.requests)
    assert look_for(60) == [cache.url] * 2 + [None] * 118
    assert len(mirrors.requests) - before <= 12, "one to ten minutes lie between two looks"
    mirrors.behaviours["cache", "manifest"] = good
    told = look_for(11)
    assert told[-1] == cache.url
    assert events.reasons == ["CacheOut", "CacheBack"]
