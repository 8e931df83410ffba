"""The few calls of the OCI Distribution Specification 1.1 that images need. Nothing that comes is believed unhashed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import quote, urlencode, urljoin

from provisioner.api.machinery.errors import NeedsHuman, NotFound, Refused, Retryable
from provisioner.api.machinery.values import Sha256Digest
from provisioner.image.finished.manifest import digest_of
from provisioner.image.finished.store import measure
from provisioner.image.registry.access import MIB
from provisioner.image.registry.transport import SHORT_BYTES, RegistryCall, RegistryResponse, RegistryTransport

MANIFEST_TYPE: Final = "application/vnd.oci.image.manifest.v1+json"
MAX_MANIFEST_BYTES: Final = 256 * 1024
_PUSH: Final = "pull,push"
_MAX_CHUNK_BYTES: Final = 64 * MIB


@dataclass(frozen=True)
class TaggedManifest:
    """What a tag leads to. `digest`: of `body`, computed here."""

    digest: Sha256Digest
    body: bytes


class Registry:
    """One repository. Used by one thread."""

    def __init__(self, transport: RegistryTransport) -> None:
        self._transport = transport
        self._root = transport.access.root

    def __str__(self) -> str:
        return str(self._transport.access.repository)

    def has_blob(self, digest: Sha256Digest, size_bytes: int) -> bool:
        """Whether a blob of that digest and size is there already."""
        call = RegistryCall(
            method="HEAD",
            url=f"{self._root}/blobs/{digest}",
            what=f"say whether it has blob {digest}",
            good=(HTTPStatus.OK, HTTPStatus.NOT_FOUND),
            actions=_PUSH,
        )

        def judge(answer: RegistryResponse) -> bool:
            length = answer.headers.get("Content-Length")
            return answer.status == HTTPStatus.OK and length in (None, str(size_bytes))

        return self._transport.ask(call, judge)

    def read_blob(self, digest: Sha256Digest, max_bytes: int) -> bytes:
        """A small blob. Raises: NotFound; Refused if it is larger, or another than its digest says."""
        call = RegistryCall(
            method="GET", url=f"{self._root}/blobs/{digest}", what=f"give blob {digest}", max_bytes=max_bytes
        )
        data = self._transport.ask(call, RegistryResponse.body)
        observed = digest_of(data)
        if len(data) > max_bytes or observed != digest:
            raise Refused(
                f"{self} gave {len(data)} bytes with {observed} as blob {digest}",
                hint="push the image again; what the registry has is damaged, or was altered on the way",
            )
        return data

    def fetch_blob(self, digest: Sha256Digest, size_bytes: int, file: Path) -> None:
        """Bring `file` to hold exactly this blob; what it holds already is taken for the blob's beginning.

        A connection that is cut, or too slow, is gone on with from there. What comes out wrong is fetched once more as
        a whole.
        Raises: NotFound; Refused if it is wrong again; NeedsHuman if there is no room.
        """
        for last in (False, True):
            self._fetch_rest(digest, size_bytes, file)
            observed = measure(file).sha256
            if f"sha256:{observed}" == digest:
                return
            file.unlink()
            if last:
                raise Refused(
                    f"{self} gave {size_bytes} bytes with sha256:{observed} as blob {digest}, twice",
                    hint="push the image again; what the registry has is damaged, or was altered on the way",
                )

    def _fetch_rest(self, digest: Sha256Digest, size: int, file: Path) -> None:
        if _size(file) > size:
            file.unlink()

        def fetch() -> None:
            have = _size(file)
            if have == size:
                return
            call = RegistryCall(
                method="GET",
                url=f"{self._root}/blobs/{digest}",
                what=f"give blob {digest}",
                good=(HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT),
                headers={"Range": f"bytes={have}-"} if have else {},
                max_bytes=size,
                seconds=self._transport.access.limits.seconds_for(size - have),
            )
            self._transport.exchange(call, lambda answer: self._receive(answer, digest, size, file))

        self._transport.attempt(fetch, progress=lambda: _size(file))

    def _receive(self, answer: RegistryResponse, digest: Sha256Digest, size: int, file: Path) -> None:
        begin = _size(file)
        if answer.status == HTTPStatus.OK:
            begin = 0  # it knows no ranges: the whole comes
        elif not answer.headers.get("Content-Range", "").startswith(f"bytes {begin}-"):
            file.unlink(missing_ok=True)
            raise Retryable(f"{self} gave another range of blob {digest} than was asked for", after_seconds=0)
        with _opened(file, begin) as stream:
            for part in answer.parts:
                begin += len(part)
                if begin > size:
                    raise Refused(f"{self} gave more than the {size} bytes of blob {digest}", hint="push it again")
                try:
                    stream.write(part)
                except OSError as error:
                    raise _no_room(file, error) from error
        if begin < size:
            raise Retryable(f"{self} gave {begin} of the {size} bytes of blob {digest}", after_seconds=0)

    def push_blob(self, digest: Sha256Digest, size_bytes: int, read: Callable[[int, int], bytes]) -> None:
        """Upload a blob in chunks; `read` gives the bytes at an offset. An upload that is cut is gone on with.

        Raises: Refused if the registry finds another digest.
        """
        upload = _Upload(self._transport, f"take blob {digest}", read, size_bytes)
        self._transport.attempt(lambda: upload.go_on(digest), progress=lambda: upload.accepted)

    def find_manifest(self, tag: str) -> TaggedManifest | None:
        """The OCI manifest that has the tag; None if there is none."""
        call = RegistryCall(
            method="GET",
            url=f"{self._root}/manifests/{tag}",
            what=f"give manifest {tag}",
            good=(HTTPStatus.OK, HTTPStatus.NOT_FOUND),
            headers={"Accept": MANIFEST_TYPE},
            max_bytes=MAX_MANIFEST_BYTES,
        )

        def read(answer: RegistryResponse) -> TaggedManifest | None:
            if answer.status == HTTPStatus.NOT_FOUND:
                return None
            body = answer.body()
            return TaggedManifest(digest_of(body), body)

        return self._transport.ask(call, read)

    def put_manifest(self, tag: str, body: bytes) -> None:
        """Raises: Refused if the registry took it for another than it is."""
        call = RegistryCall(
            method="PUT",
            url=f"{self._root}/manifests/{tag}",
            what=f"take manifest {tag}",
            good=(HTTPStatus.CREATED,),
            headers={"Content-Type": MANIFEST_TYPE},
            body=body,
            actions=_PUSH,
        )
        expected = digest_of(body)

        def judge(answer: RegistryResponse) -> None:
            told = answer.headers.get("Docker-Content-Digest", expected)
            if told != expected:
                raise Refused(
                    f"{self} took manifest {tag} for {told[:80]}, it is {expected}", hint="is it altered on the way?"
                )

        self._transport.ask(call, judge)

    def delete_manifest(self, digest: Sha256Digest) -> bool:
        """False if it was gone. Raises: MethodNotAllowed where the registry deletes nothing."""
        call = RegistryCall(
            method="DELETE",
            url=f"{self._root}/manifests/{digest}",
            what=f"delete manifest {digest}",
            good=(HTTPStatus.OK, HTTPStatus.ACCEPTED, HTTPStatus.NOT_FOUND),
            actions="pull,push,delete",
        )
        return self._transport.ask(call, lambda answer: answer.status != HTTPStatus.NOT_FOUND)


class _Upload:
    """One blob on its way: where to, and how far the registry has it."""

    def __init__(self, transport: RegistryTransport, what: str, read: Callable[[int, int], bytes], size: int) -> None:
        self._transport, self._what, self._read, self._size = transport, what, read, size
        self._location: str | None = None
        self._is_sure = True
        self.accepted = 0
        self._chunk_bytes = transport.access.limits.chunk_bytes

    def go_on(self, digest: Sha256Digest) -> None:
        """Raises: Retryable, after which it may be called again."""
        if not self._is_sure:
            self._ask_how_far()
        if self._location is None:
            self._begin()
        while self._size - self.accepted > self._chunk_bytes:
            self._send("PATCH", HTTPStatus.ACCEPTED, self._chunk_bytes, {})
        # The rest goes with the request that ends it: a small blob needs no more than two calls.
        self._send("PUT", HTTPStatus.CREATED, self._size - self.accepted, {"digest": digest})

    def _begin(self) -> None:
        self.accepted = 0
        call = self._call("POST", f"{self._transport.access.root}/blobs/uploads/", HTTPStatus.ACCEPTED)
        answer = self._transport.exchange(call, lambda answer: answer)
        self._locate(answer)
        least = answer.headers.get("OCI-Chunk-Min-Length", "0")
        if least.isdecimal() and len(least) < 12:
            self._chunk_bytes = min(max(self._chunk_bytes, int(least)), _MAX_CHUNK_BYTES)

    def _send(self, method: str, good: int, count: int, query: Mapping[str, str]) -> None:
        location, begin = self._location or "", self.accepted
        data = self._read(begin, count)
        if len(data) != count:
            raise Refused(f"the file ends after {begin + len(data)} bytes, not {self._size}", hint="build it again")
        url = location + ("&" if "?" in location else "?") + urlencode(query, quote_via=quote) if query else location
        headers = {"Content-Type": "application/octet-stream"}
        if method == "PATCH" or begin:
            headers["Content-Range"] = f"{begin}-{begin + count - 1}"
        if not count:
            headers.pop("Content-Range", None)
        call = self._call(method, url, good, headers=headers, body=data)
        self._is_sure = False
        answer = self._transport.exchange(call, lambda answer: answer)
        self._is_sure = True
        self.accepted += count
        if method == "PATCH":
            self._locate(answer)

    def _ask_how_far(self) -> None:
        """After a chunk of which nothing is known. What cannot be told is begun anew."""
        location, self._location, self._is_sure = self._location, None, True
        if location is None:
            return
        try:
            answer = self._transport.exchange(self._call("GET", location, HTTPStatus.NO_CONTENT), lambda answer: answer)
        except (NotFound, Refused):
            return
        begin, _, end = answer.headers.get("Range", "").removeprefix("bytes=").partition("-")
        # 0-0 is said of one byte as well as of none.
        if begin == "0" and end.isdecimal() and len(end) < 16 and 0 < int(end) < self._size:
            self.accepted = int(end) + 1
            self._locate(answer, location)

    def _locate(self, answer: RegistryResponse, otherwise: str = "") -> None:
        """Where the next chunk goes: to the registry itself, as what opens it goes along."""
        location = urljoin(answer.url, answer.headers.get("Location") or otherwise)
        if not self._transport.is_own(location):
            raise Refused(
                f"{self._transport.access.repository} has blobs sent to another address, "
                f"{location.partition('?')[0][:200]!r}",
                hint="behind a proxy it must know its own address: X-Forwarded-Proto and Host",
            )
        self._location = location

    def _call(
        self, method: str, url: str, good: int, *, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> RegistryCall:
        seconds = self._transport.access.limits.seconds_for(len(body or b""))
        return RegistryCall(
            method=method, url=url, what=self._what, good=(good,), headers=headers, body=body, actions=_PUSH,
            max_bytes=SHORT_BYTES, seconds=seconds,
        )  # fmt: skip


def _opened(file: Path, begin: int) -> BinaryIO:
    try:
        stream = file.open("r+b" if begin else "wb")
        stream.seek(begin)
    except OSError as error:
        raise _no_room(file, error) from error
    return stream


def _no_room(file: Path, error: OSError) -> NeedsHuman:
    return NeedsHuman(
        f"{file} cannot be written: {error.strerror}",
        hint="make room (provisioner image gc), or correct the rights of the store",
    )


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0
