"""Whom a boot host's certificate may be of: the authorities in the image, and those that a signed document adds.

The document lies beside the images, signed by the image key like a manifest, so that a site's new authority reaches
images that were built before it. It is asked for in the clear, since it is what TLS is made from, and only once a
certificate was not believed. docs/rotation.md.
"""

from __future__ import annotations

import re
import socket
import ssl
import time

from provisioner.node.http.post import pinned_context

JOIN_CA = "/etc/provisioner/join-ca.pem"
DOCUMENT = "join-authorities"
"""Its name beside the images; its signature has `.sig` behind it."""
FIRST_LINE = "provisioner-join-authorities 1"
MAX_BYTES = 32768
MAX_SIGNATURE_BYTES = 4096
MAX_AUTHORITIES = 4

_UNTIL = re.compile(r"until ([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z)")
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----\n[A-Za-z0-9+/=\n]+-----END CERTIFICATE-----\n")


class AuthoritiesError(Exception):
    """The document is not believed; the message says why, and what to do."""


def read_document(content: bytes, now: float) -> str:
    """The certificates of a document whose signature is right, as PEM. `now`: in seconds since 1970.

    Raises: AuthoritiesError. A manifest, or whatever else the same key signs, is no such document.
    """
    from calendar import timegm  # here and below: what is seldom needed costs no start-up time

    first, _, rest = content.decode("ascii", errors="replace").partition("\n")
    until, _, certificates = rest.partition("\n")
    match = _UNTIL.fullmatch(until)
    if first != FIRST_LINE or match is None:
        raise AuthoritiesError(f"it begins with {first[:60]!r}, {until[:60]!r}, expected {FIRST_LINE!r} and until when")
    try:
        ends = timegm(time.strptime(match[1], "%Y-%m-%dT%H:%M:%SZ"))
    except ValueError as error:
        raise AuthoritiesError(f"it is valid until {match[1]}, which is no time") from error
    if now > ends:
        raise AuthoritiesError(f"it was valid until {match[1]}; sign it anew: provisioner boot tls announce")
    found = _CERTIFICATE.findall(certificates)
    if "".join(found) != certificates or not 1 <= len(found) <= MAX_AUTHORITIES:
        raise AuthoritiesError(f"it has {len(found)} certificates, or more than them; expected 1 to {MAX_AUTHORITIES}")
    return certificates


class Authorities:
    """`context`: believes the image's authorities, and what `learn` has added, and nobody else."""

    def __init__(self, root: str, boot_url: str) -> None:
        """`root`: below it lies the image ("" on a real machine). Raises: OSError without the image's certificates."""
        self.context = pinned_context(root + JOIN_CA)
        self._root, self._boot_url = root, boot_url
        self._learned = ""

    def learn(self) -> str:
        """Fetch the document, and believe whom it names. Empty if there is somebody new among them; else why not."""
        from pathlib import Path
        from tempfile import TemporaryDirectory

        from provisioner.node.image.fetch import fetch_small
        from provisioner.node.image.manifest import PUBLIC_KEY, ImageError, verify_signature

        sources = [f"{self._boot_url}/images"] if self._boot_url.startswith("http://") else []
        try:
            content = fetch_small(sources, DOCUMENT, MAX_BYTES)
            signature = fetch_small(sources, f"{DOCUMENT}.sig", MAX_SIGNATURE_BYTES)
            with TemporaryDirectory(prefix="authorities-") as folder:
                Path(folder, DOCUMENT).write_bytes(content)
                Path(folder, f"{DOCUMENT}.sig").write_bytes(signature)
                verify_signature(folder, self._root + PUBLIC_KEY, DOCUMENT)
            certificates = read_document(content, time.time())
            if certificates == self._learned:
                return f"{DOCUMENT} of the boot host, which was believed, names nobody else"
            self.context.load_verify_locations(cadata=certificates)
        except (ImageError, AuthoritiesError, OSError) as error:
            return f"No other authority is believed: {DOCUMENT} of the boot host: {error}"
        self._learned = certificates
        return ""

    def connect(self, host: str, port: int, timeout_seconds: float) -> socket.socket:
        """TLS to a host that is believed. Raises: OSError, ssl.SSLCertVerificationError among them."""
        try:
            return self._connect(host, port, timeout_seconds)
        except ssl.SSLCertVerificationError:
            if self.learn():
                raise
            return self._connect(host, port, timeout_seconds)

    def _connect(self, host: str, port: int, timeout_seconds: float) -> socket.socket:
        plain = socket.create_connection((host, port), timeout=timeout_seconds)
        try:
            return self.context.wrap_socket(plain, server_hostname=host)
        except BaseException:
            plain.close()
            raise
