"""Debian's docker-registry on loopback, with TLS and names and passwords, or without."""

from __future__ import annotations

import datetime
import ipaddress
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import bcrypt
import requests
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.tools import installed

USER: Final = "publisher"
PASSWORD: Final = "p:ss wörd"


@dataclass(frozen=True)
class RealRegistry:
    """`host`: with its port. `ca`: None over plain HTTP. `storage`: its folder. `log`: all that it has said."""

    host: str
    ca: Path | None
    storage: Path
    log: Path

    @property
    def address(self) -> str:
        return f"oci://{self.host}/site/images"

    def blob(self, digest: str) -> Path:
        """Where it keeps a blob."""
        digits = digest.removeprefix("sha256:")
        return self.storage / "docker/registry/v2/blobs/sha256" / digits[:2] / digits / "data"


@contextmanager
def real_registry(folder: Path, *, secured: bool, deletes: bool = True) -> Iterator[RealRegistry]:
    """Serving, on a free port. `secured`: with TLS, and for USER alone."""
    program = installed("docker-registry")
    folder.mkdir(parents=True, exist_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    storage, log = folder / "storage", folder / "log"
    lines = [
        "version: 0.1",
        "log: {level: info}",
        "storage:",
        f"  filesystem: {{rootdirectory: {storage}}}",
        f"  delete: {{enabled: {str(deletes).lower()}}}",
        "http:",
        f"  addr: 127.0.0.1:{port}",
        f"  secret: {'s' * 32}",
    ]
    ca = None
    if secured:
        ca = write_certificate(folder)
        lines += [f"  tls: {{certificate: {folder / 'tls.crt'}, key: {folder / 'tls.key'}}}"]
        hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
        (folder / "htpasswd").write_text(f"{USER}:{hashed}\n")
        lines += ["auth:", f"  htpasswd: {{realm: images, path: {folder / 'htpasswd'}}}"]
    (folder / "config.yml").write_text("\n".join(lines) + "\n")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [program, "serve", str(folder / "config.yml")], stdout=output, stderr=output, stdin=subprocess.DEVNULL
        )
    try:
        _wait(f"http{'s' * secured}://127.0.0.1:{port}/v2/", ca, process, log)
        yield RealRegistry(f"127.0.0.1:{port}", ca, storage, log)
    finally:
        process.terminate()
        process.wait(30)


def write_certificate(folder: Path, name: str = "127.0.0.1") -> Path:
    """`tls.crt` and `tls.key` for this address. Returns: what it is checked with, itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "registry of a test")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(name))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "tls.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "tls.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return folder / "tls.crt"


def _wait(url: str, ca: Path | None, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            requests.get(url, timeout=5, verify=str(ca) if ca else True)
        except requests.RequestException:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        else:
            return
