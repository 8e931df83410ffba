"""An image key takes the place of another, and one that was stolen is refused: the commands of docs/rotation.md."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lab.control_plane.plane import ControlPlane
from provisioner.api import NodePool, Server
from provisioner.api.machinery.errors import Refused
from provisioner.cli.main import provisioner
from provisioner.cluster.client import Cluster
from provisioner.image.finished.manifest import SIGNATURE
from provisioner.image.finished.sign import PublicKey, SecretKey, read_secret_key
from tests.api.objects import node_pool, rack, server
from tests.image.made_images import LAYERED, write_layered

Run = Callable[..., Result]


@pytest.fixture
def run(control_plane: ControlPlane, cluster: Cluster) -> Run:
    """`provisioner …` as the administrator."""

    def call(*words: object) -> Result:
        told = [str(word) for word in words]
        return CliRunner().invoke(provisioner, [*told, "--kubeconfig", str(control_plane.kubeconfig)])

    return call


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    """Folders of the old and the new key, as `provisioner image keygen` makes them."""
    folders = tmp_path / "old", tmp_path / "new"
    for folder in folders:
        assert CliRunner().invoke(provisioner, ["image", "keygen", str(folder)]).exit_code == 0
    return folders


def built(folder: Path, key: Path, unique: str, content: bytes) -> Path:
    """An image that was signed with the key of this folder."""
    contents = {**LAYERED, "layer.site": content + unique.encode()}
    return write_layered(folder, read_secret_key(key / "image.sec"), contents, unique)


def public(key: Path) -> PublicKey:
    return PublicKey.decode((key / "image.pub").read_text())


def test_a_key_takes_the_place_of_another_while_both_are_believed(
    tmp_path: Path, keys: tuple[Path, Path], run: Run, cluster: Cluster, unique: str
) -> None:
    old, new = keys
    store, both = tmp_path / "store", tmp_path / "both.pub"
    both.write_text((old / "image.pub").read_text() + (new / "image.pub").read_text())
    before, after = built(tmp_path / "b1", old, unique, b"before"), built(tmp_path / "b2", new, unique, b"after")
    # 1. What boot hosts and build machines believe is widened: images of both keys pass.
    for image in (before, after):
        done = run("image", "publish", image, "--store", store, "--key", both)
        assert done.exit_code == 0, done.output
    # 2. A pool and a server boot the old one; then both are on the new one.
    names = {image: f"{unique}-{image.name.removeprefix('sha256-')[:12]}" for image in (before, after)}
    cluster.apply(rack(unique), manager="tests")
    cluster.apply(node_pool(unique, imageRef=names[before]), manager="tests")
    cluster.apply(server(f"{unique}-u01", rackRef=unique, nodePoolRef=unique), manager="tests")
    cluster.apply_status(Server, f"{unique}-u01", {"imageRef": names[before]}, manager="tests")
    asked = run("image", "keys", "--signed-by", old / "image.pub")
    assert asked.exit_code == 1, "the old key is needed yet"
    assert f"{names[before]}: Server {unique}-u01" in asked.output
    assert names[after] not in asked.output
    cluster.apply(node_pool(unique, imageRef=names[after]), manager="tests")
    cluster.apply_status(Server, f"{unique}-u01", {"imageRef": names[after]}, manager="tests")
    assert cluster.read(NodePool, unique).spec.image_ref == names[after]
    # 3. Nothing names an image of the old key: it is taken out of the file.
    asked = run("image", "keys", "--signed-by", old / "image.pub")
    assert (asked.exit_code, names[before] in asked.output) == (0, True), asked.output
    refused = run("image", "publish", before, "--store", tmp_path / "elsewhere", "--key", new / "image.pub")
    assert isinstance(refused.exception, Refused)
    assert f"signed with key {public(old).number.hex()}" in str(refused.exception)
    listed = run("image", "keys")
    rows = {line.split()[-1]: line.split()[:4] for line in listed.output.splitlines()[1:]}
    assert rows[names[before]] == [public(old).number.hex(), "0", "0", "0"]
    assert rows[names[after]] == [public(new).number.hex(), "1", "1", "0"]


def test_with_a_stolen_key_nothing_is_published_once_its_place_is_taken(
    tmp_path: Path, keys: tuple[Path, Path], run: Run, unique: str
) -> None:
    stolen, new = keys
    forged = built(tmp_path / "forged", stolen, unique, b"a back door")
    for disguise in ("as it is", "with the new key's number"):
        if disguise != "as it is":
            thief = SecretKey(public(new).number, read_secret_key(stolen / "image.sec").seed)
            (forged / SIGNATURE).write_text(thief.sign((forged / "manifest").read_bytes()))
        published = run("image", "publish", forged, "--store", tmp_path / "store", "--key", new / "image.pub")
        verified = CliRunner().invoke(provisioner, ["image", "verify", str(forged), "--key", str(new / "image.pub")])
        for refused in (published, verified):
            assert isinstance(refused.exception, Refused), disguise
        assert not (tmp_path / "store").exists() or not list((tmp_path / "store").glob("sha256-*"))
    honest = built(tmp_path / "honest", new, unique, b"no back door")
    assert run("image", "publish", honest, "--store", tmp_path / "store", "--key", new / "image.pub").exit_code == 0
