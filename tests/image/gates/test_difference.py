"""Two images beside one another: in a store of format 2, signed, with their documents."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from provisioner.api.machinery.errors import NotFound, Refused
from provisioner.cli.service.image import image
from provisioner.cli.service.image_diff import render
from provisioner.image.finished.manifest import FileDigest, Layer, Manifest, digest_of
from provisioner.image.finished.sign import SecretKey
from provisioner.image.gates.documents.described import describe_image, find_image
from provisioner.image.gates.documents.difference import compare
from provisioner.image.gates.documents.sizes import ComponentSize, SizeReport, encode_sizes
from tests.golden_files import assert_golden
from tests.image.samples import MANIFEST, MANIFEST_OF_FORMAT_1

KEY = SecretKey.generate(lambda size: b"k" * size)
BEFORE = SizeReport(
    recipe="gpu-node",
    distribution="debian-13",
    architecture="x86_64",
    parts={"layer.base": 118400000},
    components=(
        ComponentSize(layer="base", name="containerd", version="1.7.24", packed_bytes=24_500_000),
        ComponentSize(layer="base", name="libpam-modules", version="1.7", packed_bytes=300_000),
        ComponentSize(layer="base", name="runc", version="1.1.15", packed_bytes=3_900_000),
        ComponentSize(layer="site", name="recipe", packed_bytes=20_000),
    ),
    modules={"mlx5_core": 1, "sd_mod": 1},
)
AFTER = dataclasses.replace(
    BEFORE,
    components=(
        ComponentSize(layer="base", name="containerd", version="1.7.25", packed_bytes=26_000_000),
        ComponentSize(layer="base", name="runc", version="1.1.15", packed_bytes=3_900_000),
        ComponentSize(layer="driver", name="nvidia-smi", version="550.163.01", packed_bytes=400_000),
        ComponentSize(layer="site", name="recipe", packed_bytes=21_000),
    ),
    modules={"mlx5_core": 1, "nvidia": 1},
)


def put(store: Path, manifest: Manifest, sizes: SizeReport | None) -> Path:
    """Manifest, signature and size report, as a store has them; no other part."""
    if sizes is not None:
        content = encode_sizes(sizes)
        sha256 = hashlib.sha256(content).hexdigest()
        (store / "parts").mkdir(parents=True, exist_ok=True)
        (store / "parts" / f"sha256-{sha256}").write_bytes(content)
        manifest = dataclasses.replace(manifest, documents={"sizes": FileDigest(sha256, len(content))})
    text = manifest.encode()
    folder = store / digest_of(text).replace(":", "-")
    folder.mkdir(parents=True)
    (folder / "manifest").write_bytes(text)
    (folder / "manifest.sig").write_text(KEY.sign(text))
    return folder


@pytest.fixture
def first(tmp_path: Path) -> Path:
    return put(tmp_path / "store", MANIFEST, BEFORE)


@pytest.fixture
def second(tmp_path: Path) -> Path:
    """With another base, a driver that is the same, no layer of its own for the kubelet, and one that is new."""
    changed = dataclasses.replace(
        MANIFEST,
        layers=(
            Layer("base", FileDigest("a3" * 32, 119000000)),
            Layer("driver", FileDigest("44" * 32, 101000000)),
            Layer("tools", FileDigest("a5" * 32, 9000000)),
            Layer("site", FileDigest("66" * 32, 1200000)),
        ),
        kernel_arguments=("quiet", "loglevel=7"),
        versions={"kernel": "6.12.117+deb13-amd64", "containerd": "1.7.25~ds1-1", "runc": "1.1.15"},
    )
    return put(tmp_path / "store", changed, AFTER)


def test_the_difference_is_told_as_the_golden_text(first: Path, second: Path) -> None:
    one, other = (describe_image(folder, KEY.public) for folder in (first, second))
    assert_golden("image/difference.txt", "\n".join(render(one, other, compare(one, other))) + "\n")


def test_only_parts_that_are_not_there_are_fetched(first: Path, second: Path) -> None:
    one, other = (describe_image(folder, KEY.public) for folder in (first, second))
    assert compare(one, other).fetched_bytes == 119000000 + 9000000
    assert compare(other, one).fetched_bytes == 118400000 + 18400000
    assert compare(one, other).after_bytes == 12171200 + 5400721 + 119000000 + 101000000 + 9000000 + 1200000
    renamed = dataclasses.replace(MANIFEST, layers=(*MANIFEST.layers[:3], Layer("own", MANIFEST.layers[3].file)))
    assert compare(one, dataclasses.replace(one, manifest=renamed)).fetched_bytes == 0, "it goes by digests, not names"


def test_an_image_is_the_same_as_itself(first: Path) -> None:
    one = describe_image(first, KEY.public)
    lines = list(render(one, one, compare(one, one)))
    assert lines[-1] == "Nothing that boots is another."
    longer = dataclasses.replace(one, manifest=dataclasses.replace(one.manifest, kernel_arguments=("debug",)))
    assert "Nothing that boots is another." not in render(one, longer, compare(one, longer))


def test_of_kernel_arguments_only_those_are_told_that_are_others(first: Path) -> None:
    one = describe_image(first, KEY.public)

    def told(*arguments: str) -> list[tuple[str, str]]:
        other = dataclasses.replace(one, manifest=dataclasses.replace(one.manifest, kernel_arguments=arguments))
        return [(each.before, each.after) for each in compare(one, other).settings]

    assert told("quiet", "loglevel=4") == []
    assert told("quiet", "loglevel=7") == [("loglevel=4", "loglevel=7")]
    assert told("quiet", "loglevel=4", "iommu=pt") == [("", "iommu=pt")]
    assert told("loglevel=4", "quiet") == [("quiet loglevel=4", "loglevel=4 quiet")]


def test_an_image_of_format_1_is_compared_as_far_as_it_tells(tmp_path: Path, second: Path) -> None:
    old = put(tmp_path / "store", MANIFEST_OF_FORMAT_1, None)
    one, other = (describe_image(folder, KEY.public) for folder in (old, second))
    lines = list(render(one, other, compare(one, other)))
    assert "  root                gone     118.4 MB" in lines
    assert lines[-1] == "Packages, modules and sizes cannot be compared: an image of format 1 does not tell them."


def test_the_command_takes_folders_names_and_digests(tmp_path: Path, first: Path, second: Path) -> None:
    (tmp_path / "key.pub").write_text(KEY.public.encode())
    digest = first.name.removeprefix("sha256-")
    for named in (str(first), f"gpu-node-{digest[:12]}", f"sha256:{digest}", first.name):
        options = ["--key", str(tmp_path / "key.pub"), "--store", str(tmp_path / "store"), "-o", "json"]
        done = CliRunner().invoke(image, ["diff", named, str(second), *options], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        told = json.loads(done.output)
        assert (told["before"], told["fetched_bytes"]) == (f"sha256:{digest}", 128000000)
        assert {"name": "containerd", "before": "1.7.24", "after": "1.7.25"} in told["packages"]


def test_an_image_that_is_not_there_or_not_one_is_not_found(tmp_path: Path, first: Path) -> None:
    store = first.parent
    for named in ("gpu-node-0123456789ab", "gpu-node", first.name[:12], "../store"):
        with pytest.raises(NotFound, match="does not exist"):
            find_image(named, store)
    with pytest.raises(NotFound, match="no folder with a manifest"):
        find_image(first.name, None)
    (store / f"{first.name[:20]}{'0' * 51}").mkdir()
    with pytest.raises(Refused, match="one of 2"):
        find_image(first.name[:20], store)


def test_nothing_unsigned_or_altered_is_compared(tmp_path: Path, first: Path) -> None:
    other = SecretKey.generate(lambda size: b"o" * size)
    with pytest.raises(Refused, match="signed with key"):
        describe_image(first, other.public)
    (document,) = (first.parent / "parts").iterdir()
    content = document.read_bytes()
    document.write_bytes(content.replace(b"24500000", b"24500001"))
    with pytest.raises(Refused, match="altered"):
        describe_image(first, KEY.public)
    document.unlink()
    with pytest.raises(NotFound):
        describe_image(first, KEY.public)
    document.write_bytes(content)
    assert describe_image(first, KEY.public).sizes == BEFORE
    text = (first / "manifest").read_bytes()
    (first / "manifest").write_bytes(text.replace(b"loglevel=4", b"loglevel=5"))
    with pytest.raises(Refused, match="altered"):
        describe_image(first, KEY.public)
    moved = tmp_path / f"sha256-{'0' * 64}"
    first.rename(moved)
    (moved / "manifest").write_bytes(text)
    with pytest.raises(Refused, match="holds the manifest"):
        describe_image(moved, KEY.public)
