from __future__ import annotations

from pathlib import Path

import pytest

from provisioner.image.gates.allowed import matches, matching, reason_for

PATHS = [
    "a",
    "a/b",
    "a/b/c.ko",
    "a/x/c.ko",
    "a/b.c/d",
    "tmp",
    "tmp/x",
    "usr/lib/x86_64-linux-gnu/libz.so.1",
    "a/[x]",
    "z/a",
]


@pytest.mark.parametrize(
    "pattern",
    ["a", "a/*", "*/b", "a/**/c.ko", "**/c.ko", "**/a", "a/?", "a/b?c/d", "a/[bx]/c.ko", "a/[!b]/c.ko", "tm", "a/[a-c]",
     "usr/lib/*/libz.so*", "*", "a/[[]x]", "tmp/*", "**/*.ko", "a/b.*/d", "z/**/a"],
)  # fmt: skip
def test_a_pattern_matches_what_it_matches_in_a_folder(tmp_path: Path, pattern: str) -> None:
    """As Path.glob, by which recipes name what is removed."""
    for path in PATHS:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if not any(other.startswith(f"{path}/") for other in PATHS):
            file.write_text("")
    there = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")}
    expected = {str(path.relative_to(tmp_path)) for path in tmp_path.glob(pattern)}
    assert set(matching(there, pattern)) == expected


def test_two_stars_at_the_end_are_all_below_and_not_the_folder() -> None:
    assert [path for path in PATHS if matches(path, "a/**")] == [path for path in PATHS if path.startswith("a/")]


def test_an_unfinished_class_is_a_plain_bracket() -> None:
    assert matches("a[b", "a[b")
    assert not matches("ab", "a[b")


def test_of_several_reasons_the_exact_one_is_given() -> None:
    allowed = {"usr/bin/*": "general", "usr/bin/su": "own"}
    assert reason_for("usr/bin/su", allowed) == "own"
    assert reason_for("usr/bin/ls", allowed) == "general"
    assert reason_for("usr/sbin/ls", allowed) is None
