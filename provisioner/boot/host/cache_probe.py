"""Whether a rack's cache gives what it should as fast as it must: one look, bounded in bytes and in time."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

import urllib3

from provisioner.api import Image
from provisioner.outbound.deadline import OutboundFailed, bounded_call
from provisioner.outbound.sockets import bound, read_body

MANIFEST_BYTES: Final = 64 * 1024
MANIFEST_SECONDS: Final = 15.0
PART_BYTES: Final = 1024 * 1024
"""Of the root's beginning. A cache that has to fetch the image first gives these while it does."""
PART_SECONDS: Final = 5.0
"""Beside what the part may take at the least rate."""
_AHEAD_BYTES: Final = 64 * 1024
"""Of a root that comes whole, read before it is known that its beginning is enough."""


class CacheFails(OutboundFailed):
    """The message says what the cache gave instead."""


def probe(url: str, image: Image, least_rate: int, store: Path) -> None:
    """Fetch the manifest of `image` and the beginning of its largest layer from the cache at `url`, and compare them
    with the digest and with this host's own `store`, as far as that has the file. `least_rate`: in bytes/s.

    Raises: OutboundFailed, urllib3's errors.
    """
    pool = urllib3.PoolManager(retries=False)
    bound(pool)
    name = f"cache {url}"
    try:
        manifest = f"{url}/images/{image.spec.manifest.path}"
        with bounded_call(name, seconds=MANIFEST_SECONDS, max_bytes=MANIFEST_BYTES):
            content = read_body(_get(pool, manifest, {}))
        observed = f"sha256:{hashlib.sha256(content).hexdigest()}"
        if observed != image.spec.digest:
            raise CacheFails(f"{manifest} has digest {observed}, expected {image.spec.digest}")
        root = max(image.spec.file_systems, key=lambda artifact: artifact.size_bytes)
        size = min(PART_BYTES, root.size_bytes)
        part = f"{url}/images/{root.path}"
        seconds = size / least_rate + PART_SECONDS
        with bounded_call(name, seconds=seconds, max_bytes=size + _AHEAD_BYTES):
            answer = _get(pool, part, {"Range": f"bytes=0-{size - 1}"})
            content = answer.read(size, decode_content=False)  # the whole comes where it knows no ranges
            answer.close()
        expected = _beginning(store / root.path, size)
        if len(content) != size or expected not in (None, content):
            raise CacheFails(f"{part} begins with {len(content)} bytes that are not the first {size} of the image")
    finally:
        pool.clear()


def _get(pool: urllib3.PoolManager, url: str, headers: dict[str, str]) -> urllib3.BaseHTTPResponse:
    headers = {"Accept-Encoding": "identity", "User-Agent": "provisioner-boot", **headers}
    answer = pool.request("GET", url, headers=headers, preload_content=False, redirect=False)
    if answer.status not in (200, 206):
        answer.close()
        raise CacheFails(f"{url} answers HTTP {answer.status}")
    return answer


def _beginning(file: Path, size: int) -> bytes | None:
    """None if this host does not have it."""
    try:
        with file.open("rb") as stream:
            content = stream.read(size)
    except OSError:
        return None
    return content if len(content) == size else None
