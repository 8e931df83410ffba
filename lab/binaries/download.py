"""The official release: each program is fetched over HTTPS and must have the SHA-256 that is published beside it."""

from __future__ import annotations

import hashlib
import http.client
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from lab.binaries.cache import NAMES, VERSION, Report, architecture, fill
from provisioner.api.machinery.errors import NeedsHuman

RELEASE_URL: Final = "https://dl.k8s.io/release"
CONNECT_SECONDS: Final = 5.0
READ_SECONDS: Final = 60.0

T = TypeVar("T")


class Unavailable(NeedsHuman):
    """The release could not be fetched."""


def entry_of(cache: Path, of: str, names: Sequence[str] = NAMES) -> Path:
    """Where the released programs for `of`, an architecture in Go's words, are in the cache."""
    called = "bin" if tuple(names) == NAMES else "-".join(names)
    return cache / f"{called}-{VERSION}-release-{of}"


def download(
    cache: Path,
    report: Report,
    *,
    release_url: str = RELEASE_URL,
    of: str | None = None,
    names: Sequence[str] = NAMES,
) -> Path:
    """Fetch the programs into the cache, for this machine or for `of`; returns their directory.

    A machine without a way to the host goes on after about 5 s. Raises: Unavailable, also for a wrong checksum.
    """
    base = f"{release_url}/{VERSION}/bin/linux/{of or architecture()}"
    entry = entry_of(cache, of or architecture(), names)
    # All checksums first: they are small, and tell whether there is a way to the host at all.
    sums = {name: _published_sum(f"{base}/{name}.sha256") for name in names}
    with fill(entry, report, names) as directory:
        if directory is not None:
            for name in names:
                report(f"fetching {base}/{name}")
                _fetch(f"{base}/{name}", sums[name], directory / name)
    return entry


def _published_sum(url: str) -> str:
    def fetch() -> str:
        with urllib.request.urlopen(url, timeout=CONNECT_SECONDS) as response:  # noqa: S310 - https, or what a test names
            return str(response.read(1024).decode("ascii", errors="replace")).split()[0].lower()

    digest = _within(CONNECT_SECONDS, fetch, url)
    if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
        raise Unavailable(f"{url} holds no SHA-256 but {digest[:80]!r}", hint="see what answers at that address")
    return digest


def _within(seconds: float, action: Callable[[], T], url: str) -> T:
    """The result of `action`, for which nobody waits longer: no time-out of a socket bounds the resolver."""
    results: list[T] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(action())
        except (OSError, http.client.HTTPException, IndexError) as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if results:
        return results[0]
    why = errors[0] if errors else f"no answer within {seconds:.0f} s"
    raise Unavailable(f"{url} not fetched: {why}", hint="give this machine a way to that host, or build (needs Go)")


def _fetch(url: str, digest: str, target: Path) -> None:
    sha256 = hashlib.sha256()
    try:
        with urllib.request.urlopen(url, timeout=READ_SECONDS) as response, target.open("wb") as file:  # noqa: S310
            while chunk := response.read(1 << 20):
                sha256.update(chunk)
                file.write(chunk)
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(f"{url} not fetched: {error}", hint="try again") from error
    if sha256.hexdigest() != digest:
        raise Unavailable(
            f"{url} has SHA-256 {sha256.hexdigest()}, published is {digest}",
            hint="do not use it; see what stands between this machine and that host",
        )
    target.chmod(0o755)
