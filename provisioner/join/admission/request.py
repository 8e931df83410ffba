"""What a machine says of itself when it asks to join. Read strictly; nothing in it is proven."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.values import MacAddress, Sha256Digest, parse_digest, parse_mac

MAX_REQUEST_BYTES: Final = 262_144
"""Room for the evidence of a TPM, most of it the event log: 128 KiB, in base64."""
MAX_PLAIN_REQUEST_BYTES: Final = 4096
"""Of a request without evidence, which has 400 bytes."""

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_KEY = re.compile(r"[0-9a-f]{64}")
_FIELDS: Final = frozenset({"macAddress", "systemUUID", "bootID", "imageDigest", "requestKey", "evidence"})


@dataclass(frozen=True, kw_only=True)
class JoinRequest:
    """One request. Of the random key, with which the machine may repeat it, only the digest is kept."""

    mac_address: MacAddress
    system_uuid: str | None
    boot_id: str
    image_digest: Sha256Digest
    request_key_sha256: Sha256Digest
    evidence: Mapping[str, Any]

    @property
    def evidence_type(self) -> str:
        return str(self.evidence["type"])


def parse_join_request(body: bytes) -> JoinRequest:
    """Read the body of POST /v1/join. Raises: Refused; its message never repeats the request key."""
    # What has no evidence is not worth the time that reading it costs. Who lies about it is refused by its reading.
    if len(body) > MAX_PLAIN_REQUEST_BYTES and b'"TPM2"' not in body:
        _refuse(f"it is longer than {MAX_PLAIN_REQUEST_BYTES} bytes, and has no evidence")
    data = _strict_object(body)
    unknown = sorted(set(data) - _FIELDS)
    if unknown:
        _refuse(f"unknown field {unknown[0][:40]!r}")
    evidence = data.get("evidence", {"type": "None"})
    if not isinstance(evidence, dict) or not isinstance(evidence.get("type"), str) or len(evidence["type"]) > 40:
        _refuse("evidence is not an object with a type")
    if evidence["type"] == "None" and len(body) > MAX_PLAIN_REQUEST_BYTES:
        _refuse(f"it is longer than {MAX_PLAIN_REQUEST_BYTES} bytes, and has no evidence")
    system_uuid = _text(data, "systemUUID", required=False).lower()
    if system_uuid and not _UUID.fullmatch(system_uuid):
        _refuse("systemUUID is not a UUID")
    boot_id = _text(data, "bootID").lower()
    if not _UUID.fullmatch(boot_id):
        _refuse("bootID is not a UUID")
    key = _text(data, "requestKey")
    if not _KEY.fullmatch(key):
        _refuse("requestKey is not 64 hexadecimal digits")
    return JoinRequest(
        mac_address=parse_mac(_text(data, "macAddress")),
        system_uuid=system_uuid or None,
        boot_id=boot_id,
        image_digest=parse_digest(_text(data, "imageDigest")),
        request_key_sha256=Sha256Digest("sha256:" + hashlib.sha256(key.encode()).hexdigest()),
        evidence=evidence,
    )


def _strict_object(body: bytes) -> dict[str, Any]:
    try:
        data = json.loads(body.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except (UnicodeDecodeError, ValueError, RecursionError):
        # The error is not passed on: it may quote the body, and with it the request key.
        _refuse("it is not JSON")
    if not isinstance(data, dict):
        _refuse("it is not a JSON object")
    return data


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        # Two parsers would read two different requests.
        raise ValueError("a field appears twice")
    return data


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _text(data: Mapping[str, Any], key: str, *, required: bool = True) -> str:
    value = data.get(key)
    if value is None and not required:
        return ""
    if not isinstance(value, str) or len(value) > 256:
        _refuse(f"{key} is {'absent' if value is None else 'not a short string'}")
    return value


def _refuse(what: str) -> NoReturn:
    raise Refused(f"join request is malformed: {what}", hint="use the agent of a current image") from None
