"""Mirrors that lie or dawdle, one byte at a time: the real stage-1 against a server that keeps to no protocol."""

from __future__ import annotations

import hashlib
import os
import socket

import pytest

from provisioner.image.finished.sign import SecretKey
from tests.hostile_mirror import (
    BEGUN,
    FALSE,
    FALSE_PARTS,
    LIES,
    ROOT,
    Behaviour,
    Request,
    drips,
    head,
    honest,
    pours,
    ranged,
    reply,
    sends,
    serving,
    truncating,
)
from tests.image.stage1_shell import Stage1, honest_sources
from tests.signed_image import SignedImage, layered_image

BASE = hashlib.shake_256(b"base").digest(400_000)
SITE = hashlib.shake_256(b"site").digest(50_000)


@pytest.fixture(scope="module")
def image(stage1_key: SecretKey) -> SignedImage:
    """What goes wrong here goes wrong with the driver, which is neither the first layer nor the last."""
    return layered_image({"base": BASE, "driver": ROOT, "site": SITE}, key=stage1_key, release=os.uname().release)


@pytest.mark.parametrize("name", LIES)
def test_whatever_the_cache_gives_for_a_layer_the_boot_host_gives_it(
    stage1: Stage1, image: SignedImage, name: str
) -> None:
    lie = LIES[name]
    behaviours = honest_sources(image)
    behaviours["cache", image.file("driver")] = lie.behaviour
    with serving(behaviours) as mirrors:
        assert stage1.boot(mirrors, image, attempts=3) == image.layers, stage1.said
    assert any(lie.stage1 in message for message in mirrors.messages), mirrors.messages
    if lie.kept:
        assert mirrors.asked("boot host", image.file("driver"))[0] >= BEGUN, "what came is not fetched again"


OTHER_KEY = SecretKey.generate(lambda size: b"o" * size)
SMALL_LIES: dict[str, tuple[str, Behaviour, str]] = {
    "a manifest that drips": ("manifest", drips(head(700)), "not whole after 4 s"),
    "a signature that drips": ("manifest.sig", drips(head(142)), "not whole after 4 s"),
    "a manifest without end": ("manifest", pours(head(1 << 40), b"x" * 65536), "more than 65536 bytes"),
    "a signature by another key": ("manifest.sig", sends(reply(OTHER_KEY.sign(b"x").encode())), "wrong key"),
}


@pytest.mark.parametrize("name", SMALL_LIES)
def test_whatever_the_cache_gives_for_a_manifest_the_boot_host_gives_the_image(
    stage1: Stage1, image: SignedImage, name: str
) -> None:
    file, behaviour, told = SMALL_LIES[name]
    behaviours = honest_sources(image) | {("cache", file): behaviour}
    with serving(behaviours) as mirrors:
        assert stage1.boot(mirrors, image, attempts=3) == image.layers, stage1.said
    assert any(told in message for message in mirrors.messages), mirrors.messages


def test_an_honest_cache_gives_all_and_the_boot_host_is_not_asked(stage1: Stage1, image: SignedImage) -> None:
    with serving(honest_sources(image)) as mirrors:
        assert stage1.boot(mirrors, image, attempts=1) == image.layers, stage1.said
    assert {request.source for request in mirrors.requests} == {"cache"}
    assert mirrors.messages == []


def without_ranges(body: bytes) -> Behaviour:
    return sends(reply(body))


def test_a_source_without_ranges_gives_the_whole_after_another_was_cut(stage1: Stage1, image: SignedImage) -> None:
    behaviours = honest_sources(image)
    behaviours["cache", image.file("driver")] = truncating(ROOT, BEGUN)
    behaviours["boot host", image.file("driver")] = without_ranges(ROOT)
    with serving(behaviours) as mirrors:
        assert stage1.boot(mirrors, image, attempts=1) == image.layers, stage1.said
    assert len(mirrors.messages) == 1


@pytest.mark.parametrize("begins", ["falsely", "falsely and slowly"])
def test_a_false_beginning_is_thrown_away_with_the_right_end_behind_it(
    stage1: Stage1, image: SignedImage, begins: str
) -> None:
    behaviours = honest_sources(image)
    begun = head(len(ROOT)) + FALSE[:BEGUN]
    behaviours["cache", image.file("driver")] = sends(begun) if begins == "falsely" else drips(begun)
    with serving(behaviours) as mirrors:
        assert stage1.boot(mirrors, image, attempts=1) == image.layers, stage1.said
    first, second = mirrors.asked("boot host", image.file("driver"))
    assert first >= BEGUN
    assert second == 0


@pytest.mark.parametrize("liar", FALSE_PARTS)
def test_an_answer_to_a_range_that_is_none_of_it_does_not_get_into_the_layer(
    stage1: Stage1, image: SignedImage, liar: str
) -> None:
    """Here the boot host is cut at first, and the cache after it lies; stage-1 asks both once more."""
    cut_once: list[Request] = []

    def cut_first(connection: socket.socket, request: Request) -> None:
        cut_once.append(request)
        (truncating(ROOT, BEGUN) if len(cut_once) == 1 else honest(ROOT))(connection, request)

    behaviours = honest_sources(image)
    behaviours["cache", image.file("driver")] = cut_first
    behaviours["boot host", image.file("driver")] = FALSE_PARTS[liar]
    with serving(behaviours) as mirrors:
        assert stage1.boot(mirrors, image, attempts=3) == image.layers, stage1.said
    assert mirrors.asked("boot host", image.file("driver"))[0] == BEGUN
    assert len(mirrors.messages) == 2, mirrors.messages


def test_where_every_source_is_slow_each_gives_a_part_in_turn(stage1: Stage1, image: SignedImage) -> None:
    """A site whose links are slower than it says boots all the same."""

    def slowly(connection: socket.socket, request: Request) -> None:
        answer = ranged(ROOT, request.start)
        connection.sendall(answer[:2_500_000])
        if len(answer) > 2_500_000:
            request.stopped.wait()

    behaviours = honest_sources(image)
    behaviours["cache", image.file("driver")] = behaviours["boot host", image.file("driver")] = slowly
    with serving(behaviours) as mirrors:
        assert stage1.boot(mirrors, image, attempts=4) == image.layers, stage1.said
    starts = sorted(mirrors.asked("cache", image.file("driver")) + mirrors.asked("boot host", image.file("driver")))
    assert len(set(starts)) == len(starts), "nothing is fetched twice"


def test_a_source_that_failed_is_asked_last_the_next_time(stage1: Stage1, image: SignedImage) -> None:
    asked: list[Request] = []

    def broken_at_first(connection: socket.socket, request: Request) -> None:
        asked.append(request)
        (honest(ROOT) if len(asked) > 2 else sends(b""))(connection, request)

    behaviours = honest_sources(image)
    del behaviours["cache", image.file("driver")]
    behaviours["boot host", image.file("driver")] = broken_at_first
    behaviours["cache", "manifest"] = sends(reply(b"", status="503 Service Unavailable"))
    with serving(behaviours) as mirrors:
        assert stage1.boot(mirrors, image, attempts=4) == image.layers, stage1.said
    order = [request.source for request in mirrors.requests if request.file == "manifest"]
    assert order == ["cache", "boot host"] * 3


def test_a_further_attempt_at_a_boot_begins_with_the_boot_host_and_has_the_cache_behind_it(
    stage1: Stage1, image: SignedImage
) -> None:
    for broken in ((), ("boot host",)):
        behaviours = honest_sources(image)
        for source in broken:
            del behaviours[source, "manifest"]
        with serving(behaviours) as mirrors:
            assert stage1.boot(mirrors, image, attempts=1, boot_host_first=True) == image.layers
        order = [request.source for request in mirrors.requests if request.file == "manifest"]
        assert order == (["boot host", "cache"] if broken else ["boot host"])
