from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.api.machinery.errors import Refused
from provisioner.image.finished.manifest import MAX_BYTES, FileDigest, Layer, Manifest, decode, digest_of
from tests.golden_files import assert_golden
from tests.image.samples import MANIFEST, MANIFEST_OF_FORMAT_1

BOTH = pytest.mark.parametrize("manifest", [MANIFEST, MANIFEST_OF_FORMAT_1], ids=["format 2", "format 1"])


@BOTH
def test_the_manifest_is_the_golden_one(manifest: Manifest) -> None:
    assert_golden(f"image/manifest-{manifest.format}", manifest.encode().decode())


@BOTH
def test_what_was_written_is_read_back(manifest: Manifest) -> None:
    assert decode(manifest.encode()) == manifest
    bare = dataclasses.replace(manifest, kernel_arguments=(), versions={}, documents={})
    assert decode(bare.encode()) == bare


def test_layers_stand_from_the_bottom_to_the_top_whatever_they_are_called() -> None:
    layers = tuple(reversed(MANIFEST.layers))
    turned = dataclasses.replace(MANIFEST, layers=layers)
    assert decode(turned.encode()).layers == layers
    assert digest_of(turned.encode()) != digest_of(MANIFEST.encode())


def test_a_part_lies_by_its_own_digest_and_one_of_format_1_in_its_image() -> None:
    paths = {part.name: part.path for part in MANIFEST.parts()}
    assert list(paths) == [
        *("kernel", "stage1", "layer.base", "layer.driver", "layer.kubelet", "layer.site"),
        *("document.sbom", "document.sizes"),
    ]
    assert paths["layer.site"] == "parts/sha256-" + "66" * 32
    folder = digest_of(MANIFEST_OF_FORMAT_1.encode()).replace(":", "-")
    assert {part.name: part.path for part in MANIFEST_OF_FORMAT_1.parts()} == {
        "kernel": f"{folder}/vmlinuz",
        "stage1": f"{folder}/stage1.img",
        "root": f"{folder}/root.squashfs",
    }


def test_the_digest_is_that_of_the_text() -> None:
    assert (
        digest_of(b"provisioner-image 1\n") == "sha256:3529ccc60f07f50a1fa624b8bcccf8f0aaefb638b306f9036a79ca6c2e24fcd0"
    )


GOOD, OLD = MANIFEST.encode().decode(), MANIFEST_OF_FORMAT_1.encode().decode()
SITE = "layer.site " + "66" * 32 + " 1200000\n"
SBOM = "document.sbom " + "77" * 32 + " 900000\n"


def more(kind: str, count: int) -> str:
    return "".join(f"{kind}.n{number:02} {number + 4096:064x} 5\n" for number in range(count))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "ends within a line"),
        (GOOD[:-1], "ends within a line"),
        (GOOD.replace("provisioner-image 2", "provisioner-image 3"), "begins with 'provisioner-image 3'"),
        (GOOD.replace("provisioner-image 2", "provisioner-image  2"), "begins with"),
        (GOOD.replace("provisioner-image 2", "provisioner-image 1"), "root is ''"),
        (OLD.replace("provisioner-image 1", "provisioner-image 2"), "has no layer"),
        (GOOD.replace("recipe gpu-node\n", ""), "recipe is ''"),
        (GOOD.replace("gpu-node", "../node"), "recipe is '../node'"),
        (GOOD.replace("x86_64", "riscv64"), "architecture is 'riscv64'"),
        (GOOD.replace("22" * 32, "22" * 31), "stage1 is"),
        (GOOD.replace("33" * 32, "33" * 31), "layer.base is"),
        (GOOD.replace("66" * 32, "FF" * 32), "layer.site is"),
        (GOOD.replace(" 118400000", " 0118400000"), "layer.base is"),
        (GOOD.replace(" 118400000", " -1"), "layer.base is"),
        (GOOD.replace(" 118400000", " 0"), "layer.base is"),
        (OLD.replace(" 118400000", " 0"), "root is"),
        (GOOD.replace("layer.site", "layer.Site"), "calls a layer 'Site'"),
        (GOOD.replace("layer.site", "layer.site-"), "calls a layer 'site-'"),
        (GOOD.replace("layer.site", "layer."), "calls a layer ''"),
        (GOOD.replace("layer.site", "layer.a/b"), "calls a layer 'a/b'"),
        (GOOD.replace("layer.site", "layer." + "x" * 33), "calls a layer"),
        (GOOD.replace("document.sbom", "document.a.b"), "calls a document 'a.b'"),
        (GOOD.replace("layer.site", "layer.base"), "not one key and its value"),
        (GOOD.replace("66" * 32, "33" * 32), "has the layer 3333.* twice"),
        (GOOD.replace("77" * 32, "33" * 32), "another size"),
        (GOOD.replace(SITE, SITE + more("layer", 13)), "17 layers, more than 16"),
        (GOOD.replace(SBOM, SBOM + more("document", 15)), "17 documents, more than 16"),
        (GOOD.replace(SITE, "") + SITE, "order"),
        (GOOD.replace(SITE, "").replace(SBOM, SBOM + SITE), "order"),
        (GOOD.replace(SBOM, "").replace("kernel-arguments", SBOM + "kernel-arguments"), "order"),
        (GOOD.replace(SITE, SITE + "root " + "99" * 32 + " 5\n"), "not known: root"),
        (OLD.replace("kernel-arguments", SITE + "kernel-arguments"), "not known: layer.site"),
        (OLD.replace("kernel-arguments", SBOM + "kernel-arguments"), "not known: document.sbom"),
        (GOOD.replace("quiet loglevel=4", "quiet  loglevel=4"), "double blank"),
        (OLD + "root " + "44" * 32 + " 5\n", "not one key and its value"),
        (GOOD + "shell /bin/sh\n", "not known: shell"),
        (GOOD + "version.zz \x1b[2J\n", "not one key and its value"),
        (
            GOOD.replace("recipe gpu-node\ndistribution debian-13\n", "distribution debian-13\nrecipe gpu-node\n"),
            "order",
        ),
        (GOOD + "version.Upper x\n", "not known"),
        (GOOD.replace("gpu-node", "gpü-node"), "not ASCII"),
        (GOOD + "version.x " + "y" * MAX_BYTES + "\n", f"more than {MAX_BYTES}"),
    ],
)
def test_anything_else_is_refused_with_what_is_wrong(text: str, words: str) -> None:
    with pytest.raises(Refused, match=words):
        decode(text.encode())


ONE_SIZE, ANOTHER = FileDigest("33" * 32, 1), FileDigest("33" * 32, 2)


@pytest.mark.parametrize(
    "changes",
    [
        {"versions": {"kernel": "6.12\nroot evil"}},
        {"layers": ()},
        {"layers": (Layer("base", ONE_SIZE), Layer("base", FileDigest("44" * 32, 1)))},
        {"layers": (Layer("base", ONE_SIZE), Layer("site", ONE_SIZE))},
        {"layers": (Layer("base\nroot", ONE_SIZE),)},
        {"layers": (Layer("base", ONE_SIZE),), "documents": {"sbom": ANOTHER}},
        {"documents": {"../manifest": ONE_SIZE}},
        {"format": 1},
        {"format": 3},
    ],
)
def test_what_would_not_be_read_back_is_not_written(changes: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        dataclasses.replace(MANIFEST, **changes).encode()


@given(st.sampled_from([1, 2]), st.binary(max_size=400))
def test_no_bytes_break_the_reader(number: int, data: bytes) -> None:
    _reads_or_refuses(b"provisioner-image %d\n" % number + data)


@pytest.mark.parametrize("good", [GOOD, OLD], ids=["format 2", "format 1"])
@given(st.data(), st.characters(max_codepoint=127))
def test_a_changed_character_is_refused_or_another_manifest(good: str, data: st.DataObject, character: str) -> None:
    position = data.draw(st.integers(0, len(good) - 1))
    changed = good[:position] + character + good[position + 1 :]
    manifest = _reads_or_refuses(changed.encode())
    assert manifest is None or (manifest.encode() == good.encode()) == (changed == good)


def _reads_or_refuses(data: bytes) -> Manifest | None:
    try:
        manifest = decode(data)
    except Refused:
        return None
    assert manifest.encode() == data, "one manifest has one text, else its digest would not name it"
    return manifest
