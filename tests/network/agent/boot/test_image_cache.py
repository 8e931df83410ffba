"""The cache keeps what was verified, and no more than its bound."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from provisioner.network.agent.boot.image_cache import CachedPart, ImageCache, Unverified, Verified
from tests.network.agent.boot.boot_host import DIGEST, KERNEL, LAYERED_DIGEST, LAYERED_MANIFEST, MANIFEST


def part(content: bytes) -> CachedPart:
    return CachedPart(hashlib.sha256(content).hexdigest(), len(content))


def fill(cache: ImageCache, content: bytes, *, of: CachedPart | None = None, is_whole: bool = True) -> bool:
    filling = cache.filling(of or part(content))
    if filling is None:
        return False
    filling.write(content)
    filling.close(is_whole=is_whole)
    return True


def kept(cache: ImageCache, content: bytes) -> bool:
    with cache.opened(part(content)) as found:
        return found is not None and found.read() == content


@pytest.fixture
def cache(tmp_path: Path) -> ImageCache:
    made = ImageCache(tmp_path / "cache", 100)
    made.empty()
    return made


def test_what_was_asked_for_longest_ago_makes_room(cache: ImageCache, tmp_path: Path) -> None:
    a, b, c = b"a" * 40, b"b" * 40, b"c" * 40
    assert fill(cache, a)
    assert fill(cache, b)
    assert kept(cache, a)
    assert fill(cache, c)
    assert (kept(cache, a), kept(cache, b), kept(cache, c)) == (True, False, True)
    assert sum(each.stat().st_size for each in (tmp_path / "cache").iterdir()) <= 100


def test_what_is_being_read_does_not_make_room_until_it_was_read(cache: ImageCache) -> None:
    """Deleted, it would take its room beside what came in its place: as often as a host begins to read and stops."""
    a, b, c = b"a" * 60, b"b" * 60, b"c" * 40
    assert fill(cache, a)
    with cache.opened(part(a)) as one, cache.opened(part(a)) as another:
        assert one is not None
        assert another is not None
        assert not fill(cache, b)
        assert fill(cache, c), "for this there is room"
        assert one.read() == a
    assert fill(cache, b)
    assert (kept(cache, a), kept(cache, b), kept(cache, c)) == (False, True, True)


def test_half_of_what_was_free_is_left_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=100))
    cache = ImageCache(tmp_path / "cache", 4 << 30)
    cache.empty()
    assert not fill(cache, b"a" * 51)
    assert fill(cache, b"a" * 50)


def test_what_is_larger_than_the_bound_or_being_written_is_not_begun(cache: ImageCache) -> None:
    assert not fill(cache, b"x" * 101)
    first = cache.filling(part(b"a" * 60))
    assert first is not None
    assert cache.filling(part(b"a" * 60)) is None
    assert cache.filling(part(b"b" * 60)) is None, "together they are too much"
    first.close(is_whole=False)
    assert fill(cache, b"b" * 60)


def test_two_agents_do_not_write_one_file(cache: ImageCache, tmp_path: Path) -> None:
    """As one is started before the other has ended: the file would have its size, and holes."""
    content, other = b"a" * 60, ImageCache(tmp_path / "cache", 100)
    first = cache.filling(part(content))
    assert first is not None
    assert other.filling(part(content)) is None
    first.write(content)
    first.close(is_whole=True)
    assert kept(cache, content)
    assert fill(other, b"b" * 60), "what the first does not write it may"


def test_what_ended_early_is_not_kept(cache: ImageCache, tmp_path: Path) -> None:
    assert fill(cache, b"half", of=part(b"half of it"))
    assert fill(cache, b"whole", is_whole=False)
    assert list((tmp_path / "cache").iterdir()) == []


def test_nothing_that_lies_in_the_folder_is_believed_and_what_is_not_the_caches_stays(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    (folder / part(b"mine").sha256).write_bytes(b"mine")
    (folder / "somebody's").write_bytes(b"x")
    cache = ImageCache(folder, 100)
    cache.empty()
    assert not kept(cache, b"mine")
    assert [each.name for each in folder.iterdir()] == ["somebody's"]


def test_a_manifest_is_the_one_of_its_digest(cache: ImageCache) -> None:
    with pytest.raises(Unverified):
        cache.take_manifest(DIGEST, MANIFEST + b"#")
    with pytest.raises(Unverified):
        cache.take_manifest("00" * 32, MANIFEST)
    assert cache.manifest(DIGEST) is None
    cache.take_manifest(DIGEST, MANIFEST)
    assert cache.part(DIGEST, "vmlinuz") == part(KERNEL)
    assert cache.part(DIGEST, "manifest") is None


def test_a_manifest_of_parts_is_the_one_of_its_digest_and_nothing_lies_beside_it(cache: ImageCache) -> None:
    with pytest.raises(Unverified, match="has digest"):
        cache.take_manifest(LAYERED_DIGEST, LAYERED_MANIFEST + b"#")
    cache.take_manifest(LAYERED_DIGEST, LAYERED_MANIFEST)
    assert cache.manifest(LAYERED_DIGEST) == LAYERED_MANIFEST
    assert cache.part(LAYERED_DIGEST, "vmlinuz") is None


def test_a_part_is_known_by_its_digest_alone_while_it_is_kept(cache: ImageCache) -> None:
    assert cache.kept(part(b"a").sha256) is None
    assert fill(cache, b"a")
    assert cache.kept(part(b"a").sha256) == part(b"a")


def test_bytes_are_compared_with_digest_and_size() -> None:
    whole = Verified(part(b"abc"))
    whole.add(b"ab")
    with pytest.raises(Unverified):
        whole.end()
    whole.add(b"c")
    whole.end()
    with pytest.raises(Unverified):
        whole.add(b"d")
