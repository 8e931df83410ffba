"""Push and pull with Debian's docker-registry: over TLS with a password, and plainly on loopback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from provisioner.api.machinery.errors import Forbidden, NeedsHuman, NotFound, Refused
from provisioner.image.finished.check import check_image
from provisioner.image.finished.sign import SecretKey
from provisioner.image.finished.store import digest_of_folder
from provisioner.image.registry.artifact import ARTIFACT_TYPE, CONFIG_TYPE, encode_artifact, tag_of
from provisioner.image.registry.failures import MethodNotAllowed
from provisioner.image.registry.pull import pull_image
from provisioner.image.registry.push import push_image
from tests.image.made_images import LAYERED, WRITERS, write_layered
from tests.image.registry.conftest import Reach
from tests.image.registry.real_registry import PASSWORD, USER, RealRegistry, real_registry, write_certificate


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealRegistry]:
    with real_registry(tmp_path_factory.mktemp("secured"), secured=True) as registry:
        yield registry


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealRegistry]:
    with real_registry(tmp_path_factory.mktemp("plain"), secured=False, deletes=False) as registry:
        yield registry


@pytest.mark.parametrize("format_", [1, 2])
@pytest.mark.parametrize("kind", ["secured", "plain"])
def test_an_image_that_is_pushed_is_pulled_whole_elsewhere(
    request: pytest.FixtureRequest, kind: str, format_: int, tmp_path: Path, key: SecretKey,
    reach: Reach, configuration: Callable[..., Path],
) -> None:  # fmt: skip
    real: RealRegistry = request.getfixturevalue(kind)
    folder = WRITERS[format_](tmp_path / "built", key, recipe=f"{kind}-{format_}")  # type: ignore[index]
    digest = check_image(folder, key.public).digest
    file = configuration(real.host, USER, PASSWORD)
    with reach(real.address, ca=real.ca, configuration=file) as registry:
        pushed = push_image(folder, registry, key.public)
        assert pushed.sent_bytes > 1000
        again = push_image(folder, registry, key.public)
        assert (again.was_there, again.sent_bytes) == (True, 0)
        pulled = pull_image(digest, registry, tmp_path / "elsewhere", key.public)
        assert check_image(pulled.folder, key.public).digest == digest
        assert pull_image(digest, registry, tmp_path / "elsewhere", key.public).fetched_bytes == 0
        found = registry.find_manifest(tag_of(digest))
    assert found is not None
    manifest = json.loads(found.body)
    assert (manifest["artifactType"], manifest["config"]["mediaType"]) == (ARTIFACT_TYPE, CONFIG_TYPE)
    assert manifest["config"]["digest"] == digest, "the digest of the config is that of the image"
    assert real.blob(digest).read_bytes() == (folder / "manifest").read_bytes()


def test_a_new_layer_is_pushed_and_pulled_alone(
    plain: RealRegistry, tmp_path: Path, key: SecretKey, built: Path, reach: Reach
) -> None:
    base = {**LAYERED, "layer.base": bytes(range(256)) * 4}
    other = write_layered(tmp_path / "built", key, {**base, "layer.site": b"another site" * 9})
    digests = [digest_of_folder(folder) for folder in (built, other)]
    with reach(plain.address) as registry:
        push_image(built, registry, key.public)
        names: list[str] = []
        push_image(other, registry, key.public, lambda name, size, there: None if there else names.append(name))
        assert names == ["manifest", "manifest.sig", "layer.site"]
        for digest in digests:
            assert digest is not None
            last = pull_image(digest, registry, tmp_path / "elsewhere", key.public)
        assert last.fetched_bytes == len(b"another site" * 9)


def test_who_gives_no_password_or_a_wrong_one_is_told_so(
    secured: RealRegistry, key: SecretKey, built: Path, reach: Reach, configuration: Callable[..., Path]
) -> None:
    with (
        reach(secured.address, ca=secured.ca) as registry,
        pytest.raises(Refused, match="asks for a name and password"),
    ):
        push_image(built, registry, key.public)
    wrong = configuration(secured.host, USER, "wrong-7391")
    with (
        reach(secured.address, ca=secured.ca, configuration=wrong) as registry,
        pytest.raises(Forbidden, match="HTTP 401") as refused,
    ):
        push_image(built, registry, key.public)
    assert "7391" not in str(refused.value)


def test_a_certificate_of_a_stranger_is_not_believed(secured: RealRegistry, tmp_path: Path, reach: Reach) -> None:
    with (
        reach(secured.address, ca=write_certificate(tmp_path)) as registry,
        pytest.raises(NeedsHuman, match="certificate is not believed"),
    ):
        registry.find_manifest("image-x")


def test_what_the_disk_of_the_registry_has_lost_or_altered_never_gets_into_a_store(
    plain: RealRegistry, tmp_path: Path, key: SecretKey, built: Path, reach: Reach
) -> None:
    checked = check_image(built, key.public)
    layer = checked.manifest.layers[0].file
    with reach(plain.address) as registry:
        push_image(built, registry, key.public)
        blob = plain.blob(f"sha256:{layer.sha256}")
        good = blob.read_bytes()
        blob.write_bytes(bytes(len(good)))
        with pytest.raises(Refused, match="twice"):
            pull_image(checked.digest, registry, tmp_path / "elsewhere", key.public)
        assert not (tmp_path / "elsewhere" / built.name).exists()
        blob.write_bytes(good)
        pull_image(checked.digest, registry, tmp_path / "elsewhere", key.public)
    check_image(tmp_path / "elsewhere" / built.name, key.public)


def test_a_registry_that_deletes_and_one_that_does_not(
    secured: RealRegistry, plain: RealRegistry, key: SecretKey, built: Path, reach: Reach,
    configuration: Callable[..., Path],
) -> None:  # fmt: skip
    tag = tag_of(check_image(built, key.public).digest)
    file = configuration(secured.host, USER, PASSWORD)
    with reach(secured.address, ca=secured.ca, configuration=file) as registry:
        push_image(built, registry, key.public)
        found = registry.find_manifest(tag)
        assert found is not None
        assert registry.delete_manifest(found.digest)
        assert not registry.delete_manifest(found.digest), "it is gone"
        assert registry.find_manifest(tag) is None
        assert not push_image(built, registry, key.public).was_there, "it can be pushed again"
    with reach(plain.address) as registry:
        push_image(built, registry, key.public)
        found = registry.find_manifest(tag)
        assert found is not None
        with pytest.raises(MethodNotAllowed, match="HTTP 405"):
            registry.delete_manifest(found.digest)


def test_an_image_that_is_not_there_is_named(plain: RealRegistry, tmp_path: Path, key: SecretKey, reach: Reach) -> None:
    digest = f"sha256:{'5' * 64}"
    with reach(plain.address) as registry, pytest.raises(NotFound, match=f"has no image {digest}"):
        pull_image(digest, registry, tmp_path / "store", key.public)  # type: ignore[arg-type]


def test_the_commands_push_and_pull_and_show_no_password(
    secured: RealRegistry, tmp_path: Path, key: SecretKey, built: Path, configuration: Callable[..., Path]
) -> None:
    public = tmp_path / "image.pub"
    public.write_text(key.public.encode())
    assert secured.ca is not None
    file = configuration(secured.host, USER, PASSWORD)
    common = ["--key", str(public), "--registry-config", str(file), "--registry-ca", str(secured.ca)]

    def provisioner(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "provisioner.cli", *arguments],
            capture_output=True, text=True, check=False, env={**os.environ, "KUBECONFIG": "/nonexistent"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert PASSWORD not in done.stdout + done.stderr
        return done.stdout

    said = provisioner("image", "push", str(built), secured.address, *common).splitlines()
    assert said[-1] == f"{secured.address}@{built.name.replace('-', ':')}"
    said = provisioner("image", "pull", said[-1], "--store", str(tmp_path / "store"), *common).splitlines()
    assert said[-1] == str(tmp_path / "store" / built.name)
    check_image(tmp_path / "store" / built.name, key.public)
    assert encode_artifact(b"m", b"s", []) == encode_artifact(b"m", b"s", []), "the same image, the same bytes"
