"""The layers of a root in the real stage-1: what a manifest may say of them, and what is kept when one fails."""

from __future__ import annotations

import hashlib
import os
import socket

import pytest

from provisioner.image.finished.sign import SecretKey
from provisioner.node.machine.hardware import memory_bytes
from tests.hostile_mirror import BEGUN, ROOT, Behaviour, Request, head, honest, reply, sends, serving, truncating
from tests.image.stage1_shell import Stage1, honest_sources, served
from tests.lying_manifests import HONEST_MANIFESTS, LYING_MANIFESTS
from tests.signed_image import SignedImage, layered_image, one_root_image
from tests.signed_image import head as head_lines

KERNEL = os.uname().release
BASE, SITE = (hashlib.shake_256(name).digest(size) for name, size in ((b"base", 900_000), (b"site", 5000)))
LAYERS = {"base": BASE, "driver": ROOT, "site": SITE}


@pytest.fixture(scope="module")
def image(stage1_key: SecretKey) -> SignedImage:
    return layered_image(LAYERS, key=stage1_key, release=KERNEL)


@pytest.fixture(scope="module")
def of_format_1(stage1_key: SecretKey) -> SignedImage:
    return one_root_image(ROOT, key=stage1_key, release=KERNEL)


def manifest(first: str, layers: list[str]) -> bytes:
    lines = [*head_lines(first, "x86_64", b"kernel", b"stage1"), *layers, f"version.kernel {KERNEL}"]
    return ("\n".join(lines) + "\n").encode()


@pytest.mark.parametrize("name", LYING_MANIFESTS)
def test_a_manifest_that_no_builder_would_write_is_refused_with_words(stage1: Stage1, name: str) -> None:
    assert stage1.read_manifest(manifest(*LYING_MANIFESTS[name])) is None, stage1.said
    title, *fields = stage1.said.splitlines()
    assert title == "stage-1: not booted"
    assert [field.split()[0] for field in fields] == ["object", "observed", "expected", "remedy"]
    assert fields[0].endswith("manifest of sha256-x")


@pytest.mark.parametrize("name", HONEST_MANIFESTS)
def test_layers_stand_from_the_bottom_to_the_top_as_in_the_manifest(stage1: Stage1, name: str) -> None:
    first, layers = HONEST_MANIFESTS[name]
    read = stage1.read_manifest(manifest(first, layers))
    assert read is not None, stage1.said
    *found, total = read.splitlines()
    assert [line.rpartition(" ")[0] for line in found] == [text.removeprefix("layer.") for text in layers]
    assert int(total) == sum(int(text.split()[2]) for text in layers)


def test_a_last_line_that_has_no_end_counts_too(stage1: Stage1) -> None:
    lines = manifest("provisioner-image 2", []).decode().rstrip("\n").split("\n")
    text = "\n".join([*lines, f"layer.base {'ab' * 32} 6"]).encode()
    assert (stage1.read_manifest(text) or "").startswith(f"base {'ab' * 32} 6 parts/sha256-"), stage1.said


def test_an_image_of_format_1_has_one_layer_in_its_own_folder(stage1: Stage1, of_format_1: SignedImage) -> None:
    with serving(honest_sources(of_format_1)) as mirrors:
        assert stage1.boot(mirrors, of_format_1, attempts=1) == {"root": ROOT}, stage1.said
    assert [request.path for request in mirrors.requests] == [
        f"/cache/images/{of_format_1.name}/{name}" for name in ("manifest", "manifest.sig", "root.squashfs")
    ]


def test_the_root_of_format_1_is_fetched_as_a_layer_is(stage1: Stage1, of_format_1: SignedImage) -> None:
    behaviours = honest_sources(of_format_1)
    behaviours["cache", "root.squashfs"] = truncating(ROOT, BEGUN)
    with serving(behaviours) as mirrors:
        assert stage1.boot(mirrors, of_format_1, attempts=1) == {"root": ROOT}, stage1.said
    assert mirrors.asked("boot host", "root.squashfs") == [BEGUN]
    (message,) = mirrors.messages
    assert f"layer root: truncated: {BEGUN} of {len(ROOT)} bytes" in message


def test_each_layer_is_fetched_once_from_its_place_in_the_order_of_the_manifest(
    stage1: Stage1, image: SignedImage
) -> None:
    with serving(honest_sources(image)) as mirrors:
        layers = stage1.boot(mirrors, image, attempts=1)
    assert layers is not None, stage1.said
    assert list(layers.items()) == list(LAYERS.items())
    assert [request.path for request in mirrors.requests] == [
        f"/cache/images/{image.name}/manifest",
        f"/cache/images/{image.name}/manifest.sig",
        *(f"/cache/images/{image.path(name)}" for name in LAYERS),
    ]


@pytest.mark.parametrize("dies", ["driver", "site"])
def test_a_source_that_dies_between_layers_is_left_and_what_it_gave_is_kept(
    stage1: Stage1, image: SignedImage, dies: str
) -> None:
    behaviours = honest_sources(image)
    before = list(LAYERS)[: list(LAYERS).index(dies)]
    for name in LAYERS:
        if name not in before:
            del behaviours["cache", image.file(name)]
    with serving(behaviours) as mirrors:
        assert stage1.boot(mirrors, image, attempts=1) == LAYERS, stage1.said
    asked = {name: mirrors.asked("boot host", image.file(name)) for name in LAYERS}
    assert asked == {name: [] if name in before else [0] for name in LAYERS}
    (message,) = mirrors.messages
    assert f"layer {dies}: nothing: server returned" in message


def test_where_all_sources_die_between_layers_a_later_attempt_fetches_only_the_rest(
    stage1: Stage1, image: SignedImage
) -> None:
    """The driver breaks off at the cache and is away at the boot host; then both have it."""
    behaviours = honest_sources(image)

    def breaks_at_first(connection: socket.socket, request: Request) -> None:
        if len(mirrors.asked("cache", request.file)) == 1:
            truncating(ROOT, BEGUN)(connection, request)
        else:
            honest(ROOT)(connection, request)

    def is_away_at_first(connection: socket.socket, request: Request) -> None:
        away = len(mirrors.asked("boot host", request.file)) == 1
        (sends(reply(b"", status="503 Busy")) if away else honest(ROOT))(connection, request)

    behaviours["cache", image.file("driver")] = breaks_at_first
    behaviours["boot host", image.file("driver")] = is_away_at_first
    with serving(behaviours) as mirrors:
        assert stage1.boot(mirrors, image, attempts=3) == LAYERS, stage1.said
    starts = {
        name: mirrors.asked("cache", image.file(name)) + mirrors.asked("boot host", image.file(name)) for name in LAYERS
    }
    assert starts["base"] == [0], "what was verified is not fetched again"
    assert starts["driver"][0] == 0
    assert set(starts["driver"][1:]) == {BEGUN}, "and what had come of another one goes on"
    assert starts["site"] == [0]


def test_a_false_layer_does_not_cost_the_right_ones(stage1: Stage1, image: SignedImage) -> None:
    behaviours = honest_sources(image)
    behaviours["cache", image.file("site")] = honest(SITE[:-1] + bytes([SITE[-1] ^ 1]))
    with serving(behaviours) as mirrors:
        assert stage1.boot(mirrors, image, attempts=1) == LAYERS, stage1.said
    assert mirrors.asked("boot host", image.file("driver")) == []
    assert mirrors.asked("boot host", image.file("site")) == [0]
    (message,) = mirrors.messages
    assert "layer site: altered: sha256" in message


def in_two_seconds(content: bytes) -> Behaviour:
    """A byte at a time."""

    def answer(connection: socket.socket, request: Request) -> None:
        connection.sendall(head(len(content)))
        for byte in content:
            request.stopped.wait(2 / len(content))
            connection.sendall(bytes([byte]))

    return answer


def test_a_source_that_drips_each_layer_is_slow_over_all_of_them(stage1: Stage1, stage1_key: SecretKey) -> None:
    """Each is there before a window is over. Of 16 such layers each would hold the boot for as long as a window."""
    layers = {name: name.encode() * 4 for name in ("first", "second", "third", "fourth", "fifth")}
    image = layered_image(layers, key=stage1_key, release=KERNEL)
    behaviours = honest_sources(image)
    for name, content in layers.items():
        behaviours["cache", image.file(name)] = in_two_seconds(content)
    with serving(behaviours) as mirrors:
        assert stage1.boot(mirrors, image, attempts=4) == layers, stage1.said
    assert mirrors.messages[0].startswith(f"source {mirrors.url}/cache/images: observed 0 KiB/s")
    assert "expected at least 19 KiB/s" in mirrors.messages[0]
    last = next(request for request in mirrors.requests if request.file == image.file("fifth"))
    assert last.source == "boot host", "the cache was left before that"


def after_seconds(seconds: float, then: Behaviour) -> Behaviour:
    """Nothing until then."""

    def answer(connection: socket.socket, request: Request) -> None:
        if not request.stopped.wait(seconds):
            then(connection, request)

    return answer


def test_a_source_is_not_called_slow_for_the_time_of_the_one_before(stage1: Stage1, image: SignedImage) -> None:
    behaviours = honest_sources(image)
    behaviours["cache", image.file("base")] = after_seconds(2.9, sends(b""))
    behaviours["boot host", image.file("base")] = after_seconds(1.5, honest(BASE))
    with serving(behaviours) as mirrors:
        assert stage1.boot(mirrors, image, attempts=1) == LAYERS, stage1.said
    (message,) = mirrors.messages
    assert f"{mirrors.url}/cache/images" in message


def test_memory_must_have_room_for_the_sum_of_all_layers(stage1: Stage1, stage1_key: SecretKey) -> None:
    """None of them alone is too large."""
    available = memory_bytes("/proc/meminfo", "MemAvailable")
    huge = [f"layer.l{number} {number:064x} {available // 5}" for number in range(8)]
    lines = [*head_lines("provisioner-image 2", "x86_64", b"kernel", b"stage1"), *huge, f"version.kernel {KERNEL}"]
    text = ("\n".join(lines) + "\n").encode()
    image = SignedImage(text, stage1_key.sign(text).encode(), {}, {})
    with serving(served(image, "boot host")) as mirrors:
        assert stage1.boot(mirrors, image, attempts=1) is None
    assert any(message.startswith("memory: observed") for message in mirrors.messages), mirrors.messages
    assert not [request for request in mirrors.requests if "/parts/" in request.path]


def staged(image: SignedImage) -> dict[str, bytes]:
    """As the agent stages it."""
    layers = {image.file(name): content for name, content in image.layers.items()}
    return {"manifest": image.manifest, "manifest.sig": image.signature, **layers}


def test_staged_layers_are_taken_where_they_lie_and_nothing_is_asked_for(
    stage1: Stage1, image: SignedImage, of_format_1: SignedImage
) -> None:
    for each in (image, of_format_1):
        with serving(honest_sources(each)) as mirrors:
            assert stage1.boot(mirrors, each, attempts=1, staged=staged(each)) == each.layers, stage1.said
        assert mirrors.requests == []
        assert mirrors.messages == []


@pytest.mark.parametrize("fault", ["cut", "absent", "forged", "of another image"])
def test_of_what_is_staged_and_not_right_nothing_is_used(
    stage1: Stage1, image: SignedImage, stage1_key: SecretKey, fault: str
) -> None:
    files = staged(image)
    driver = image.file("driver")
    if fault == "cut":
        files[driver] = ROOT[:-4096]
    elif fault == "absent":
        del files[driver]
    else:
        # Only a boot that took it without its manifest would get this.
        files[image.file("base")] = bytes(len(BASE))
        key = SecretKey(stage1_key.number, SecretKey.generate(lambda size: b"f" * size).seed)
        other = layered_image({"base": b"x"}, key=stage1_key, release=KERNEL)
        files["manifest.sig"] = key.sign(image.manifest).encode() if fault == "forged" else other.signature
        files["manifest"] = image.manifest if fault == "forged" else other.manifest
    with serving(honest_sources(image)) as mirrors:
        assert stage1.boot(mirrors, image, attempts=1, staged=files) == LAYERS, stage1.said
    words = {
        "cut": f"layer driver: {len(ROOT) - 4096} bytes; expected {len(ROOT)} bytes",
        "absent": "layer driver: no bytes",
        "forged": "verification failed",
        "of another image": "which the server's script asks for",
    }[fault]
    (message,) = mirrors.messages
    assert words in message
    assert len([request for request in mirrors.requests if "/parts/" in request.path]) == len(LAYERS)
    assert stage1.still_staged() == [], "there is no memory for both"
