"""Which images go: the table of a person who wants disk space and no surprise."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from provisioner.api.machinery.values import Sha256Digest
from provisioner.image.retention.decide import (
    Fate,
    PublishedImage,
    RetentionRules,
    StoredImage,
    Uses,
    decide_retention,
)

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
RULES = RetentionRules(keep=1, grace=timedelta(hours=24))


def digest(number: int) -> Sha256Digest:
    return Sha256Digest(f"sha256:{number:064x}")


def image(number: int, days: float = 10, recipe: str = "gpu-node", **changes: object) -> PublishedImage:
    known = {
        "name": f"i{number}", "uid": f"u{number}", "resource_version": "1", "digest": digest(number),
        "line": (recipe, "debian-13", "x86_64"), "created": NOON - timedelta(days=days),
    }  # fmt: skip
    return PublishedImage(**known | changes)  # type: ignore[arg-type]


def decided(
    images: list[PublishedImage], uses: Uses | None = None, rules: RetentionRules = RULES,
    stored: list[StoredImage] | None = None, begun: set[Sha256Digest] | None = None,
) -> dict[str, Fate]:  # fmt: skip
    stored = [StoredImage(each.digest, NOON - timedelta(days=9)) for each in images] if stored is None else stored
    return {fate.label: fate for fate in decide_retention(images, stored, uses or {}, rules, NOON, begun=begun or ())}


def gone(fates: dict[str, Fate]) -> set[str]:
    return {label for label, fate in fates.items() if fate.goes}


def test_old_images_that_nobody_names_go_but_the_last_of_each_kind() -> None:
    others = [image(4, 10, "cpu-node"), image(5, 11, "cpu-node")]
    fates = decided([image(1, 10), image(2, 20), image(3, 30), *others])
    assert gone(fates) == {"i2", "i3", "i5"}
    assert fates["i3"].why == "nothing names it, and 2 newer ones of gpu-node debian-13 x86_64 are there"
    assert fates["i1"].why == "it is among the last 1 of gpu-node debian-13 x86_64"
    arm = image(6, 40, line=("gpu-node", "debian-13", "arm64"))
    assert not decided([image(1), arm])["i6"].goes, "of another architecture it replaces nothing"


def test_an_image_that_is_named_stays_and_says_by_whom() -> None:
    uses = {"i2": {"Server status.imageRef": {"r3", "r1", "r2"}}, digest(3): {"Node annotation": {"n1"}}}
    fates = decided([image(1), image(2, 20), image(3, 30)], uses)
    assert gone(fates) == set()
    assert fates["i2"].why == "named by Server status.imageRef of r1, r2 and 1 more"
    assert fates["i3"].why == "named by Node annotation of n1"


def test_the_young_the_labelled_and_the_unreadable_stay() -> None:
    images = [image(1), image(2, 0.9), image(3, 30, is_kept=True), image(4, 40, created=None), image(5, 50)]
    assert gone(decided(images)) == {"i1", "i5"}, "i2 is the newest"
    assert gone(decided([image(1), image(2, -3)])) == {"i1"}, "what comes from the future is young"


def test_a_folder_that_was_just_written_keeps_its_image_as_it_may_be_published_again() -> None:
    stored = [StoredImage(digest(2), NOON - timedelta(hours=1)), StoredImage(digest(3), NOON - timedelta(days=2))]
    fates = decided([image(1), image(2, 20), image(3, 30)], stored=stored)
    assert gone(fates) == {"i3"}
    assert "perhaps it is being published again" in fates["i2"].why


def test_a_folder_without_an_image_waits_for_its_publication() -> None:
    stored = [StoredImage(digest(7), NOON - timedelta(hours=23)), StoredImage(digest(8), NOON - timedelta(hours=25))]
    fates = decided([], stored=stored)
    assert gone(fates) == {digest(8)}
    running = decided([], {digest(8): {"Server status.imageDigest": {"r1"}}}, stored=stored)
    assert gone(running) == set()
    assert running[digest(8)].why == "it has no Image, but is named by Server status.imageDigest of r1"


def test_what_an_earlier_run_has_begun_waits_for_nothing_but_is_used_all_the_same() -> None:
    old = [StoredImage(digest(7), NOON - timedelta(days=9))]
    assert gone(decided([], stored=old, begun={digest(7), digest(9)})) == {digest(7), digest(9)}
    again = [StoredImage(digest(7), NOON)]
    assert gone(decided([], stored=again, begun={digest(7)})) == set(), "published again: its Image is about to come"
    uses = {digest(7): {"Server status.imageDigest": {"r1"}}}
    assert gone(decided([], uses, stored=old, begun={digest(7)})) == set()
    published_again = decided([image(1), image(2, 20)], {"i2": {"NodePool spec.imageRef": {"gpu"}}}, begun={digest(2)})
    assert gone(published_again) == set()


def test_two_images_of_one_digest_go_together_or_not_at_all() -> None:
    twin = image(9, 40, digest=digest(2))
    fates = decided([image(1), image(2, 20), twin], {"i2": {"NodePool spec.imageRef": {"gpu"}}})
    assert gone(fates) == set()
    assert fates["i9"].why == "Image 'i2' has the same digest and stays"
    assert gone(decided([image(1), image(2, 20), twin])) == {"i2", "i9"}


IMAGES = st.lists(
    st.builds(
        image,
        st.integers(0, 5),
        st.floats(-2, 60),
        st.sampled_from(["gpu-node", "cpu-node"]),
        is_kept=st.booleans(),
    ),
    max_size=8,
    unique_by=lambda each: each.name,
)


@given(
    IMAGES,
    st.dictionaries(st.sampled_from([*(f"i{n}" for n in range(6)), *map(digest, range(6))]), st.just({"x": {"y"}})),
    st.integers(0, 4),
    st.lists(st.builds(StoredImage, st.integers(0, 7).map(digest), st.just(NOON - timedelta(days=8))), max_size=5,
             unique_by=lambda each: each.digest),
    st.sets(st.integers(0, 8).map(digest), max_size=3),
)  # fmt: skip
def test_nothing_in_use_goes_whatever_there_is(
    images: list[PublishedImage], uses: Uses, keep: int, stored: list[StoredImage], begun: set[Sha256Digest]
) -> None:
    rules = RetentionRules(keep=keep, grace=timedelta(hours=24))
    fates = decide_retention(images, stored, uses, rules, NOON, begun=begun)
    assert len(fates) == len({(fate.label, fate.digest) for fate in fates})
    staying = {fate.digest for fate in fates if not fate.goes}
    for fate in fates:
        if fate.goes:
            assert fate.digest not in uses
            assert fate.digest not in staying
            if fate.image is not None:
                assert fate.image.name not in uses
                assert not fate.image.is_kept
                assert fate.image.created is not None
                assert NOON - fate.image.created >= rules.grace
    for line in {each.line for each in images}:
        newest = sorted((each for each in images if each.line == line), key=lambda e: (e.created, e.name))[::-1][:keep]
        assert {each.name for each in newest}.isdisjoint({fate.label for fate in fates if fate.goes})
