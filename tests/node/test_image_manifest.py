"""What the agent reads out of a manifest, and what it refuses: all that stage-1 would refuse after the kexec."""

from __future__ import annotations

import pytest

from provisioner.image.finished.sign import SecretKey
from provisioner.node.image.manifest import ImageContents, ImageError, read_manifest
from tests.lying_manifests import BASE, DRIVER, HONEST_MANIFESTS, LYING_MANIFESTS, TWO
from tests.signed_image import digest, head, layered_image, one_root_image, sign_lines

KEY = SecretKey.generate(lambda size: b"k" * size)


def read(lines: list[str]) -> ImageContents:
    image = sign_lines(lines, {}, {}, KEY)
    return read_manifest(image.manifest, image.digest, "x86_64")


def between(first: str, layers: list[str]) -> list[str]:
    return [*head(first, "x86_64", b"kernel", b"stage1"), *layers, "version.kernel 6.12"]


@pytest.mark.parametrize("name", LYING_MANIFESTS)
def test_a_manifest_that_no_builder_would_write_is_refused_with_words(name: str) -> None:
    with pytest.raises(ImageError, match=r"the manifest .*; (publish the image again|use an image of this release)"):
        read(between(*LYING_MANIFESTS[name]))


@pytest.mark.parametrize("name", HONEST_MANIFESTS)
def test_layers_stand_from_the_bottom_to_the_top_as_in_the_manifest(name: str) -> None:
    first, layers = HONEST_MANIFESTS[name]
    found = read(between(first, layers)).layers
    assert [f"{layer.name.removeprefix('layer ')} {layer.sha256} {layer.size_bytes}" for layer in found] == [
        text.removeprefix("layer.") for text in layers
    ]


@pytest.mark.parametrize("text", [" root of all", "layer.x\tab 6", "recipe", "recipe  \x1b[2J", "größe 6"])
def test_a_line_that_a_shell_might_read_otherwise_is_refused(text: str) -> None:
    with pytest.raises(ImageError, match="not one key and its value"):
        read(between(TWO, [BASE, text, DRIVER]))


def test_files_of_format_2_lie_by_their_digests_and_those_of_format_1_in_the_images_folder() -> None:
    image = layered_image({"base": b"base", "driver": b"driver"}, key=KEY, kernel=b"kernel", stage1=b"stage1")
    contents = read_manifest(image.manifest, image.digest, "x86_64")
    assert [file.path for file in contents.files] == [
        f"parts/sha256-{digest(content)}" for content in (b"kernel", b"stage1", b"base", b"driver")
    ]
    assert [file.file_name for file in contents.layers] == [f"sha256-{digest(b'base')}", f"sha256-{digest(b'driver')}"]
    assert contents.size_bytes == len(b"kernelstage1basedriver")

    image = one_root_image(b"root", key=KEY)
    contents = read_manifest(image.manifest, image.digest, "x86_64")
    assert [file.path for file in contents.files] == [
        f"{image.name}/{name}" for name in ("vmlinuz", "stage1.img", "root.squashfs")
    ]
    assert [file.file_name for file in contents.layers] == ["root.squashfs"]
