"""A boot host with an empty disk fills its store, from a registry, by what its cluster has."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from provisioner.api import Image
from provisioner.api.images.image import Artifact
from provisioner.api.machinery.errors import NeedsHuman, Retryable
from provisioner.api.machinery.values import Sha256Digest
from provisioner.boot.host.image_store import files_of, judge_image
from provisioner.image.finished.check import check_image
from provisioner.image.finished.publish import image_object
from provisioner.image.finished.sign import SecretKey
from provisioner.image.registry.access import open_access
from provisioner.image.registry.push import push_image
from provisioner.image.registry.reference import parse_repository
from provisioner.image.retention.fill import StoreFiller
from tests.boot.fake_source import FakeSource
from tests.boot.objects import NOON, pool
from tests.image.made_images import LAYERED, write_layered
from tests.image.registry.conftest import LIMITS, Reach
from tests.image.registry.fake_registry import fake_registry


class Site:
    """A filler, and what it knows. `clock` is moved by hand."""

    def __init__(
        self, store: Path, key: SecretKey, address: str = "oci://127.0.0.1:1/site/images", **more: object
    ) -> None:
        self.images, self.servers, self.pools = FakeSource(), FakeSource(), FakeSource()
        self.now = 0.0
        self.stored = 0
        self.filler = StoreFiller(
            images=self.images, servers=self.servers, pools=self.pools, store=store, key=key.public,
            access=lambda: open_access(parse_repository(address), limits=LIMITS), registry=address,
            clock=lambda: self.now, spread=lambda: 1.0, **more,  # type: ignore[arg-type]
        )  # fmt: skip
        self.filler.attach(self.come)

    def come(self) -> None:
        self.stored += 1


@dataclass
class FakeMeter:
    """What it was told, in order."""

    told: list[object] = field(default_factory=list)

    def began(self) -> None:
        self.told.append("began")

    def ended(self, *, succeeded: bool, fetched_bytes: int, seconds: float) -> None:
        self.told.append((succeeded, fetched_bytes, seconds))


def test_a_pull_is_told_to_who_counts_with_its_bytes_and_its_end(
    tmp_path: Path, key: SecretKey, built: Path, reach: Reach
) -> None:
    meter = FakeMeter()
    with fake_registry() as registry:
        with reach(registry.address) as client:
            push_image(built, client, key.public)
        site = Site(tmp_path / "store", key, registry.address, meter=meter)
        image = published(built, key)
        site.filler.pull(image.name)
        assert meter.told == [], "there is no such image"
        site.images.put(image)
        site.filler.pull(image.name)
    assert meter.told == ["began", (True, sum(part.size_bytes for part in parts_of(image)), 0.0)]
    failing = Site(tmp_path / "other", key, meter=(meter := FakeMeter()))
    failing.images.put(image)
    failing.filler.pull(image.name)
    assert meter.told == ["began", (False, 0, 0.0)]


def parts_of(image: Image) -> list[Artifact]:
    """Once each, as they are fetched: all but the manifest, which comes with the artifact."""
    found = {part.path: part for part in (*image.spec.served, *image.spec.documents) if part != image.spec.manifest}
    return [*found.values()]


def published(folder: Path, key: SecretKey) -> Image:
    return image_object(check_image(folder, key.public))


@pytest.fixture(autouse=True)
def _no_docker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "no-docker"))


def wait(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_an_empty_disk_fills_itself_with_what_the_cluster_needs(
    tmp_path: Path, key: SecretKey, built: Path, reach: Reach
) -> None:
    old = write_layered(tmp_path / "built", key, {**LAYERED, "layer.site": b"old"})
    store = tmp_path / "store"
    with fake_registry() as registry:
        with reach(registry.address) as client:
            for folder in (built, old):
                push_image(folder, client, key.public)
        site = Site(store, key, registry.address)
        images = [published(folder, key) for folder in (built, old)]
        for image in images:
            site.images.put(image)
        site.pools.put(pool(image_ref=images[0].name))
        stop = threading.Event()
        thread = threading.Thread(target=site.filler.run, args=(stop,))
        thread.start()
        wait(lambda: site.stored >= 1 and (store / built.name).is_dir())
        newest = max(images, key=lambda each: each.name)  # of the same age: by name
        wait(lambda: site.stored >= (2 if newest is images[1] else 1))
        stop.set()
        site.filler.wake()
        thread.join(30)
        assert not thread.is_alive()
    check_image(store / built.name, key.public)
    assert site.filler.look() == ()
    if newest is not images[1]:
        assert site.filler.words(images[1].name) == f"nothing names it, so it is not pulled from {registry.address}"
        assert not (store / old.name).exists()


def test_an_image_that_appears_wakes_it_and_so_does_a_pool(tmp_path: Path, key: SecretKey, built: Path) -> None:
    site = Site(tmp_path / "store", key)
    woken: list[str] = []
    site.filler.wake = lambda: woken.append("woken")  # type: ignore[method-assign]
    site.images.put(published(built, key))
    site.pools.put(pool())
    assert woken == ["woken", "woken"]


def test_before_everything_is_known_nothing_is_pulled_and_nothing_said(
    tmp_path: Path, key: SecretKey, built: Path
) -> None:
    site = Site(tmp_path / "store", key)
    image = published(built, key)
    site.images.put(image)
    site.servers.has_synced = False
    assert site.filler.look() == ()
    assert site.filler.words(image.name) is None
    site.servers.has_synced = True
    assert site.filler.look() == (image.name,)
    assert site.filler.look() == (), "it is under way"
    assert "is being pulled" in str(site.filler.words(image.name))


def test_what_fails_is_said_in_the_images_condition_and_tried_again_later(
    tmp_path: Path, key: SecretKey, built: Path
) -> None:
    errors: list[Exception] = [
        NeedsHuman("no room on the disk", hint="make some"),
        Retryable("busy", after_seconds=700),
        ZeroDivisionError("a mistake of ours"),
    ]

    def pull(digest: Sha256Digest) -> None:
        raise errors.pop(0)

    site = Site(tmp_path / "store", key, pull=pull)
    image = published(built, key)
    site.images.put(image)
    for words, wait_seconds in (("no room on the disk; make some", 5), ("busy", 700), ("a mistake of ours", 20)):
        assert site.filler.look() == (image.name,)
        site.filler.pull(image.name)
        said = site.filler.words(image.name)
        assert said == f"pulling it is tried again and again: {words}"
        site.now += wait_seconds - 1
        assert site.filler.look() == ()
        site.now += 1
    sizes = dict.fromkeys((file.path for file in files_of(image)), None)
    availability = judge_image(image, sizes, "boot1", NOON, said)
    assert availability is not None
    assert availability.condition.message.endswith(f"in the image store of boot host 'boot1': {said}")
    assert site.stored == 3


def test_an_image_object_that_lies_about_its_files_is_not_pulled_without_end(
    tmp_path: Path, key: SecretKey, built: Path
) -> None:
    pulled: list[str] = []
    site = Site(tmp_path / "store", key, pull=pulled.append)
    image = published(built, key)
    site.images.put(image)
    assert site.filler.look() == (image.name,)
    site.filler.pull(image.name)
    assert "names files that its manifest does not have" in str(site.filler.words(image.name))
    assert site.filler.look() == ()
    assert pulled == [image.spec.digest]


def test_an_image_that_is_deleted_is_forgotten(tmp_path: Path, key: SecretKey, built: Path) -> None:
    site = Site(tmp_path / "store", key, pull=lambda digest: None)
    image = published(built, key)
    site.images.put(image)
    assert site.filler.look() == (image.name,)
    site.images.remove(image.name)
    site.filler.pull(image.name)
    assert site.filler.look() == ()
    assert "nothing names it" in str(site.filler.words(image.name))
