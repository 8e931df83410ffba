"""Sources that send to as many as they can, and say so: stage-1 waits, says for what, and counts it as no fault."""

from __future__ import annotations

import os
import socket

import pytest

from provisioner.image.finished.sign import SecretKey
from tests.hostile_mirror import ROOT, Behaviour, Request, honest, reply, sends, serving
from tests.image.stage1_shell import Stage1, honest_sources
from tests.signed_image import SignedImage, layered_image

FULL = sends(reply(b"", status="503 Service Temporarily Unavailable", headers="Retry-After: 8\r\n"))


@pytest.fixture(scope="module")
def image(stage1_key: SecretKey) -> SignedImage:
    return layered_image({"base": ROOT, "site": b"site" * 1000}, key=stage1_key, release=os.uname().release)


def full_at_first(times: int, then: Behaviour) -> Behaviour:
    asked: list[Request] = []

    def answer(connection: socket.socket, request: Request) -> None:
        asked.append(request)
        (FULL if len(asked) <= times else then)(connection, request)

    return answer


def test_where_the_cache_is_full_the_boot_host_is_asked_at_once(stage1: Stage1, image: SignedImage) -> None:
    behaviours = honest_sources(image)
    behaviours["cache", image.file("base")] = FULL
    with serving(behaviours) as mirrors:
        assert stage1.boot(mirrors, image, attempts=1) == image.layers, stage1.said
    assert "/cache/images is full" in stage1.said
    assert mirrors.messages == [], "nothing to complain of"


def test_where_all_are_full_one_attempt_waits_and_says_for_what(stage1: Stage1, image: SignedImage) -> None:
    behaviours = honest_sources(image)
    behaviours["cache", image.file("base")] = FULL
    behaviours["boot host", image.file("base")] = full_at_first(2, honest(image.layers["base"]))
    with serving(behaviours) as mirrors:
        assert stage1.boot(mirrors, image, attempts=1) == image.layers, stage1.said
    assert stage1.said.count("waiting for room at") == 2
    assert "not booted" not in stage1.said
    (message,) = mirrors.messages
    assert message.startswith(f"waits for room at {mirrors.url}/images"), "once: many may be waiting"
    assert mirrors.requests[-1].source == "boot host", "the cache did not fail, and was asked first each time"
    assert len(mirrors.asked("cache", image.file("base"))) == 3


def test_a_source_that_was_full_is_asked_before_one_that_failed(stage1: Stage1, image: SignedImage) -> None:
    behaviours = honest_sources(image)
    behaviours["cache", image.file("base")] = sends(reply(b"", status="404 Not Found"))
    behaviours["boot host", image.file("base")] = full_at_first(1, honest(image.layers["base"]))
    with serving(behaviours) as mirrors:
        assert stage1.boot(mirrors, image, attempts=1) == image.layers, stage1.said
    assert [len(mirrors.asked(source, image.file("base"))) for source in ("cache", "boot host")] == [1, 2]


def test_a_manifest_of_a_source_that_is_full_is_waited_for_as_well(stage1: Stage1, image: SignedImage) -> None:
    behaviours = dict.fromkeys(honest_sources(image), FULL)
    behaviours |= {
        key: full_at_first(1, behaviour) if key[1] == "manifest" else behaviour
        for key, behaviour in honest_sources(image).items()
        if key[0] == "boot host"
    }
    with serving(behaviours) as mirrors:
        assert stage1.boot(mirrors, image, attempts=1) == image.layers, stage1.said
    assert stage1.said.count("waiting for room at") == 1
