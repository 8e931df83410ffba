"""A fake of UFM's REST API, in the shape that NVIDIA documents ("PKey GUIDs Rest API", 6.15 to 6.22).

It is no UFM: what a real one does beyond that page, its timing and its mistakes, is not played. It keeps what it is
told, checks what the page says it checks, and breaks on command.
"""

from __future__ import annotations

import base64
import ipaddress
import json
import re
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

USERNAME: Final = "admin"
PASSWORD: Final = "pässword"
_ROOT: Final = "/ufmRest/resources/pkeys"


class FakeUfm:
    """Partitions by P_Key, members by GUID as UFM writes it, without 0x."""

    def __init__(self, folder: Path, *, default_membership: str | None = "limited") -> None:
        self.partitions: dict[int, dict[str, Any]] = {
            0x7FFF: {"partition": "management", "ip_over_ib": True, "guids": {}}
        }
        self.default_membership = default_membership
        self.password = PASSWORD
        self.requests: list[tuple[str, str, Any]] = []
        self.answer_instead: tuple[int, bytes] | None = None
        """Status and body of every answer, whatever was asked for."""
        self.forgets_members = False
        """What is added is confirmed and not kept."""
        self.certificate = _certificate(folder)
        ufm = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                ufm.handle(self, None)

            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length", "0"))
                ufm.handle(self, json.loads(self.rfile.read(length)))

            def do_DELETE(self) -> None:
                ufm.handle(self, None)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "ufm.pem", folder / "ufm.key")
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def members(self, pkey: int) -> dict[str, str]:
        """Membership by GUID, written as we do."""
        found = self.partitions.get(pkey)
        return {f"0x{guid}": member["membership"] for guid, member in found["guids"].items()} if found else {}

    def put(self, pkey: int, *guids: str, membership: str = "full") -> None:
        """As if a person had done so."""
        entry = self.partitions.setdefault(
            pkey, {"partition": f"api_pkey_0x{pkey:x}", "ip_over_ib": False, "guids": {}}
        )
        for guid in guids:
            entry["guids"][guid.removeprefix("0x")] = {"membership": membership, "index0": False}

    def handle(self, request: BaseHTTPRequestHandler, body: Any) -> None:
        self.requests.append((request.command, request.path, body))
        if self.answer_instead is not None:
            _answer(request, *self.answer_instead)
            return
        wanted = base64.b64encode(f"{USERNAME}:{self.password}".encode()).decode()
        if request.headers.get("Authorization") != f"Basic {wanted}":
            _answer(request, 401, b"{}")
            return
        try:
            status, answer = self._answer(request.command, request.path, body)
        except (KeyError, ValueError) as error:
            status, answer = 400, {"error": str(error)}
        _answer(request, status, json.dumps(answer).encode())

    def _answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        url = urlsplit(path)
        if method == "GET" and url.path == _ROOT:
            guids = parse_qs(url.query).get("guids_data") == ["true"]
            return 200, {f"0x{pkey:x}": self._shown(pkey, guids=guids) for pkey in self.partitions}
        if method == "POST" and url.path in (_ROOT, f"{_ROOT}/"):
            pkey = int(body["pkey"], 16)
            if not 0 < pkey < 0x7FFF or body["membership"] not in ("full", "limited") or not body["guids"]:
                raise ValueError("bad request")
            if not all(re.fullmatch("(0x)?[0-9a-f]{16,18}", guid) for guid in body["guids"]):
                raise ValueError("bad GUID")
            if not self.forgets_members:
                self.put(pkey, *body["guids"], membership=body["membership"])
                self.partitions[pkey]["ip_over_ib"] = body["ip_over_ib"]
            return 200, {}
        if method == "DELETE" and (found := re.fullmatch(rf"{_ROOT}/(0x[0-9a-f]+)(?:/guids/([0-9a-f,]+))?", url.path)):
            pkey = int(found[1], 16)
            if pkey not in self.partitions or pkey == 0x7FFF:
                return 404, {"error": "no such pkey"}
            if found[2] is None:
                del self.partitions[pkey]
            else:
                for guid in found[2].split(","):
                    self.partitions[pkey]["guids"].pop(guid, None)
                if not self.partitions[pkey]["guids"]:
                    del self.partitions[pkey]  # a partition goes with its last member
            return 200, {}
        return 404, {"error": "no such resource"}

    def _shown(self, pkey: int, *, guids: bool) -> dict[str, Any]:
        entry = self.partitions[pkey]
        shown: dict[str, Any] = {"partition": entry["partition"], "ip_over_ib": entry["ip_over_ib"]}
        if pkey == 0x7FFF and self.default_membership is not None:
            shown["membership"] = self.default_membership
        if guids:
            shown["guids"] = [{"guid": guid, **member} for guid, member in entry["guids"].items()]
        return shown

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def fake_ufm(folder: Path, **settings: Any) -> Iterator[FakeUfm]:
    ufm = FakeUfm(folder, **settings)
    yield ufm
    ufm.close()


def _answer(request: BaseHTTPRequestHandler, status: int, body: bytes) -> None:
    request.send_response(status)
    request.send_header("Content-Type", "application/json")
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)


def _certificate(folder: Path) -> str:
    """Its own for 127.0.0.1, in PEM; with its key in `folder`."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fake UFM")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    (folder / "ufm.pem").write_bytes(pem)
    (folder / "ufm.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return pem.decode()
