"""A real TLS server that plays the join service, and a plain one that plays the boot service: they answer what they
are told to and remember what they were asked. `files` are given by path to who GETs them."""

from __future__ import annotations

import datetime
import ipaddress
import json
import ssl
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from pytest_httpserver import URI_DEFAULT
from werkzeug import Request, Response

from tests.http_peer import HttpPeer, target


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


class FakeJoinServer(HttpPeer):
    """Answers with `answers` in order, the last one for ever; `asked` holds the requests, `reported` those that report
    progress, which are answered as they should be."""

    def __init__(self, answers: list[Answer], tls: ssl.SSLContext | None = None) -> None:
        super().__init__(tls=tls)
        self.asked: list[Asked] = []
        self.reported: list[Asked] = []
        self.answers = answers
        self.answered = threading.Event()
        self.files: dict[str, bytes] = {}
        self.fetched: list[str] = []
        self.expect_request(URI_DEFAULT, method="GET").respond_with_handler(self._fetch)
        self.expect_request("/v1/progress", method="POST").respond_with_handler(self._report)
        self.expect_request(URI_DEFAULT, method="POST").respond_with_handler(self._ask)

    def _fetch(self, request: Request) -> Response:
        path = target(request)
        self.fetched.append(path)
        return Response(self.files.get(path), 200 if path in self.files else 404)

    def _report(self, request: Request) -> Response:
        self.reported.append(_asked(request))
        return Response(status=204)

    def _ask(self, request: Request) -> Response:
        answer = self.answers[min(len(self.asked), len(self.answers) - 1)]
        self.asked.append(_asked(request))
        content = json.dumps(answer.body).encode() if answer.status != 204 else b""
        response = Response(content, answer.status, answer.headers)
        if answer.cut:
            response.response = [content[: len(content) // 2]]
        response.call_on_close(self.answered.set)
        return response


def _asked(request: Request) -> Asked:
    return Asked(target(request), str(request.remote_addr), json.loads(request.data))


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
