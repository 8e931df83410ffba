from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from provisioner.api.errors import NotFound, Refused
from provisioner.api.image import Image
from provisioner.cluster.client import Cluster
from provisioner.image.finished.check import check_image
from provisioner.image.finished.manifest import FILES, MANIFEST, SIGNATURE, File, Manifest, digest_of
from provisioner.image.finished.publish import publish_image
from provisioner.image.finished.sign import SecretKey
from provisioner.image.finished.store import folder_name, measure, put


def write_image(folder: Path, key: SecretKey, recipe: str = "gpu-node") -> Path:
    """A whole, signed image of three short files, in a folder of its name."""
    work = folder / "work"
    work.mkdir(parents=True)
    measured: dict[str, File] = {}
    for kind, name in FILES.items():
        (work / name).write_bytes(kind.encode() * 100)
        measured[kind] = measure(work / name)
    manifest = Manifest(
        recipe=recipe,
        distribution="debian-13",
        architecture="x86_64",
        kernel_arguments=("quiet",),
        versions={"kubelet": "v1.36.3"},
        **measured,
    )
    text = manifest.encode()
    (work / MANIFEST).write_bytes(text)
    (work / SIGNATURE).write_text(key.sign(text))
    return work.rename(folder / folder_name(digest_of(text)))


@pytest.fixture
def key() -> SecretKey:
    return SecretKey.generate()


@pytest.fixture
def image(tmp_path: Path, key: SecretKey) -> Path:
    return write_image(tmp_path / "built", key)


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


@pytest.mark.parametrize(
    ("name", "damage", "error", "words"),
    [
        ("root.squashfs", Path.unlink, NotFound, "lacks"),
        ("root.squashfs", append, Refused, "has 401 bytes, the manifest says 400"),
        ("root.squashfs", alter, Refused, "is altered: its sha256 is"),
        ("vmlinuz", alter, Refused, "is altered"),
        ("stage1.img", alter, Refused, "is altered"),
        ("manifest", Path.unlink, NotFound, "does not exist"),
        ("manifest", alter, Refused, "either was altered"),
        ("manifest.sig", Path.unlink, NotFound, "does not exist"),
        ("manifest.sig", append, Refused, "the signature is not"),
    ],
)
def test_a_damaged_image_is_refused_before_anything_is_published(
    image: Path, key: SecretKey, tmp_path: Path, name: str, damage: Any, error: type[Exception], words: str
) -> None:
    damage(image / name)
    with pytest.raises(error, match=words):
        publish_image(image, tmp_path / "store", key.public, Broken())
    assert not (tmp_path / "store").exists()


def test_another_key_and_another_name_are_refused(image: Path, key: SecretKey) -> None:
    with pytest.raises(Refused, match="is signed with key"):
        check_image(image, SecretKey.generate().public)
    with pytest.raises(Refused, match="holds the manifest"):
        check_image(image.rename(image.with_name("sha256-" + "0" * 64)), key.public)


def test_a_copy_appears_whole_or_not_at_all(image: Path, key: SecretKey, tmp_path: Path) -> None:
    store = tmp_path / "store"
    digest = check_image(image, key.public).digest
    (image / "vmlinuz").rename(tmp_path / "vmlinuz")
    with pytest.raises(FileNotFoundError):
        put(image, store, digest)
    assert list(store.iterdir()) == []
    (tmp_path / "vmlinuz").rename(image / "vmlinuz")
    assert put(image, store, digest) == store / image.name
    assert [path.name for path in store.iterdir()] == [image.name]


def test_a_damaged_copy_in_the_store_is_not_taken_for_the_image(image: Path, key: SecretKey, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(image, store / image.name)
    alter(store / image.name / "root.squashfs")
    with pytest.raises(Refused, match="is altered"):
        publish_image(image, store, key.public, Broken())


class Broken:
    """A cluster that must not be asked."""

    def apply(self, body: Mapping[str, Any], *, manager: str) -> Any:
        raise AssertionError("nothing may be applied")


def test_publishing_makes_the_object_that_servers_boot_from_and_doing_it_again_changes_nothing(
    cluster: Cluster, unique: str, key: SecretKey, tmp_path: Path
) -> None:
    image = write_image(tmp_path / "built", key, recipe=unique)
    published = publish_image(image, tmp_path / "store", key.public, cluster)
    assert published.folder == tmp_path / "store" / image.name
    found = cluster.read(Image, published.name)
    hex_digest = image.name.removeprefix("sha256-")
    assert published.name == f"{unique}-{hex_digest[:12]}"
    assert found.spec.digest == f"sha256:{hex_digest}"
    assert found.spec.root.path == f"{image.name}/root.squashfs"
    assert found.spec.root.size_bytes == 400
    assert found.spec.kernel_arguments == ("quiet",)
    assert found.spec.versions == {"kubelet": "v1.36.3"}
    key.public.verify((published.folder / "manifest").read_bytes(), found.spec.signature)
    assert publish_image(image, tmp_path / "store", key.public, cluster) == published
    again = cluster.read(Image, published.name)
    assert again.metadata.resource_version == found.metadata.resource_version
