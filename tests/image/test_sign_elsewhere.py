"""The signing key is on another machine: what goes there and back, and what is refused on the way."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from provisioner.api.machinery.errors import NotFound, Refused
from provisioner.api.machinery.values import Sha256Digest
from provisioner.cli.main import provisioner
from provisioner.image.finished.check import check_image
from provisioner.image.finished.manifest import MANIFEST, SIGNATURE, digest_of
from provisioner.image.finished.publish import publish_image
from provisioner.image.finished.sign import SecretKey, read_public_keys, read_secret_key
from provisioner.image.finished.sign_elsewhere import sign_manifest
from provisioner.image.finished.store import put_image
from tests.image.made_images import LAYERED, manifest_of, write_files, write_layered
from tests.tools import signify


class Applied:
    """An API server that takes everything."""

    def __init__(self) -> None:
        self.bodies: list[Any] = []

    def apply(self, body: Any, *, manager: str) -> None:
        self.bodies.append(body)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """The machine that has the key."""
    folder = tmp_path / "vault"
    assert run("keygen", folder).exit_code == 0
    return folder


def run(*words: object) -> Result:
    return CliRunner().invoke(provisioner, ["image", *map(str, words)])


def unsigned(store: Path) -> Path:
    """What a build with --sign-elsewhere leaves."""
    files = write_files(store.with_name(f"{store.name}-files"), LAYERED)
    return put_image(store, manifest_of(files).encode(), None, files)


@pytest.mark.programs
def test_only_the_manifest_goes_to_the_key_and_only_the_signature_comes_back(tmp_path: Path, keys: Path) -> None:
    image = unsigned(tmp_path / "built")
    there = tmp_path / "vault" / "today"
    there.mkdir()
    shutil.copy(image / MANIFEST, there)
    done = run("sign", there / MANIFEST, "--key", keys / "image.sec", "--digest", image.name.replace("-", ":"))
    assert done.exit_code == 0, done.output
    assert "recipe        gpu-node" in done.output
    assert "arguments     quiet" in done.output
    shutil.copy(there / SIGNATURE, image)
    assert run("verify", image, "--key", keys / "image.pub").exit_code == 0
    cluster = Applied()
    publish_image(image, tmp_path / "store", read_public_keys(keys / "image.pub"), cluster)
    assert cluster.bodies[0]["spec"]["signature"] == (there / SIGNATURE).read_text()
    subprocess.run(
        [*signify(), "-V", "-q", "-p", keys / "image.pub", "-x", image / SIGNATURE, "-m", image / MANIFEST], check=True
    )
    secret = (keys / "image.sec").read_text().splitlines()[1]
    for folder in (tmp_path / "built", tmp_path / "store"):
        assert not [file for file in folder.rglob("*") if file.is_file() and secret.encode() in file.read_bytes()]


def test_an_image_that_waits_for_its_signature_is_neither_verified_nor_published(tmp_path: Path, keys: Path) -> None:
    image, trusted = unsigned(tmp_path / "built"), read_public_keys(keys / "image.pub")
    with pytest.raises(Refused, match="is not signed") as refused:
        check_image(image, trusted)
    assert "provisioner image sign" in str(refused.value.hint)
    cluster = Applied()
    with pytest.raises(Refused, match="is not signed"):
        publish_image(image, tmp_path / "store", trusted, cluster)
    assert not cluster.bodies
    assert not (tmp_path / "store").exists()


def test_one_that_another_key_signed_is_not_published(tmp_path: Path, keys: Path) -> None:
    image, cluster = unsigned(tmp_path / "built"), Applied()
    sign_manifest(image, SecretKey.generate())
    with pytest.raises(Refused, match="is signed with key"):
        publish_image(image, tmp_path / "store", read_public_keys(keys / "image.pub"), cluster)
    assert not cluster.bodies


def test_a_copy_that_lies_in_the_store_without_a_signature_gets_it_when_it_is_published(
    tmp_path: Path, keys: Path
) -> None:
    key = read_secret_key(keys / "image.sec")
    unsigned(tmp_path / "store")
    image = write_layered(tmp_path / "built", key)
    published = publish_image(image, tmp_path / "store", key.public, Applied())
    assert (published.folder / SIGNATURE).read_text() == (image / SIGNATURE).read_text()


def test_what_is_not_the_manifest_that_was_built_is_not_signed(tmp_path: Path, keys: Path) -> None:
    image, key = unsigned(tmp_path / "built"), read_secret_key(keys / "image.sec")
    text = (image / MANIFEST).read_bytes()
    exchanged = tmp_path / "exchanged"
    exchanged.write_bytes(text.replace(b"kernel-arguments quiet", b"kernel-arguments quiet init=/bin/sh"))
    with pytest.raises(Refused, match="not of sha256:"):
        sign_manifest(exchanged, key, digest_of(text))
    letter = tmp_path / "letter"
    letter.write_text("pay the bearer\n")
    with pytest.raises(Refused, match="the manifest begins with"):
        sign_manifest(letter, key)
    with pytest.raises(NotFound, match="does not exist"):
        sign_manifest(tmp_path / "nothing", key)
    assert not (tmp_path / SIGNATURE).exists()


def test_to_sign_again_changes_nothing_and_another_keys_signature_stays(tmp_path: Path, keys: Path) -> None:
    image, key = unsigned(tmp_path / "built"), read_secret_key(keys / "image.sec")
    digest = Sha256Digest(image.name.replace("-", ":"))
    assert not sign_manifest(image, key, digest).again
    before = (image / SIGNATURE).read_text()
    assert sign_manifest(image, key, digest).again
    with pytest.raises(Refused, match=f"it says key {key.number.hex()}"):
        sign_manifest(image, SecretKey.generate())
    assert (image / SIGNATURE).read_text() == before


def test_a_build_names_one_key() -> None:
    words = ["build", "images/cpu-node", "--kubelet", "k", "--join-ca", "c", "--output", "o"]
    for more in ([], ["--key", "image.sec", "--sign-elsewhere", "image.pub"]):
        refused = run(*words, *more)
        assert refused.exit_code == 2
        assert "not both" in refused.output
