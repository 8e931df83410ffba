"""A real TLS server that plays the join service, and a plain one that plays the boot service: they answer what they
are told to and remember what they were asked. `files` are given by path to who GETs them."""

from __future__ import annotations

import datetime
import ipaddress
import json
import ssl
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Asked:
    """One request as it came."""

    path: str
    source: str
    body: dict[str, Any]


@dataclass
class Answer:
    """What to answer; `cut` closes the connection in the middle of the body."""

    status: int
    body: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False


class FakeJoinServer:
    """Answers with `answers` in order, the last one for ever; `asked` holds the requests, `reported` those that report
    progress, which are answered as they should be."""

    def __init__(self, answers: list[Answer], tls: ssl.SSLContext | None = None) -> None:
        self.asked: list[Asked] = []
        self.reported: list[Asked] = []
        self.answers = answers
        self.answered = threading.Event()
        self.files: dict[str, bytes] = {}
        self.fetched: list[str] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.path == "/v1/progress":
                    owner.reported.append(Asked(self.path, self.client_address[0], body))
                    self.send_response(204)
                    self.end_headers()
                    return
                answer = owner.answers[min(len(owner.asked), len(owner.answers) - 1)]
                owner.asked.append(Asked(self.path, self.client_address[0], body))
                content = json.dumps(answer.body).encode() if answer.status != 204 else b""
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content[: len(content) // 2] if answer.cut else content)
                owner.answered.set()

            def do_GET(self) -> None:
                owner.fetched.append(self.path)
                content = owner.files.get(self.path)
                self.send_response(200 if content is not None else 404)
                self.send_header("Content-Length", str(len(content or b"")))
                self.end_headers()
                self.wfile.write(content or b"")

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


@dataclass(frozen=True)
class Authority:
    """A CA of its own, for one test."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def create(cls, name: str = "join-ca") -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(name, name, key.public_key()).add_extension(x509.BasicConstraints(True, None), critical=True)
        return cls(key, builder.sign(key, hashes.SHA256()))

    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def server_context(self, folder: Path, address: str = "127.0.0.1", *, behind: str = "") -> ssl.SSLContext:
        """TLS of a server that this CA vouches for at `address`. `behind`: PEM that it sends behind its certificate."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
        issuer = self.certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
        builder = _builder("join-service", str(issuer), key.public_key()).add_extension(names, critical=False)
        certificate = builder.sign(self.key, hashes.SHA256())
        pem = folder / "server.pem"
        pem.write_bytes(
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
            + certificate.public_bytes(Encoding.PEM)
            + behind.encode()
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)
        return context


def _builder(name: str, issuer: str, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
    )
