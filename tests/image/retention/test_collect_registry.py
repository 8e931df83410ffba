"""What goes from the store goes from the registry as well, where one was named: also after a run that was ended."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from provisioner.api.machinery.errors import Retryable
from provisioner.image.finished.sign import SecretKey
from provisioner.image.finished.store import digest_of_folder
from provisioner.image.registry.access import open_access
from provisioner.image.registry.artifact import tag_of
from provisioner.image.registry.client import Registry
from provisioner.image.registry.push import push_image
from provisioner.image.registry.reference import parse_repository
from provisioner.image.registry.transport import RegistryTransport
from provisioner.image.retention.collect import collect, read_marks
from provisioner.image.retention.decide import RetentionRules
from tests.image.made_images import LAYERED, write_layered
from tests.image.registry.conftest import LIMITS
from tests.image.registry.fake_registry import FakeRegistry, fake_registry, say
from tests.image.retention.fake_cluster import FakeCluster, image
from tests.image.retention.test_collect import age

KEY = SecretKey.generate(lambda size: b"g" * size)
NOW = datetime.now(UTC)
RULES = RetentionRules(keep=1, grace=timedelta(hours=24))


@contextmanager
def client(registry: FakeRegistry) -> Iterator[Registry]:
    with RegistryTransport(
        open_access(parse_repository(registry.address), limits=LIMITS), sleep=lambda seconds: None
    ) as transport:
        yield Registry(transport)


class Site:
    """A store with an old and a new image, both in a registry; the old one may go."""

    def __init__(self, store: Path, registry: FakeRegistry) -> None:
        self.store, self.registry = store, registry
        digests, objects = [], []
        for number, site in enumerate(("old", "new")):
            folder = write_layered(store, KEY, {**LAYERED, "layer.site": site.encode()})
            digest = digest_of_folder(folder)
            assert digest is not None
            digests.append(digest)
            objects.append(image(f"i{number}", digest, NOW - timedelta(days=9 - number)))
            with client(registry) as each:
                push_image(folder, each, KEY.public)
        age(store)
        self.old, self.new = digests
        self.cluster = FakeCluster(objects)

    def run(self, *, named: bool = True) -> list[str]:
        told: list[str] = []
        with client(self.registry) as each:
            registry = each if named else None
            collect(self.cluster, self.store, RULES, lambda: NOW, registry=registry, tell=told.append)
        return told

    @property
    def tags(self) -> set[str]:
        return {tag for tag in self.registry.manifests if ":" not in tag}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    with fake_registry() as registry:
        yield Site(tmp_path / "store", registry)


def test_an_image_that_goes_is_deleted_in_the_registry_by_its_digest(site: Site) -> None:
    assert f"image i0 deleted in {site.registry.address}" in site.run()
    assert site.tags == {tag_of(site.new)}
    assert all(
        each.path.rpartition("/")[2].startswith("sha256:") for each in site.registry.asked if each.method == "DELETE"
    )
    assert read_marks(site.store) == {}


def test_without_a_registry_named_nothing_goes_there(site: Site) -> None:
    site.run(named=False)
    assert site.cluster.images == {"i1"}
    assert len(site.tags) == 2


def test_a_registry_that_does_not_answer_is_gone_on_with_by_the_next_run_that_names_it(site: Site) -> None:
    site.registry.trick = lambda r, asked, handler: (say(handler, 503, {}, b""), True)[1]
    with pytest.raises(Retryable, match="HTTP 503"):
        site.run()
    assert site.cluster.images == {"i1"}, "first the object"
    assert read_marks(site.store) == {site.old: site.registry.address}
    site.registry.trick = lambda *_: False
    (said,) = site.run(named=False)
    assert said.endswith(f"run this again with --registry {site.registry.address}")
    assert len(site.tags) == 2
    site.run()
    assert site.tags == {tag_of(site.new)}
    assert read_marks(site.store) == {}
    assert not (site.store / site.old.replace(":", "-")).exists()


def test_a_registry_that_deletes_nothing_says_so_and_the_store_is_cleared_all_the_same(site: Site) -> None:
    site.registry.trick = lambda r, asked, handler: asked.method == "DELETE" and (say(handler, 405, {}, b""), True)[1]
    told = site.run()
    assert any(f"stays in {site.registry.address}, which deletes nothing" in line for line in told)
    assert not (site.store / site.old.replace(":", "-")).exists()
    assert read_marks(site.store) == {}


def test_a_folder_that_never_had_an_image_here_is_left_in_the_registry_for_others(site: Site) -> None:
    """It may be another cluster's."""
    site.cluster.objects = [each for each in site.cluster.objects if each["metadata"]["name"] == "i1"]
    site.run()
    assert not (site.store / site.old.replace(":", "-")).exists()
    assert len(site.tags) == 2


def test_an_image_that_is_published_again_after_a_run_that_was_ended_stays_in_the_registry(site: Site) -> None:
    site.registry.trick = lambda r, asked, handler: (say(handler, 503, {}, b""), True)[1]
    with pytest.raises(Retryable):
        site.run()
    site.registry.trick = lambda *_: False
    site.cluster.objects.append(image("i2", site.old, NOW))
    site.run()
    assert tag_of(site.old) in site.tags
    assert site.cluster.images == {"i2"}
    assert read_marks(site.store) == {}
