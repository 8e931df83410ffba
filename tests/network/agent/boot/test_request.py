"""What a host may ask its DPU for, as a table; and heads that are no request."""

from __future__ import annotations

import time
from ipaddress import IPv4Address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.network.agent.boot.plane import BootingHost
from provisioner.network.agent.boot.request import (
    BootRequestRefused,
    Head,
    PartFile,
    PassOn,
    RequestedFile,
    Stretch,
    judge,
    read_head,
)

HOST = BootingHost("pf0", "52:54:00:00:01:00", IPv4Address("10.80.0.21"))
DIGEST = "ab" * 32
FORM, JSON = "application/x-www-form-urlencoded", "application/json; charset=utf-8"


def got(target: str, method: str = "GET", **headers: str) -> Any:
    return judge(Head(method, target, headers), HOST)


def posted(body: bytes, content_type: str = FORM, target: str = "/v1/progress") -> Any:
    return judge(Head("POST", target, {"content-type": content_type}), HOST, body)


@pytest.mark.parametrize(
    "target",
    [
        "/boot.ipxe",
        "/autoexec.ipxe",
        "/images/join-authorities",
        "/images/join-authorities.sig",
        "/tftp/snponly.efi",
        "/ipxe/52-54-00-00-01-00.ipxe",
        "/ipxe/52-54-00-00-01-00.ipxe?uuid=4c4c&serial=A%20B&buildarch=x86_64",
    ],
)
def test_what_a_boot_needs_is_passed_on_as_it_is(target: str) -> None:
    found = got(target)
    assert isinstance(found, PassOn)
    assert (found.method, found.target) == ("GET", target)


@pytest.mark.parametrize(
    ("path", "kind", "names"),
    [
        (f"/images/sha256-{DIGEST}/root.squashfs", RequestedFile, (DIGEST, "root.squashfs")),
        (f"/images/parts/sha256-{DIGEST}", PartFile, (DIGEST,)),
    ],
)
def test_what_an_image_consists_of_is_named_by_digest_and_may_be_asked_for_in_part(
    path: str, kind: Any, names: tuple[str, ...]
) -> None:
    assert got(path) == kind(*names)
    assert got(path).target == path
    assert got(path, range="bytes=5-") == kind(*names, Stretch(first=5))
    assert got(path, range="bytes=5-9") == kind(*names, Stretch(first=5, last=9))
    for bad in ("bytes=-5", "bytes=9-5", "bytes=1-2,4-5", "lines=1-2", "bytes=1-2 "):
        assert got(path, range=bad).status == 416


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/", 404),
        ("/ipxe/52-54-00-00-01-01.ipxe", 404),
        ("/ipxe/52-54-00-00-01-00.ipxe/../52-54-00-00-01-01.ipxe", 404),
        ("/ipxe/%35%32-54-00-00-01-00.ipxe", 404),
        ("//boot.ipxe", 404),
        ("/tftp/../etc/passwd", 404),
        ("/images/sha256-00/manifest", 404),
        (f"/images/sha256-{DIGEST}/../../x", 404),
        (f"/images/sha256-{DIGEST}/.hidden", 404),
        (f"/images/parts/sha256-{DIGEST}/manifest", 404),
        (f"/images/parts/sha256-{DIGEST[:-1]}", 404),
        (f"/images/parts/sha256-{DIGEST.upper()}", 404),
        ("/images/parts/", 404),
        ("/v1/join", 404),
        ("/by-dpu/v1/join", 404),
        ("/v1/ipxe?mac=52-54-00-00-01-00&mac=52-54-00-00-01-01", 404),
        ("/boot.ipxe?a\\b", 400),
    ],
)
def test_whatever_else_is_refused(target: str, status: int) -> None:
    found = got(target)
    assert isinstance(found, BootRequestRefused)
    assert found.status == status


def test_only_reports_of_its_own_mac_address_are_passed_on() -> None:
    mac = HOST.mac
    for body, content_type in (
        (f"mac={mac}&stage=Root".encode(), FORM),
        (f"mac={mac.replace(':', '%3A')}&stage=Root".encode(), FORM),
        (f'{{"mac": "{mac.upper()}"}}'.encode(), JSON),
    ):
        found = posted(body, content_type)
        assert isinstance(found, PassOn), body
        assert found.body == body
    for body, content_type in (
        (b"mac=52:54:00:00:01:01", FORM),
        (f"mac={mac}&m%61c=52:54:00:00:01:01".encode(), FORM),
        (b"stage=Root", FORM),
        (b'{"mac": "52:54:00:00:01:01"}', JSON),
        (f'{{"mac": "{mac}", "m\\u0061c": "52:54:00:00:01:01"}}'.encode(), JSON),
        (f'["{mac}"]'.encode(), JSON),
        (b"[" * 4096, JSON),
        (f"mac={mac}".encode(), "text/plain"),
    ):
        assert posted(body, content_type).status == 403, body
    assert posted(f"mac={mac}".encode(), target="/v1/join").status == 404


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/2.0\r\n\r\n",
        b"GET http://elsewhere/ HTTP/1.1\r\n\r\n",
        b"GET  / HTTP/1.1\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nA b: c\r\n\r\n",
        b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET / HTTP/1.1\r\n folded: x\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 65 + b"\r\n",
    ],
)
def test_a_head_that_could_be_read_in_two_ways_is_none(head: bytes) -> None:
    assert read_head(head) is None


@pytest.mark.parametrize(("said", "size"), [("0", 0), ("4096", 4096), ("4097", None), ("-1", None), ("1e3", None)])
def test_a_body_has_a_bound(said: str, size: int | None) -> None:
    assert Head("POST", "/", {"content-length": said}).body_bytes == size


@given(st.binary(max_size=300))
def test_whatever_is_sent_is_read_or_is_none(data: bytes) -> None:
    assert isinstance(read_head(b"GET /" + data + b"\r\n\r\n"), Head | None)


@given(
    st.sampled_from(["GET", "HEAD", "POST", "PUT"]),
    st.sampled_from(["/", "/images/", "/v1/ipxe?mac=", "/v1/progress", "/tftp/"]),
    st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=80),
    st.dictionaries(st.sampled_from(["content-length", "range", "x"]), st.text(max_size=20)),
    st.binary(max_size=300),
)
def test_whatever_is_asked_for_is_answered(
    method: str, path: str, rest: str, headers: dict[str, str], body: bytes
) -> None:
    answer = judge(Head(method, path + rest, headers), HOST, body)
    assert isinstance(answer, PassOn | RequestedFile | PartFile | BootRequestRefused)


def test_a_header_of_blanks_is_read_in_no_time_and_blanks_around_a_value_are_none_of_it() -> None:
    """While an expression is matched, no other thread of the agent runs."""
    began = time.process_time()
    assert read_head(b"GET / HTTP/1.1\r\na:" + b" " * 8000 + b"\x80\r\n\r\n") is None
    assert read_head(b"GET / HTTP/1.1\r\na:" + b" \t" * 500 + b"\x80\r\n\r\n") is None
    assert time.process_time() - began < 0.1
    found = read_head(b"GET / HTTP/1.1\r\nRange: \t bytes=0-1 \t \r\nEmpty: \r\n\r\n")
    assert found is not None
    assert found.headers == {"range": "bytes=0-1", "empty": ""}
