"""Registries that keep to nothing: what they send never gets into a store, ends in time, and opens nothing to others.

Each has an honest twin in `test_an_honest_registry_is_pushed_to_and_pulled_from`, by the same fake.
"""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from provisioner.api.machinery.errors import Forbidden, NotFound, ProvisionerError, Refused, Retryable
from provisioner.image.finished.check import Checked, check_image
from provisioner.image.finished.sign import SecretKey
from provisioner.image.registry.access import open_access
from provisioner.image.registry.artifact import SIGNATURE_TYPE
from provisioner.image.registry.client import Registry
from provisioner.image.registry.pull import pull_image
from provisioner.image.registry.push import push_image
from provisioner.image.registry.reference import parse_repository
from provisioner.image.registry.transport import PROGRESS_BYTES
from tests.image.registry.conftest import LIMITS, Reach
from tests.image.registry.fake_registry import Asked, FakeRegistry, cut, drip, fake_registry, flood, say

Handler = BaseHTTPRequestHandler
QUICK = dataclasses.replace(LIMITS, call_seconds=0.5, least_bytes_per_second=1 << 40, attempts=2)
"""A time that drips and floods use up soon, and that an honest answer on a slow machine would, too: for them alone."""


@pytest.fixture
def checked(built: Path, key: SecretKey) -> Checked:
    return check_image(built, key.public)


def layer(checked: Checked) -> str:
    return f"sha256:{checked.manifest.layers[0].file.sha256}"


def pushed(registry: FakeRegistry, built: Path, key: SecretKey, reach: Reach) -> None:
    with reach(registry.address) as client:
        push_image(built, client, key.public)
    registry.asked.clear()


def test_an_honest_registry_is_pushed_to_and_pulled_from(
    built: Path, key: SecretKey, checked: Checked, tmp_path: Path, reach: Reach
) -> None:
    with fake_registry() as registry:
        pushed(registry, built, key, reach)
        with reach(registry.address) as client:
            pulled = pull_image(checked.digest, client, tmp_path / "store", key.public)
        check_image(pulled.folder, key.public)
        assert registry.count("GET", "/blobs/") == 2 + len(checked.manifest.parts())
        registry.asked.clear()
        with reach(registry.address) as client:
            pull_image(checked.digest, client, tmp_path / "store", key.public)
        assert registry.count("GET", "/blobs/") == 2, "what is there is not fetched again"


def test_chunks_follow_one_another_and_are_as_large_as_asked(built: Path, key: SecretKey, reach: Reach) -> None:
    with (
        fake_registry() as registry,
        reach(registry.address) as client,
    ):
        push_image(built, client, key.public)
        ranges = [each.headers["content-range"] for each in registry.asked if each.method == "PATCH"]
        assert "0-255" in ranges
        assert "512-767" in ranges


def test_an_upload_that_is_cut_goes_on_where_the_registry_has_it(built: Path, key: SecretKey, reach: Reach) -> None:
    failed: list[str] = []

    def trick(registry: FakeRegistry, asked: Asked, handler: Handler) -> bool:
        if asked.method == "PATCH" and asked.headers.get("content-range") == "256-511" and not failed:
            failed.append(asked.path)
            registry.answer(asked)  # it has the chunk; the answer is lost
            handler.close_connection = True
            handler.connection.shutdown(2)
            return True
        return False

    with fake_registry(trick) as registry, reach(registry.address) as client:
        push_image(built, client, key.public)
        asked = [each for each in registry.asked if each.path == failed[0]]
        number = next(n for n, each in enumerate(asked) if each.method == "GET")
        sent = [each.headers.get("content-range") for each in asked[number - 2 : number + 2]]
        assert sent[:3] == ["0-255", "256-511", None], "None: it was asked how far it is"
        assert str(sent[3]).startswith("512-")


def test_an_upload_that_the_registry_has_forgotten_begins_anew(built: Path, key: SecretKey, reach: Reach) -> None:
    failed: list[str] = []

    def trick(registry: FakeRegistry, asked: Asked, handler: Handler) -> bool:
        if asked.method == "PATCH" and asked.headers.get("content-range") == "512-767" and not failed:
            failed.append(asked.path)
            registry.uploads.clear()
            say(handler, 503, {}, b"")
            return True
        return False

    with fake_registry(trick) as registry, reach(registry.address) as client:
        push_image(built, client, key.public)
        assert registry.count("GET", "/blobs/uploads/") == 1


def blob_trick(digest: str, answer: Callable[[FakeRegistry, Handler, bytes], None], times: int = 1000) -> Any:
    """Answer the GETs of one blob otherwise."""
    left = [times]

    def trick(registry: FakeRegistry, asked: Asked, handler: Handler) -> bool:
        if asked.method != "GET" or not asked.path.endswith(digest) or not left[0]:
            return False
        left[0] -= 1
        answer(registry, handler, registry.blobs[digest])
        return True

    return trick


def wrong(registry: FakeRegistry, handler: Handler, blob: bytes) -> None:
    say(handler, 200, {}, bytes(len(blob)))


def longer(registry: FakeRegistry, handler: Handler, blob: bytes) -> None:
    say(handler, 200, {}, blob + bytes(200_000))


def endless(registry: FakeRegistry, handler: Handler, blob: bytes) -> None:
    flood(registry, handler)


def dripping(registry: FakeRegistry, handler: Handler, blob: bytes) -> None:
    drip(registry, handler, len(blob))


def truncated(registry: FakeRegistry, handler: Handler, blob: bytes) -> None:
    cut(handler, 200, {}, blob, len(blob) // 2)


def zipped(registry: FakeRegistry, handler: Handler, blob: bytes) -> None:
    say(handler, 200, {"Content-Encoding": "gzip"}, blob)


def another_range(registry: FakeRegistry, handler: Handler, blob: bytes) -> None:
    say(handler, 206, {"Content-Range": f"bytes 7-{len(blob) - 1}/{len(blob)}"}, blob[7:])


@pytest.mark.parametrize(
    ("answer", "limits", "error", "words"),
    [
        (wrong, LIMITS, Refused, "twice"),
        (longer, LIMITS, Refused, "more than"),
        (endless, LIMITS, Refused, "more than"),
        (dripping, QUICK, Retryable, "was not done after"),
        (truncated, LIMITS, Retryable, r"did not give blob"),
        (zipped, LIMITS, Refused, "Content-Encoding 'gzip'"),
        (another_range, LIMITS, Retryable, "another range"),
    ],
)
def test_a_part_that_is_not_what_the_manifest_says_is_refused(
    answer: Any, limits: Any, error: type[ProvisionerError], words: str, built: Path, key: SecretKey, checked: Checked,
    tmp_path: Path, reach: Reach,
) -> None:  # fmt: skip
    with fake_registry() as registry:
        pushed(registry, built, key, reach)
        registry.trick = blob_trick(layer(checked), answer)
        with reach(registry.address, limits=limits) as client, pytest.raises(error, match=words) as raised:
            pull_image(checked.digest, client, tmp_path / "store", key.public)
        assert registry.host in str(raised.value), "the registry is named"
        store = tmp_path / "store"
        assert not list(store.glob("sha256-*"))
        assert not (store / "parts" / layer(checked).replace(":", "-")).exists()
        registry.trick = lambda *_: False
        with reach(registry.address) as client:
            pulled = pull_image(checked.digest, client, store, key.public)
        check_image(pulled.folder, key.public)


def test_a_part_that_is_cut_goes_on_from_there_and_one_that_came_out_wrong_is_fetched_whole(
    built: Path, key: SecretKey, checked: Checked, tmp_path: Path, reach: Reach
) -> None:
    with fake_registry() as registry:
        pushed(registry, built, key, reach)
        registry.trick = blob_trick(layer(checked), truncated, times=1)
        with reach(registry.address) as client:
            pull_image(checked.digest, client, tmp_path / "one", key.public)
        ranges = [each.headers.get("range") for each in registry.asked if each.path.endswith(layer(checked))]
        assert ranges == [None, "bytes=512-"]
        registry.asked.clear()
        broken_off = tmp_path / "two" / ".pulling" / layer(checked).replace(":", "-")
        broken_off.parent.mkdir(parents=True)
        broken_off.write_bytes(bytes(512))
        registry.trick = lambda *_: False
        with reach(registry.address) as client:
            pulled = pull_image(checked.digest, client, tmp_path / "two", key.public)
        check_image(pulled.folder, key.public)
        ranges = [each.headers.get("range") for each in registry.asked if each.path.endswith(layer(checked))]
        assert ranges == ["bytes=512-", None]


def test_an_image_signed_by_another_key_or_another_image_under_its_tag_is_refused(
    built: Path, key: SecretKey, checked: Checked, tmp_path: Path, reach: Reach
) -> None:
    stranger = SecretKey.generate()
    with fake_registry() as registry:
        pushed(registry, built, key, reach)
        with reach(registry.address) as client, pytest.raises(Refused, match="is signed with key"):
            pull_image(checked.digest, client, tmp_path / "store", stranger.public)
        other = "sha256:" + "6" * 64
        registry.manifests[f"image-{'6' * 64}"] = next(iter(registry.manifests.values()))
        with reach(registry.address) as client, pytest.raises(Refused, match=f"is image {checked.digest}"):
            pull_image(other, client, tmp_path / "store", key.public)  # type: ignore[arg-type]
        config = registry.blobs[checked.digest]
        registry.blobs[checked.digest] = config.replace(b"gpu-node", b"gpu-mode")
        with reach(registry.address) as client, pytest.raises(Refused, match="as blob"):
            pull_image(checked.digest, client, tmp_path / "store", key.public)
        assert not list((tmp_path / "store").glob("**/sha256-*"))


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"null", b"{}", b"[" * 100_000, b'{"config": 7, "layers": 7}',
        b'{"config": {"digest": "x", "mediaType": "y"}, "layers": []}',
        json.dumps({"config": {"digest": "sha256:1", "mediaType": "application/vnd.oci.image.config.v1+json"},
                    "layers": [{"mediaType": SIGNATURE_TYPE, "digest": "x", "size": 3}]}).encode(),
    ],
)  # fmt: skip
def test_a_manifest_of_something_else_is_refused(
    body: bytes, built: Path, key: SecretKey, checked: Checked, tmp_path: Path, reach: Reach
) -> None:
    with fake_registry() as registry:
        pushed(registry, built, key, reach)
        registry.manifests = dict.fromkeys(registry.manifests, body)
        with reach(registry.address) as client, pytest.raises(Refused, match="what has the tag"):
            pull_image(checked.digest, client, tmp_path / "store", key.public)


@pytest.mark.parametrize(("status", "header"), [(429, "3"), (503, "3"), (503, "soon"), (500, "nan"), (502, None)])
def test_who_asks_for_time_gets_it_and_is_asked_again(
    status: int, header: str | None, built: Path, key: SecretKey, reach: Reach
) -> None:
    refusals = [2]

    def trick(registry: FakeRegistry, asked: Asked, handler: Handler) -> bool:
        if asked.method == "PUT" and "/manifests/" in asked.path and refusals[0]:
            refusals[0] -= 1
            say(handler, status, {"Retry-After": header} if header else {}, b"")
            return True
        return False

    sleeps: list[float] = []
    with fake_registry(trick) as registry, reach(registry.address, sleeps=sleeps) as client:
        push_image(built, client, key.public)
    assert sleeps == ([3.0, 3.0] if header == "3" else [0.01, 0.02])


def test_who_asks_for_time_without_end_or_for_hours_is_given_up(built: Path, key: SecretKey, reach: Reach) -> None:
    answers = {"Retry-After": "0"}
    with fake_registry(lambda r, a, handler: (say(handler, 503, answers, b""), True)[1]) as registry:
        with reach(registry.address) as client, pytest.raises(Retryable, match="HTTP 503"):
            push_image(built, client, key.public)
        assert len(registry.asked) == LIMITS.attempts
        registry.asked.clear()
        answers["Retry-After"] = "900"
        with reach(registry.address) as client, pytest.raises(Retryable) as raised:
            push_image(built, client, key.public)
        assert (len(registry.asked), raised.value.after_seconds) == (1, 900)


def test_a_redirect_to_another_host_is_followed_without_the_password(
    built: Path, key: SecretKey, checked: Checked, tmp_path: Path, reach: Reach, configuration: Callable[..., Path]
) -> None:
    """As registries do that keep blobs in a storage of somebody else's."""
    with fake_registry(address="127.0.0.2") as storage, fake_registry() as registry:
        pushed(registry, built, key, reach)
        storage.trick = lambda r, asked, handler: (say(handler, 200, {}, registry.blobs[layer(checked)]), True)[1]

        def trick(r: FakeRegistry, asked: Asked, handler: Handler) -> bool:
            if "authorization" not in asked.headers:
                say(handler, 401, {"WWW-Authenticate": 'Basic realm="x"'}, b"")
                return True
            if asked.path.endswith(layer(checked)):
                say(handler, 307, {"Location": f"http://{storage.host}/elsewhere?sig=secret"}, b"")
                return True
            return False

        registry.trick = trick
        file = configuration(registry.host, "user", "pass")
        with reach(registry.address, configuration=file) as client:
            pulled = pull_image(checked.digest, client, tmp_path / "store", key.public)
        check_image(pulled.folder, key.public)
        assert len(storage.asked) == 1
        assert "authorization" not in storage.asked[0].headers
        assert any("authorization" in each.headers for each in registry.asked)


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("/v2/site/images/blobs/again", "redirects more than 3 times"),
        ("", "redirects more than 3 times"),
        ("ftp://127.0.0.1/x", "redirects from TLS"),
        ("file:///etc/passwd", "redirects from TLS"),
    ],
)
def test_redirects_are_few_and_lead_to_the_web_alone(location: str, words: str, reach: Reach) -> None:
    with fake_registry(lambda r, a, handler: (say(handler, 302, {"Location": location}, b""), True)[1]) as registry:
        with reach(registry.address) as client, pytest.raises(Refused, match=words):
            client.find_manifest("image-x")
        assert len(registry.asked) <= 4


def test_what_is_written_is_not_led_elsewhere(built: Path, key: SecretKey, reach: Reach) -> None:
    def led(registry: FakeRegistry, asked: Asked, handler: Handler) -> bool:
        if asked.method == "POST":
            say(handler, 307, {"Location": "http://127.0.0.3:1/"}, b"")
        return asked.method == "POST"

    with fake_registry(led) as registry, reach(registry.address) as client, pytest.raises(Refused, match="is written"):
        push_image(built, client, key.public)

    def sent(registry: FakeRegistry, asked: Asked, handler: Handler) -> bool:
        if asked.method == "POST":
            say(handler, 202, {"Location": "http://127.0.0.3:1/upload"}, b"")
        return asked.method == "POST"

    with (
        fake_registry(sent) as registry,
        reach(registry.address) as client,
        pytest.raises(Refused, match=r"blobs sent to another address, 'http://127\.0\.0\.3:1/upload'"),
    ):
        push_image(built, client, key.public)


def test_a_realm_at_another_host_gets_no_password_unless_a_person_says_so(
    reach: Reach, configuration: Callable[..., Path]
) -> None:
    with fake_registry(address="127.0.0.2") as thief, fake_registry() as registry:
        thief.trick = lambda r, asked, handler: (say(handler, 200, {}, b'{"token": "abc"}'), True)[1]

        def trick(r: FakeRegistry, asked: Asked, handler: Handler) -> bool:
            if asked.headers.get("authorization") == "Bearer abc":
                return False
            realm = f'Bearer realm="http://{thief.host}/token",service="s",scope="repository:other:push"'
            say(handler, 401, {"WWW-Authenticate": realm}, b"")
            return True

        registry.trick = trick
        file = configuration(registry.host, "user", "pass")
        with (
            reach(registry.address, configuration=file) as client,
            pytest.raises(Refused, match=r"tokens made at another host, '127\.0\.0\.2'"),
        ):
            client.find_manifest("image-x")
        assert thief.asked == []
        with reach(registry.address, configuration=file, token_hosts=("127.0.0.2",)) as client:
            assert client.find_manifest("image-x") is None
        (asked,) = thief.asked
        assert asked.headers["authorization"].startswith("Basic ")
        assert asked.query == {"service": "s", "scope": "repository:site/images:pull"}, "a scope of ours alone"


def test_a_token_is_asked_for_where_the_registry_says_and_anew_once_it_is_over(
    built: Path, key: SecretKey, reach: Reach, configuration: Callable[..., Path]
) -> None:
    """Of its own host; with the scope that it tells, as a right to push is asked for later than one to pull."""
    made: list[str] = []

    def trick(registry: FakeRegistry, asked: Asked, handler: Handler) -> bool:
        if asked.path == "/token":
            made.append(asked.query["scope"])
            say(handler, 200, {}, json.dumps({"access_token": f"t{len(made)}", "expires_in": 1}).encode())
            return True
        wanted = "pull" if asked.method in ("GET", "HEAD") else "pull,push"
        given = asked.headers.get("authorization", "")
        if made and given == f"Bearer t{len(made)}" and (wanted == "pull" or made[-1].endswith(":pull,push")):
            return False
        scope = f'Bearer realm="http://{registry.host}/token",scope="repository:site/images:{wanted}"'
        say(handler, 401, {"WWW-Authenticate": scope}, b"")
        return True

    with fake_registry(trick) as registry:
        file = configuration(registry.host, "user", "pass")
        with reach(registry.address, configuration=file) as client:
            push_image(built, client, key.public)
    assert made == ["repository:site/images:pull", "repository:site/images:pull,push"]


@pytest.mark.parametrize("token", [b"", b"{}", b"[]", b'{"token": 7}', b'{"token": "a\\r\\nX: y"}', b"[" * 60_000])
def test_a_realm_that_gives_no_token_is_named(token: bytes, reach: Reach) -> None:
    def trick(registry: FakeRegistry, asked: Asked, handler: Handler) -> bool:
        if asked.path == "/token":
            say(handler, 200, {}, token)
        else:
            say(handler, 401, {"WWW-Authenticate": f'Bearer realm="http://{registry.host}/token"'}, b"")
        return True

    with (
        fake_registry(trick) as registry,
        reach(registry.address) as client,
        pytest.raises(Refused, match="answered without a token"),
    ):
        client.find_manifest("image-x")


def test_a_registry_that_refuses_whoever_calls_is_asked_twice_and_no_more(
    reach: Reach, configuration: Callable[..., Path]
) -> None:
    challenge = {"WWW-Authenticate": 'Basic realm="x"'}
    with fake_registry(lambda r, a, handler: (say(handler, 401, challenge, b""), True)[1]) as registry:
        file = configuration(registry.host, "user", "hunter-2")
        with reach(registry.address, configuration=file) as client, pytest.raises(Forbidden) as raised:
            client.find_manifest("image-x")
        assert len(registry.asked) == 2
        assert "hunter-2" not in str(raised.value)


@pytest.mark.parametrize("path", ["manifests", "blobs"])
def test_short_answers_are_bounded_in_size_and_time(path: str, reach: Reach) -> None:
    def ask(client: Registry) -> object:
        return client.find_manifest("image-x") if path == "manifests" else client.read_blob(f"sha256:{'1' * 64}", 100)  # type: ignore[arg-type]

    with (
        fake_registry(lambda r, a, handler: (flood(r, handler), True)[1]) as registry,
        reach(registry.address) as client,
        pytest.raises(Refused, match="sent more than"),
    ):
        ask(client)
    with fake_registry(lambda r, a, handler: (drip(r, handler, 1000), True)[1]) as registry:
        began = time.monotonic()
        with reach(registry.address, limits=QUICK) as client, pytest.raises(Retryable, match=r"may take 0\.5 s in all"):
            ask(client)
        assert time.monotonic() - began < 60


def test_errors_are_told_in_the_registrys_words_and_no_page_is(reach: Reach) -> None:
    page = b"<html>" + b"x" * 1000
    told = b'{"errors": [{"code": "DENIED", "message": "not\x1b[31m you"}]}'.replace(b"\x1b", b"\\u001b")
    for body, words in ((page, "HTTP 400;"), (told, r"HTTP 400, DENIED: not\?\[31m you")):
        with (
            fake_registry(lambda r, a, handler, body=body: (say(handler, 400, {}, body), True)[1]) as registry,
            reach(registry.address) as client,
            pytest.raises(Refused, match=words),
        ):
            client.find_manifest("image-x")


def test_two_pulls_of_one_part_fetch_it_once(
    built: Path, key: SecretKey, checked: Checked, tmp_path: Path, reach: Reach
) -> None:
    with fake_registry() as registry:
        pushed(registry, built, key, reach)
        errors: list[Exception] = []

        def pull() -> None:
            try:
                with reach(registry.address) as client:
                    pull_image(checked.digest, client, tmp_path / "store", key.public)
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=pull) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert errors == []
        assert registry.count("GET", layer(checked)) == 1
        check_image(tmp_path / "store" / built.name, key.public)


def test_a_store_without_room_is_not_filled(
    built: Path, key: SecretKey, checked: Checked, tmp_path: Path, reach: Reach
) -> None:
    with fake_registry() as registry:
        pushed(registry, built, key, reach)
        with reach(registry.address) as client, pytest.raises(ProvisionerError, match="64 MB are"):
            pull_image(checked.digest, client, tmp_path / "store", key.public, free_bytes=lambda folder: 64_000_000)
        assert registry.count("GET", layer(checked)) == 0


def test_an_image_that_lost_a_part_on_this_disk_gets_that_back(
    built: Path, key: SecretKey, checked: Checked, tmp_path: Path, reach: Reach
) -> None:
    with fake_registry() as registry:
        pushed(registry, built, key, reach)
        with reach(registry.address) as client:
            pulled = pull_image(checked.digest, client, tmp_path / "store", key.public)
            (tmp_path / "store" / "parts" / layer(checked).replace(":", "-")).unlink()
            assert pull_image(checked.digest, client, tmp_path / "store", key.public).fetched_bytes == 1024
        check_image(pulled.folder, key.public)


def test_a_registry_that_is_not_there_is_named_and_asked_again(tmp_path: Path, reach: Reach) -> None:
    with fake_registry() as registry:
        address = registry.address
    sleeps: list[float] = []
    with reach(address, sleeps=sleeps) as client, pytest.raises(Retryable, match="Connection refused"):
        client.find_manifest("image-x")
    assert sleeps == [0.01, 0.02, 0.04, 0.08]


@pytest.mark.parametrize(("bytes_each", "calls"), [(1, 5), (PROGRESS_BYTES, 50)], ids=["single bytes", "a slow link"])
def test_single_bytes_keep_no_transfer_going_and_a_slow_link_ends_none(
    bytes_each: int, calls: int, reach: Reach
) -> None:
    came = 0

    def cut() -> None:
        nonlocal came
        came += bytes_each
        if came < 50 * bytes_each:
            raise Retryable("the connection ended")

    with reach("oci://127.0.0.1:1/images", sleeps=[]) as client:
        if calls == 50:
            client._transport.attempt(cut, lambda: came)
        else:
            with pytest.raises(Retryable, match="the connection ended"):
                client._transport.attempt(cut, lambda: came)
    assert came == calls * bytes_each


def test_a_password_is_not_sent_where_anybody_could_read_it(configuration: Callable[..., Path]) -> None:
    file = configuration("registry.example.com", "user", "p-4711")
    with pytest.raises(Refused, match="over plain HTTP"):
        open_access(parse_repository("oci://registry.example.com/x"), plain_http=True, configuration=file)
    access = open_access(parse_repository("oci://registry.example.com/x"), configuration=file)
    assert access.root.startswith("https://")
    assert "p-4711" not in repr(access)


def test_a_manifest_that_is_not_there_is_no_error_and_a_blob_is(reach: Reach) -> None:
    with fake_registry() as registry, reach(registry.address) as client:
        assert client.find_manifest("image-x") is None
        with pytest.raises(NotFound):
            client.read_blob(f"sha256:{'1' * 64}", 100)  # type: ignore[arg-type]
