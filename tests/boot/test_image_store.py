"""The condition Available: what a boot host has, and what it may say of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from provisioner.api import Condition, Image
from provisioner.boot.image_store import files_of, judge_image
from tests.boot.objects import NOON, STORE, image

FILES = {f"{STORE}/{name}": 4 for name in ("manifest", "vmlinuz", "stage1.img", "root.squashfs")} | {
    f"{STORE}/manifest.sig": 99
}


def judged(sizes: dict[str, int | None], before: Condition | None = None, host: str = "boot1") -> Condition | None:
    body: Image = image(available=None)
    if before is not None:
        body = replace(body, status=replace(body.status, conditions=(before,)))
    return judge_image(body, sizes, host, NOON)


def test_an_image_with_all_its_files_is_available() -> None:
    condition = judged(dict(FILES))
    assert condition is not None
    assert (condition.status, condition.reason) == ("True", "Stored")
    assert {file.path for file in files_of(image())} == set(FILES)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(("size", "words"), [(None, "is missing"), (0, "has 0 bytes")])
def test_a_file_that_is_missing_or_empty_is_named(name: str, size: int | None, words: str) -> None:
    condition = judged({**FILES, name: size})
    assert condition is not None
    assert condition.status == "False"
    assert f"{name} {words}" in condition.message


def test_a_file_of_another_size_is_named() -> None:
    condition = judged({**FILES, f"{STORE}/root.squashfs": 5})
    assert condition is not None
    assert "root.squashfs has 5 bytes instead of 4" in condition.message


def test_what_stands_is_not_written_again() -> None:
    stored = judged(dict(FILES))
    assert stored is not None
    assert judged(dict(FILES), stored) is None
    assert judged(dict(FILES), stored, host="boot2") is None
    missing = judged({**FILES, f"{STORE}/manifest": None})
    assert missing is not None
    assert judged({**FILES, f"{STORE}/manifest": None}, missing) is None


def test_a_host_that_lacks_files_does_not_contradict_one_that_has_them() -> None:
    stored = judged(dict(FILES), host="boot1")
    assert judged({}, stored, host="boot2") is None


def test_a_host_that_loses_files_says_so_and_one_that_gets_them_too() -> None:
    stored = judged(dict(FILES))
    lost = judged({}, stored)
    assert lost is not None
    assert lost.status == "False"
    regained = judged(dict(FILES), lost, host="boot2")
    assert regained is not None
    assert regained.status == "True"
    assert "'boot2'" in regained.message
