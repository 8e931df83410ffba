from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from provisioner.api.images.image import Image
from provisioner.api.machinery.errors import NotFound, Refused
from provisioner.cluster.client import Cluster
from provisioner.image.finished.check import check_image
from provisioner.image.finished.manifest import FileDigest
from provisioner.image.finished.publish import publish_image
from provisioner.image.finished.sign import SecretKey
from provisioner.image.finished.store import folder_name, measure, part_files, put
from tests.image.made_images import LAYERED, WRITERS, write_layered, write_of_format_1


@pytest.fixture
def key() -> SecretKey:
    return SecretKey.generate()


@pytest.fixture(params=[2, 1], ids=["format 2", "format 1"])
def image(request: pytest.FixtureRequest, tmp_path: Path, key: SecretKey) -> Path:
    folder: Path = WRITERS[request.param](tmp_path / "built", key)
    return folder


@pytest.fixture
def layered(tmp_path: Path, key: SecretKey) -> Path:
    return write_layered(tmp_path / "built", key)


@pytest.fixture
def old(tmp_path: Path, key: SecretKey) -> Path:
    return write_of_format_1(tmp_path / "built", key)


def test_a_whole_image_is_good(image: Path, key: SecretKey) -> None:
    checked = check_image(image, key.public)
    assert folder_name(checked.digest) == image.name
    assert checked.manifest.recipe == "gpu-node"


def append(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"x")


def alter(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


MANIFEST_DAMAGES = [
    ("manifest", Path.unlink, NotFound, "does not exist"),
    ("manifest", alter, Refused, "either was altered"),
    ("manifest.sig", Path.unlink, Refused, "is not signed"),
    ("manifest.sig", append, Refused, "the signature is not"),
]


@pytest.mark.parametrize(
    ("name", "damage", "error", "words"),
    [
        ("root.squashfs", Path.unlink, NotFound, "lacks root"),
        ("root.squashfs", append, Refused, "has 401 bytes, the manifest says 400"),
        ("root.squashfs", alter, Refused, "is altered: its sha256 is"),
        ("vmlinuz", alter, Refused, "is altered"),
        ("stage1.img", alter, Refused, "is altered"),
        *MANIFEST_DAMAGES,
    ],
)
def test_a_damaged_image_of_format_1_is_refused_before_anything_is_published(
    old: Path, key: SecretKey, tmp_path: Path, name: str, damage: Any, error: type[Exception], words: str
) -> None:
    damage(old / name)
    with pytest.raises(error, match=words):
        publish_image(old, tmp_path / "store", key.public, Broken())
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("name", "damage", "error", "words"),
    [
        *((part, alter, Refused, "is altered: its sha256 is") for part in LAYERED),
        ("layer.site", Path.unlink, NotFound, "lacks layer.site"),
        ("layer.site", append, Refused, "has 401 bytes, the manifest says 400"),
        ("document.sbom", Path.unlink, NotFound, "lacks document.sbom"),
        *MANIFEST_DAMAGES,
    ],
)
def test_a_damaged_image_is_refused_before_anything_is_published(
    layered: Path, key: SecretKey, tmp_path: Path, name: str, damage: Any, error: type[Exception], words: str
) -> None:
    damage(part_files(layered).get(name, layered / name))
    with pytest.raises(error, match=words):
        publish_image(layered, tmp_path / "store", key.public, Broken())
    assert not (tmp_path / "store").exists()


def test_another_key_and_another_name_are_refused(image: Path, key: SecretKey) -> None:
    with pytest.raises(Refused, match="is signed with key"):
        check_image(image, SecretKey.generate().public)
    with pytest.raises(Refused, match="holds the manifest"):
        check_image(image.rename(image.with_name("sha256-" + "0" * 64)), key.public)


def test_a_damaged_copy_in_the_store_is_not_taken_for_the_image_and_is_mended_by_publishing_it_again(
    layered: Path, key: SecretKey, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    published = put(layered, store, check_image(layered, key.public).digest)
    damaged = part_files(published)["layer.base"]
    alter(damaged)
    with pytest.raises(Refused, match="is altered"):
        check_image(published, key.public)
    put(layered, store, check_image(layered, key.public).digest)
    check_image(published, key.public)


def test_a_damaged_copy_of_format_1_is_not_taken_for_the_image(old: Path, key: SecretKey, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(old, store / old.name)
    alter(store / old.name / "root.squashfs")
    with pytest.raises(Refused, match="is altered"):
        publish_image(old, store, key.public, Broken())


class Broken:
    """A cluster that must not be asked."""

    def apply(self, body: Mapping[str, Any], *, manager: str) -> Any:
        raise AssertionError("nothing may be applied")


def test_publishing_makes_the_object_that_servers_boot_from_and_doing_it_again_changes_nothing(
    cluster: Cluster, unique: str, key: SecretKey, tmp_path: Path
) -> None:
    image = write_layered(tmp_path / "built", key, recipe=unique)
    published = publish_image(image, tmp_path / "store", key.public, cluster)
    assert published.folder == tmp_path / "store" / image.name
    found = cluster.read(Image, published.name)
    hex_digest = image.name.removeprefix("sha256-")
    assert published.name == f"{unique}-{hex_digest[:12]}"
    assert found.spec.digest == f"sha256:{hex_digest}"
    assert found.spec.root is None
    assert [layer.name for layer in found.spec.layers] == ["base", "kubelet", "site"]
    for artifact in (*found.spec.served, *found.spec.documents):
        file = tmp_path / "store" / artifact.path
        assert measure(file) == FileDigest(artifact.sha256.removeprefix("sha256:"), artifact.size_bytes), artifact.path
    assert [document.name for document in found.spec.documents] == ["sbom"]
    assert found.spec.kernel_arguments == ("quiet",)
    assert found.spec.versions == {"kubelet": "v1.36.3"}
    key.public.verify((published.folder / "manifest").read_bytes(), found.spec.signature)
    assert publish_image(image, tmp_path / "store", key.public, cluster) == published
    again = cluster.read(Image, published.name)
    assert again.metadata.resource_version == found.metadata.resource_version


def test_yesterdays_image_is_published_as_it_was(cluster: Cluster, unique: str, key: SecretKey, tmp_path: Path) -> None:
    image = write_of_format_1(tmp_path / "built", key, recipe=unique)
    published = publish_image(image, tmp_path / "store", key.public, cluster)
    found = cluster.read(Image, published.name)
    assert found.spec.root is not None
    assert (found.spec.root.path, found.spec.root.size_bytes) == (f"{image.name}/root.squashfs", 400)
    assert found.spec.layers == ()
    assert [artifact.path.partition("/")[2] for artifact in found.spec.served] == [
        *("manifest", "vmlinuz", "stage1.img", "root.squashfs")
    ]
    assert all((tmp_path / "store" / artifact.path).is_file() for artifact in found.spec.served)
    assert not (tmp_path / "store/parts").exists()
