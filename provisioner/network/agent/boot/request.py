"""What a host may ask its DPU for by HTTP: what one boot of its own needs. Pure.

A script of its own, the first stage, files and parts of images by digest, and reports of its own progress. Whatever
else is asked for, of another host, too, is refused, and nobody behind the DPU hears of it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl

from provisioner.network.agent.boot.plane import BootingHost

LONGEST_HEAD: Final = 8192
LONGEST_BODY: Final = 4096
"""Of a report, in bytes; as the boot service has it."""
FIRST_STAGE: Final = ("snponly.efi", "ipxe-arm64.efi", "undionly.kpxe", "autoexec.ipxe")
SMALL_BYTES: Final = 65536
FIRST_STAGE_BYTES: Final = 8 << 20

_LINE: Final = re.compile(rb"([A-Z]{3,7}) (/[!-~]{0,2047}) HTTP/1\.[01]\Z")
_HEADER: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}):([\t -~]{0,1024})\Z")
_RANGE: Final = re.compile(r"bytes=([0-9]{1,15})-([0-9]{1,15})?\Z")
_IMAGE: Final = re.compile(r"/images/sha256-([0-9a-f]{64})/([A-Za-z0-9][A-Za-z0-9._-]{0,63})\Z")
_PART: Final = re.compile(r"/images/parts/sha256-([0-9a-f]{64})\Z")
_AUTHORITIES: Final = re.compile(r"/images/join-authorities(\.sig)?\Z")
"""Small, signed, and not named by a digest: asked for anew each time."""
_QUERY: Final = re.compile(r"[A-Za-z0-9._~%&=+:/-]{0,1024}\Z")
_MOST_HEADERS: Final = 64


@dataclass(frozen=True)
class Head:
    """The head of a request. headers: by name in small letters."""

    method: str
    target: str
    headers: dict[str, str]

    @property
    def body_bytes(self) -> int | None:
        """What Content-Length says; None if that is no number of a body that is taken."""
        said = self.headers.get("content-length", "0")
        return int(said) if said.isdecimal() and len(said) < 10 and int(said) <= LONGEST_BODY else None


@dataclass(frozen=True)
class BootRequestRefused:
    """With an HTTP status, and why."""

    status: int
    why: str


@dataclass(frozen=True)
class PassOn:
    """To the boot host, as it is. most_bytes: of its answer; body: of the request."""

    method: str
    target: str
    most_bytes: int = SMALL_BYTES
    body: bytes | None = None
    content_type: str | None = None


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """Of a file that is asked for. first, last: of a range of bytes; last None: to the end; first None: the whole."""

    first: int | None = None
    last: int | None = None


@dataclass(frozen=True)
class RequestedFile:
    """A file in the folder of the image whose manifest has `digest` (64 hexadecimal digits)."""

    digest: str
    name: str
    stretch: Stretch = Stretch()

    @property
    def target(self) -> str:
        return f"/images/sha256-{self.digest}/{self.name}"


@dataclass(frozen=True)
class PartFile:
    """A part of whatever image has it, by its own digest (64 hexadecimal digits)."""

    sha256: str
    stretch: Stretch = Stretch()

    @property
    def target(self) -> str:
        return f"/images/parts/sha256-{self.sha256}"


Answerable = PassOn | RequestedFile | PartFile | BootRequestRefused


def read_head(head: bytes) -> Head | None:
    """Of what ends with an empty line. None: it is no head that is read here. Never raises."""
    first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    line = _LINE.match(first)
    if line is None or len(lines) > _MOST_HEADERS or len(head) > LONGEST_HEAD:
        return None
    headers: dict[str, str] = {}
    for each in lines:
        found = _HEADER.match(each)
        if found is None:
            return None
        name = found[1].decode().lower()
        if name in headers and name in ("content-length", "range", "transfer-encoding"):
            return None
        headers[name] = found[2].decode().strip(" \t")
    if "transfer-encoding" in headers:
        return None
    return Head(line[1].decode(), line[2].decode(), headers)


def judge(head: Head, host: BootingHost, body: bytes = b"") -> Answerable:
    """What is to be done with a request of `host`."""
    path, _, query = head.target.partition("?")
    if not _QUERY.match(query):
        return BootRequestRefused(400, "the query has characters that no boot needs")
    if head.method == "POST":
        return _report(head, host, path, query, body)
    if head.method not in ("GET", "HEAD"):
        return BootRequestRefused(405, "this is answered to GET, HEAD and POST alone")
    image, part = _IMAGE.match(path), _PART.match(path)
    if image is not None or part is not None:
        stretch = _stretch(head)
        if isinstance(stretch, BootRequestRefused):
            return stretch
        return RequestedFile(image[1], image[2], stretch) if image is not None else PartFile(path[-64:], stretch)
    if path == "/boot.ipxe" or _AUTHORITIES.match(path):
        return PassOn(head.method, path)
    name = path.removeprefix("/tftp").removeprefix("/")
    if name in FIRST_STAGE and path in (f"/{name}", f"/tftp/{name}"):
        return PassOn(head.method, path, FIRST_STAGE_BYTES)
    if path == f"/ipxe/{host.mac.replace(':', '-')}.ipxe":
        return PassOn(head.method, head.target)
    if path == "/v1/ipxe" and _macs(query) == [host.mac]:
        return PassOn("GET", f"/v1/ipxe?mac={host.mac}")
    return BootRequestRefused(404, "there is nothing of that name for this host")


def _stretch(head: Head) -> Stretch | BootRequestRefused:
    said = head.headers.get("range")
    if said is None:
        return Stretch()
    found = _RANGE.match(said)
    if found is None:
        return BootRequestRefused(416, "one range of bytes is answered, bytes=FIRST-LAST or bytes=FIRST-")
    first, last = int(found[1]), int(found[2]) if found[2] is not None else None
    if last is not None and last < first:
        return BootRequestRefused(416, "the range ends before it begins")
    return Stretch(first=first, last=last)


def _report(head: Head, host: BootingHost, path: str, query: str, body: bytes) -> Answerable:
    if path != "/v1/progress" or query:
        return BootRequestRefused(404, "only reports of progress are taken here; a join is sent by TLS")
    content_type = head.headers.get("content-type", "").partition(";")[0].strip().lower()
    if _reported_mac(content_type, body) != host.mac:
        return BootRequestRefused(403, "the report is not of this host's own MAC address")
    return PassOn("POST", path, body=body, content_type=content_type)


def _reported_mac(content_type: str, body: bytes) -> str | None:
    """As the boot service reads it; None where two readers could read two."""
    if content_type == "application/json":
        try:
            said: Any = json.loads(body, object_pairs_hook=_without_repeats)
        except (ValueError, RecursionError):
            return None
        return _mac(said.get("mac")) if isinstance(said, dict) else None
    if content_type == "application/x-www-form-urlencoded":
        found = _macs(body.decode("latin-1"))
        return found[0] if len(found) == 1 else None
    return None


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name comes twice")
    return found


def _macs(query: str) -> list[str | None]:
    try:
        fields = parse_qsl(query, keep_blank_values=True, max_num_fields=16)
    except ValueError:
        return []
    return [_mac(value) for name, value in fields if name == "mac"]


def _mac(said: object) -> str | None:
    if not isinstance(said, str) or not re.fullmatch(r"[0-9A-Fa-f]{2}([:-][0-9A-Fa-f]{2}){5}", said):
        return None
    return said.lower().replace("-", ":")
