from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.api.errors import Refused
from provisioner.image.finished.manifest import MAX_BYTES, Manifest, decode, digest_of
from tests.golden_files import assert_golden
from tests.image.samples import MANIFEST


def test_the_manifest_is_the_golden_one() -> None:
    assert_golden("image/manifest", MANIFEST.encode().decode())


def test_what_was_written_is_read_back() -> None:
    assert decode(MANIFEST.encode()) == MANIFEST
    bare = dataclasses.replace(MANIFEST, kernel_arguments=(), versions={})
    assert decode(bare.encode()) == bare


def test_the_digest_is_that_of_the_text() -> None:
    assert (
        digest_of(b"provisioner-image 1\n") == "sha256:3529ccc60f07f50a1fa624b8bcccf8f0aaefb638b306f9036a79ca6c2e24fcd0"
    )


GOOD = MANIFEST.encode().decode()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "ends within a line"),
        (GOOD[:-1], "ends within a line"),
        (GOOD.replace("provisioner-image 1", "provisioner-image 2"), "begins with 'provisioner-image 2'"),
        (GOOD.replace("recipe gpu-node\n", ""), "recipe is ''"),
        (GOOD.replace("gpu-node", "../node"), "recipe is '../node'"),
        (GOOD.replace("x86_64", "riscv64"), "architecture is 'riscv64'"),
        (GOOD.replace("33" * 32, "33" * 31), "root is"),
        (GOOD.replace(" 118400000", " 0118400000"), "root is"),
        (GOOD.replace(" 118400000", " -1"), "root is"),
        (GOOD.replace("quiet loglevel=4", "quiet  loglevel=4"), "double blank"),
        (GOOD + "root " + "44" * 32 + " 5\n", "not one key and its value"),
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


def test_a_version_that_would_not_be_read_back_is_not_written() -> None:
    with pytest.raises(Refused):
        dataclasses.replace(MANIFEST, versions={"kernel": "6.12\nroot evil"}).encode()


@given(st.binary(max_size=400))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    _reads_or_refuses(b"provisioner-image 1\n" + data)


@given(st.integers(0, len(GOOD) - 1), st.characters(max_codepoint=127))
def test_a_changed_character_is_refused_or_another_manifest(position: int, character: str) -> None:
    changed = GOOD[:position] + character + GOOD[position + 1 :]
    manifest = _reads_or_refuses(changed.encode())
    assert manifest is None or (manifest == MANIFEST) == (changed == GOOD)


def _reads_or_refuses(data: bytes) -> Manifest | None:
    try:
        manifest = decode(data)
    except Refused:
        return None
    assert manifest.encode() == data, "one manifest has one text, else its digest would not name it"
    return manifest
