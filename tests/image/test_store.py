"""The store: whatever ends a writer, and however many there are, what looks whole is whole."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from provisioner.api.machinery.errors import Refused
from provisioner.image.finished import store as store_module
from provisioner.image.finished.check import check_image
from provisioner.image.finished.manifest import MANIFEST, digest_of
from provisioner.image.finished.sign import SecretKey
from provisioner.image.finished.store import digest_of_folder, locked, part_files, put, put_image
from provisioner.image.retention.collect import alone
from tests.image.made_images import LAYERED, WRITERS, manifest_of, write_files, write_layered, write_of_format_1

FORK = multiprocessing.get_context("fork")


@pytest.fixture
def key() -> SecretKey:
    return SecretKey.generate()


@pytest.fixture(params=[2, 1], ids=["format 2", "format 1"])
def image(request: pytest.FixtureRequest, tmp_path: Path, key: SecretKey) -> Path:
    folder: Path = WRITERS[request.param](tmp_path / "built", key)
    return folder


def visible(store: Path) -> list[Path]:
    """What is served of it: nothing whose name begins with a dot."""
    found = [*store.iterdir(), *(store / "parts").glob("*")] if store.is_dir() else []
    return [path for path in found if path.name != "parts" and not path.name.startswith(".")]


def digest(image: Path) -> Any:
    return digest_of((image / MANIFEST).read_bytes())


def put_until(image: Path, store: Path, deaths: int) -> None:
    """Put, and be killed when the store is about to be changed for the `deaths`-th time."""
    left = deaths

    def dying(change: Callable[..., Any]) -> Callable[..., Any]:
        def changed(*arguments: Any, **words: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return change(*arguments, **words)

        return changed

    for owner, name in ((Path, "open"), (Path, "rename"), (Path, "mkdir"), (Path, "unlink"), (os, "fsync")):
        setattr(owner, name, dying(getattr(owner, name)))
    put(image, store, digest(image))


@pytest.mark.programs
def test_a_writer_that_is_killed_at_any_moment_leaves_nothing_that_looks_whole(
    image: Path, key: SecretKey, tmp_path: Path
) -> None:
    killed, deaths, seen_without = 0, 0, 0
    while True:
        store = tmp_path / f"store-{deaths}"
        writer = FORK.Process(target=put_until, args=(image, store, deaths))
        writer.start()
        writer.join(120)
        for path in visible(store):
            if digest_of_folder(path) is not None and path.is_dir():
                check_image(path, key.public)
            else:
                assert store_module.measure(path).sha256 == path.name.removeprefix("sha256-")
        seen_without += (store / image.name).is_dir() is False
        put(image, store, digest(image))
        check_image(store / image.name, key.public)
        if writer.exitcode == 0:
            break
        assert writer.exitcode == -signal.SIGKILL
        killed, deaths = killed + 1, deaths + 1
    assert killed > 20, "it was killed between each two files"
    assert 10 < seen_without <= killed


@pytest.mark.programs
def test_two_writers_at_once_leave_one_whole_image(image: Path, key: SecretKey, tmp_path: Path) -> None:
    store, start = tmp_path / "store", FORK.Barrier(4)

    def write() -> None:
        start.wait(60)
        put(image, store, digest(image))

    writers = [FORK.Process(target=write) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
    assert [writer.exitcode for writer in writers] == [0, 0, 0, 0]
    check_image(store / image.name, key.public)
    hidden = [path.name for path in store.rglob(".*")]
    assert hidden == [".lock"], "nothing half is left"


def test_an_image_that_lacks_a_file_is_not_begun_to_be_seen(image: Path, key: SecretKey, tmp_path: Path) -> None:
    store, kernel = tmp_path / "store", part_files(image)["kernel"]
    aside = kernel.rename(tmp_path / "aside")
    with pytest.raises(FileNotFoundError):
        put(image, store, digest(image))
    assert not (store / image.name).exists()
    assert [path.name for path in store.rglob(".*")] == [".lock"]
    aside.rename(kernel)
    assert put(image, store, digest(image)) == store / image.name
    check_image(store / image.name, key.public)


def test_a_part_that_several_images_have_is_kept_once(tmp_path: Path, key: SecretKey) -> None:
    store = tmp_path / "store"
    first = write_layered(store, key)
    inodes = {path: path.stat().st_ino for path in (store / "parts").iterdir()}
    assert inodes
    second = write_layered(store, key, {**LAYERED, "layer.site": b"another site"})
    assert first != second
    new = [path for path in (store / "parts").iterdir() if path not in inodes]
    assert new == [part_files(second)["layer.site"]]
    assert all(path.stat().st_ino == inode for path, inode in inodes.items()), "what was there was not written again"


def test_a_part_that_is_not_what_the_manifest_says_is_not_taken(tmp_path: Path, key: SecretKey) -> None:
    files = write_files(tmp_path / "files", LAYERED)
    text = manifest_of(files).encode()
    files["layer.site"].write_bytes(b"!" * 400)
    store = tmp_path / "store"
    with pytest.raises(Refused, match="its manifest says 400"):
        put_image(store, text, key.sign(text), files)
    assert not (store / f"sha256-{digest_of(text).removeprefix('sha256:')}").exists()
    assert [path.name for path in store.rglob(".*")] == [".lock"]


def test_a_part_that_was_cut_is_written_again_even_if_the_image_is_there(tmp_path: Path, key: SecretKey) -> None:
    image = write_layered(tmp_path / "built", key)
    store = tmp_path / "store"
    put(image, store, digest(image))
    part = part_files(store / image.name)["layer.base"]
    for damage in (lambda: part.write_bytes(b"cut"), part.unlink):
        damage()
        put(image, store, digest(image))
        check_image(store / image.name, key.public)


def test_an_image_is_put_under_no_digest_but_its_own(tmp_path: Path, key: SecretKey) -> None:
    image = write_of_format_1(tmp_path / "built", key)
    with pytest.raises(Refused, match="holds the manifest"):
        put(image, tmp_path / "store", "sha256:" + "0" * 64)  # type: ignore[arg-type]


def test_who_deletes_from_a_store_waits_for_writers_and_they_for_it(tmp_path: Path, key: SecretKey) -> None:
    image, store = write_layered(tmp_path / "built", key), tmp_path / "store"
    with locked(store), (store / ".lock").open() as other:
        fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)  # two who write
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with alone(store, 60.0):
        writer = threading.Thread(target=put, args=(image, store, digest(image)))
        writer.start()
        writer.join(0.5)
        assert visible(store) == [], "it has not begun"
    writer.join(120)
    check_image(store / image.name, key.public)
