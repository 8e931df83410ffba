"""A fake of UFM's REST API, in the shape that NVIDIA documents ("PKey GUIDs Rest API", 6.15 to 6.22).

It is no UFM: what a real one does beyond that page, its timing and its mistakes, is not played. It keeps what it is
told, checks what the page says it checks, and breaks on command.
"""

from __future__ import annotations

import base64
import json
import re
from datetime import UTC, datetime
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from pytest_httpserver import URI_DEFAULT
from werkzeug import Request, Response

from lab.bmc.certificate import obtain_certificate, server_context
from tests.http_peer import HttpPeer, target

USERNAME: Final = "admin"
PASSWORD: Final = "pässword"
_ROOT: Final = "/ufmRest/resources/pkeys"


class FakeUfm(HttpPeer):
    """Partitions by P_Key, members by GUID as UFM writes it, without 0x."""

    def __init__(self, folder: Path, *, default_membership: str | None = "limited") -> None:
        self.certificate = obtain_certificate(folder, "fake UFM", IPv4Address("127.0.0.1"), datetime.now(UTC))
        super().__init__(tls=server_context(folder))
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
        self.expect_request(URI_DEFAULT).respond_with_handler(self._handle)

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

    def _handle(self, request: Request) -> Response:
        body = json.loads(request.data) if request.data else None
        self.requests.append((request.method, target(request), body))
        if self.answer_instead is not None:
            status, content = self.answer_instead
            return Response(content, status, content_type="application/json")
        wanted = base64.b64encode(f"{USERNAME}:{self.password}".encode()).decode()
        if request.headers.get("Authorization") != f"Basic {wanted}":
            status, answer = 401, {}
        else:
            try:
                status, answer = self._answer(request.method, target(request), body)
            except (KeyError, ValueError) as error:
                status, answer = 400, {"error": str(error)}
        return Response(json.dumps(answer), status, content_type="application/json")

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
