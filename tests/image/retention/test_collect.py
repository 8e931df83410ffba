"""Garbage collection of a real store and a cluster of fixed objects: what goes, and what an end in between leaves."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from provisioner.api.machinery.errors import NotFound, Refused, Retryable
from provisioner.api.machinery.values import Sha256Digest
from provisioner.image.finished.check import check_image
from provisioner.image.finished.sign import SecretKey
from provisioner.image.finished.store import digest_of_folder, folder_name, locked
from provisioner.image.retention.collect import CollectionPlan, collect, make_plan, read_marks
from provisioner.image.retention.decide import RetentionRules
from tests.image.made_images import write_layered, write_of_format_1
from tests.image.retention.fake_cluster import FakeCluster, image, other

KEY = SecretKey.generate(lambda size: b"g" * size)
NOW = datetime.now(UTC)
RULES = RetentionRules(keep=1, grace=timedelta(hours=24))
OLD = 10 * 86400.0


def age(store: Path, seconds: float = OLD) -> None:
    """Let all that lies in the store be so old."""
    for folder, names, files in os.walk(store):
        for name in (*names, *files, "."):
            os.utime(Path(folder) / name, (NOW.timestamp() - seconds,) * 2)


def write_images(store: Path, *sites: str) -> list[Sha256Digest]:
    """Images that share all but their site layer, the first one the oldest."""
    digests = []
    for site in sites:
        contents = {
            "kernel": b"k", "stage1": b"s", "layer.base": b"base" * 50, "layer.site": site.encode(),
            "document.sbom": site.encode() * 3,
        }  # fmt: skip
        folder = write_layered(store, KEY, contents)
        digests.append(digest_of_folder(folder) or Sha256Digest(""))
    age(store)
    return digests


def objects_of(digests: list[Sha256Digest], days: float = 9) -> list[dict[str, Any]]:
    """Their Images, i0 the oldest."""
    created = [NOW - timedelta(days=days, minutes=-number) for number in range(len(digests))]
    return [image(f"i{n}", digest, created[n]) for n, digest in enumerate(digests)]


def run(cluster: FakeCluster, store: Path, rules: RetentionRules = RULES, **more: Any) -> list[str]:
    told: list[str] = []
    collect(cluster, store, rules, lambda: NOW, tell=told.append, **more)
    return told


def folders(store: Path) -> set[Path]:
    return {folder for folder in store.iterdir() if digest_of_folder(folder) is not None}


def all_are_whole(store: Path) -> None:
    for folder in folders(store):
        check_image(folder, KEY.public)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def test_what_nobody_uses_goes_with_the_parts_that_no_other_image_has(store: Path) -> None:
    digests = write_images(store, "old", "used", "new")
    server = other("Server", "r1", status={"imageDigest": digests[1]})
    cluster = FakeCluster([*objects_of(digests), server])
    before = {file.name for file in (store / "parts").iterdir()}
    told = run(cluster, store)
    assert cluster.images == {"i1", "i2"}
    assert folders(store) == {store / folder_name(digest) for digest in digests[1:]}
    all_are_whole(store)
    assert len(before) - len(list((store / "parts").iterdir())) == 2, "site layer and document of the old one"
    assert told[0] == "Image i0 deleted"
    assert "2 parts and 0 leftovers deleted" in told[-1]
    assert run(cluster, store) == [], "doing it again changes nothing"


def test_an_image_of_format_1_goes_with_its_folder(store: Path) -> None:
    old = write_of_format_1(store, KEY)
    digests = [digest_of_folder(old) or Sha256Digest(""), *write_images(store, "new")]
    cluster = FakeCluster(objects_of(digests))
    run(cluster, store)
    assert not old.exists()
    all_are_whole(store)


def test_a_dry_run_reads_alone_and_says_what_would_be_free(store: Path) -> None:
    digests = write_images(store, "old", "new")
    cluster = FakeCluster(objects_of(digests))
    before = sorted(store.rglob("*"))
    plan: CollectionPlan = make_plan(cluster, store, RULES, NOW)
    assert [fate.label for fate in plan.fates if fate.goes] == ["i0"]
    assert plan.freed_bytes == len("old") * 4
    assert sorted(store.rglob("*")) == before
    assert cluster.calls == [f"LIST {kind}" for kind in ("Image", "NodePool", "Maintenance", "Server", "Node")]


def test_each_list_is_read_once_and_what_people_write_once_more(store: Path) -> None:
    digests = write_images(store, *(f"site {number}" for number in range(12)))
    cluster = FakeCluster(objects_of(digests))
    run(cluster, store, clock=lambda: 0.0)
    lists = [call for call in cluster.calls if call.startswith("LIST")]
    assert lists == [
        f"LIST {kind}" for kind in ("Image", "NodePool", "Maintenance", "Server", "Node", "NodePool", "Maintenance")
    ]
    assert len([call for call in cluster.calls if call.startswith("DELETE")]) == 11


@pytest.mark.parametrize("kind", ["Image", "NodePool", "Maintenance", "Server", "Node"])
def test_nothing_is_deleted_while_a_list_is_not_answered(store: Path, kind: str) -> None:
    digests = write_images(store, "old", "new")
    cluster = FakeCluster(objects_of(digests), breaks_at=kind)
    before = sorted(store.rglob("*"))
    with pytest.raises(Retryable, match="connection refused"):
        run(cluster, store)
    assert sorted(store.rglob("*")) == before
    assert cluster.images == {"i0", "i1"}


def test_a_name_that_is_written_while_it_looks_keeps_the_image(store: Path) -> None:
    digests = write_images(store, "old", "new")
    cluster = FakeCluster(objects_of(digests))

    def start_rollout(kind: str) -> None:
        if kind == "Node":
            cluster.objects.append(other("NodePool", "gpu", spec={"imageRef": "i0"}))

    cluster.after_list = start_rollout
    assert run(cluster, store) == ["Image i0 stays: somebody has named it since it was looked at"]
    assert cluster.images == {"i0", "i1"}
    assert len(folders(store)) == 2


def test_an_image_that_was_written_to_meanwhile_stays(store: Path) -> None:
    digests = write_images(store, "old", "new")
    cluster = FakeCluster(objects_of(digests))

    def write(kind: str) -> None:
        if kind == "Node":
            cluster.objects[0]["metadata"]["resourceVersion"] = "2"

    cluster.after_list = write
    assert run(cluster, store)[0].startswith("Image i0 stays: it was written to")
    assert len(folders(store)) == 2
    assert read_marks(store) == {}


def test_no_part_goes_while_a_manifest_cannot_be_read(store: Path) -> None:
    digests = write_images(store, "old", "new")
    stray = store / "parts" / f"sha256-{'7' * 64}"
    stray.write_bytes(b"x")
    manifest = store / folder_name(digests[1]) / "manifest"
    text = manifest.read_bytes()
    manifest.write_bytes(text.replace(b"layer.site", b"layer.sitf"))
    age(store)
    plans: list[CollectionPlan] = []
    told = run(FakeCluster(objects_of(digests)), store, show=plans.append)
    assert any("no part is deleted" in note for note in plans[0].notes)
    assert told
    assert not any("parts" in line for line in told)
    assert stray.exists()
    manifest.write_bytes(text)
    run(FakeCluster(objects_of(digests)[1:]), store)
    assert not stray.exists()
    all_are_whole(store)


def test_a_young_part_without_an_image_is_somebodys_work(store: Path) -> None:
    digests = write_images(store, "new")
    stray = store / "parts" / f"sha256-{'7' * 64}"
    stray.write_bytes(b"x")
    foreign = store / "parts" / "README"
    foreign.write_bytes(b"x")
    cluster = FakeCluster(objects_of(digests))
    run(cluster, store)
    assert stray.exists()
    age(store)
    run(cluster, store)
    assert not stray.exists()
    assert foreign.exists(), "no name of ours"


def test_old_leftovers_of_writers_go_and_young_ones_are_gone_on_with(store: Path) -> None:
    digests = write_images(store, "new")
    left = [
        store / f".sha256-{'1' * 64}.aa",
        store / "parts" / f".sha256-{'2' * 64}.bb",
        store / ".pulling" / f"sha256-{'3' * 64}",
    ]
    left[0].mkdir()
    (store / ".pulling").mkdir()
    left[1].write_bytes(b"x")
    left[2].write_bytes(b"x")
    cluster = FakeCluster(objects_of(digests))
    run(cluster, store)
    assert all(file.exists() for file in left)
    age(store)
    run(cluster, store)
    assert not any(file.exists() for file in left)


def test_a_store_that_is_written_to_is_left_alone(store: Path) -> None:
    digests = write_images(store, "old", "new")
    cluster = FakeCluster(objects_of(digests))
    with locked(store), pytest.raises(Retryable, match="is published or pulled"):
        run(cluster, store, lock_seconds=0.0)
    assert cluster.calls == []
    assert len(folders(store)) == 2


def test_the_images_of_another_cluster_are_not_taken_for_nobodys(store: Path) -> None:
    write_images(store, "one", "two")
    with pytest.raises(Refused, match="an Image for none of the 2 images"):
        run(FakeCluster(), store)
    assert len(folders(store)) == 2


def test_a_store_that_is_not_there_is_named(store: Path) -> None:
    with pytest.raises(NotFound, match="does not exist"):
        run(FakeCluster(), store)


def test_a_link_in_the_store_is_not_followed(store: Path, tmp_path: Path) -> None:
    digests = write_images(store, "old", "new")
    folder = store / folder_name(digests[0])
    elsewhere = folder.rename(tmp_path / folder.name)
    folder.symlink_to(elsewhere)
    os.utime(folder, (NOW.timestamp() - OLD,) * 2, follow_symlinks=False)
    run(FakeCluster(objects_of(digests)), store)
    assert (elsewhere / "manifest").exists()


STEPS = ("rename", "unlink", "rmdir", "fsync")


class Killed(BaseException):
    """The process ends here, as by SIGKILL."""


@pytest.fixture
def kill_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[FakeCluster, int], None]]:
    """Have the process end at its n-th step that changes the disk or the cluster."""
    real = {name: getattr(os, name) for name in STEPS}

    def arm(cluster: FakeCluster, number: int) -> None:
        steps = iter(range(10_000))

        def step() -> None:
            if next(steps) == number:
                raise Killed

        def counted(work: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **more: Any) -> Any:
                step()
                return work(*arguments, **more)

            return call

        cluster.around_delete = step
        for name in STEPS:
            monkeypatch.setattr(os, name, counted(real[name]))

    yield arm
    monkeypatch.undo()


@pytest.mark.parametrize("number", range(24))
def test_an_end_between_any_two_steps_leaves_nothing_wrong_and_the_next_run_goes_on(
    store: Path, kill_at: Callable[[FakeCluster, int], None], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    digests = write_images(store, "old", "older", "used", "new")
    used = other("NodePool", "gpu", spec={"imageRef": "i2"})
    cluster = FakeCluster([*objects_of(digests), used])
    kill_at(cluster, number)
    with suppress(Killed):
        run(cluster, store)
    monkeypatch.undo()
    cluster.around_delete = lambda: None
    all_are_whole(store)
    for each in cluster.images & {"i2", "i3"}:
        assert (store / folder_name(digests[int(each[1])])).is_dir()
    assert cluster.images >= {"i2", "i3"}
    # What was written to by the run that was ended is young now, but for what it had begun to delete.
    run(cluster, store)
    assert cluster.images == {"i2", "i3"}
    assert folders(store) == {store / folder_name(digest) for digest in digests[2:]}
    age(store)
    run(cluster, store)
    all_are_whole(store)
    assert read_marks(store) == {}
    assert len(list((store / "parts").iterdir())) == 3 + 2 * 2


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.sets(st.integers(0, 4), min_size=1, max_size=4), st.booleans(), st.booleans(), st.booleans()),
        min_size=1,
        max_size=5,
        unique_by=lambda each: frozenset(each[0]),
    ),
    st.integers(0, 2),
    st.integers(0, 40),
)
def test_no_part_of_an_image_that_stays_is_ever_deleted(
    tmp_path_factory: pytest.TempPathFactory,
    kill_at: Callable[[FakeCluster, int], None],
    monkeypatch: pytest.MonkeyPatch,
    made: list[tuple[set[int], bool, bool, bool]],
    keep: int,
    number: int,
) -> None:
    """Images of common layers; used or not, with an Image or not, old or young; ended anywhere."""
    store = tmp_path_factory.mktemp("played") / "store"
    objects: list[dict[str, Any]] = []
    protected: set[Sha256Digest] = set()
    written: list[tuple[Path, bool]] = []
    for place, (layers, is_used, has_object, is_young) in enumerate(made):
        contents = {"kernel": b"k", "stage1": b"s"} | {f"layer.l{n}": f"layer {n}".encode() for n in sorted(layers)}
        folder = write_layered(store, KEY, contents)
        digest = digest_of_folder(folder) or Sha256Digest("")
        written.append((folder, is_young))
        if has_object:
            objects.append(image(f"i{place}", digest, NOW - timedelta(days=0.1 if is_young else 9)))
        if is_used:
            objects.append(other("Server", f"r{place}", status={"verification": {"imageDigest": digest}}))
        if is_used or is_young:
            protected.add(digest)
    age(store)
    for folder, is_young in written:
        os.utime(folder, (NOW.timestamp() - (60 if is_young else OLD),) * 2)
    cluster = FakeCluster(objects)
    rules = RetentionRules(keep=keep, grace=RULES.grace)
    kill_at(cluster, number)
    with suppress(Killed, Refused):
        run(cluster, store, rules)
    monkeypatch.undo()
    all_are_whole(store)
    assert {store / folder_name(digest) for digest in protected} <= folders(store)
    cluster.around_delete = lambda: None
    with suppress(Refused):
        run(cluster, store, rules)
    all_are_whole(store)
    assert {store / folder_name(digest) for digest in protected} <= folders(store)
    shutil.rmtree(store.parent)
