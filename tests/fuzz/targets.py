"""Every reader of bytes that a stranger sends: what it may raise, and good input to begin from. One entry a reader."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from provisioner.api.machinery.documents import Unreadable, read_json
from provisioner.api.machinery.errors import Refused
from provisioner.api.servers.discovery import read_claims
from provisioner.attestation.authenticode import authenticode_sha256
from provisioner.attestation.event_log.parse import LARGEST_LOG_BYTES
from provisioner.attestation.tpm.wire import MalformedTpmData
from provisioner.boot.capture.read import read_messages
from provisioner.boot.dhcp.responder.discovery import LentAddresses
from provisioner.boot.metrics.requests import read_line
from provisioner.boot.observe.trace.lines import http_words
from provisioner.image.finished.manifest import decode as read_image_manifest
from provisioner.image.finished.manifest import digest_of
from provisioner.inventory.lists.entries import BadPackingList
from provisioner.inventory.lists.packing_list import read_packing_list
from provisioner.join.admission.request import MAX_REQUEST_BYTES, parse_join_request
from provisioner.join.certificates.request import SubjectError, common_names, read_subject
from provisioner.network.agent.boot.request import read_head
from provisioner.network.agent.dhcp.wire import decode as read_dhcp_of_host
from provisioner.node.image.manifest import ImageError, read_manifest
from provisioner.node.machine.kernel_log.patterns import read_line as read_kernel_line
from provisioner.node.tpm.device import TpmError
from tests.boot.dhcp.messages import CAPTURED, DIRECT, UNICAST, Responder, captured
from tests.boot.test_web import REPORT, World
from tests.fuzz import tpm
from tests.join.samples import body
from tests.node.kernel_log.corpus import FAULTS

GOLDEN: Final = Path(__file__).parents[1] / "golden"


@dataclass(frozen=True)
class Target:
    """read: what is tried. refuses: what it may raise. seeds: input that it takes. most_bytes: of what reaches it."""

    name: str
    read: Callable[[bytes], object]
    seeds: Callable[[], list[bytes]]
    refuses: tuple[type[Exception], ...] = ()
    most_bytes: int = 4096

    def attempt(self, data: bytes) -> bool:
        """Whether the input was taken. Raises: what the reader must not raise."""
        try:
            self.read(data[: self.most_bytes])
        except self.refuses:
            return False
        return True


@cache
def _responder() -> Responder:
    return Responder()


def _dhcp(data: bytes) -> None:
    responder = _responder()
    responder.discovery = LentAddresses(responder.table.is_taken)  # so that each input meets the same
    for arrival in (DIRECT, UNICAST):
        outcome = responder.answer(data, arrival)
        assert outcome.reply is None or len(outcome.reply) < 10_000


def _report(data: bytes) -> None:
    kind = "application/json" if data[:1] == b"{" else "application/x-www-form-urlencoded"
    status = World().client().post("/v1/progress", data=data, content_type=kind).status_code
    assert status in (204, 400, 413), status


def _unknown_machine(data: bytes) -> None:
    answer = World().client().get("/v1/unknown", query_string=data.decode("latin-1"))
    assert answer.status_code == 200
    assert answer.data.startswith(b"#!ipxe\n"), "firmware would give up on anything else"


def _claims(data: bytes) -> None:
    names = ("mac", "uuid", "serial", "manufacturer", "product", "buildarch")
    said = dict(zip(names, data.decode("utf-8", "surrogateescape").split("&"), strict=False))
    json.dumps(read_claims(said, source_address="10.80.0.99").__dict__, default=str).encode()


def _subject(data: bytes) -> None:
    common_names(data, "system:node:")
    read_subject(data)


def _log_lines(data: bytes) -> None:
    read_line(data)
    http_words(data)


def _manifest_in_the_node(data: bytes) -> None:
    read_manifest(data, digest_of(data), "x86_64")


def _pcap() -> bytes:
    frame = bytes(12) + b"\x08\x00" + bytes(40)
    header = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    return header + struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame


def _golden(pattern: str) -> Callable[[], list[bytes]]:
    return lambda: [path.read_bytes() for path in sorted(GOLDEN.glob(pattern))]


_YAML: Final = (
    b"rack: {name: r01, subnets: [{name: boot, cidr: 10.80.0.0/24}]}\n"
    b'defaults: {bmc: &b {address: "https://10.90.0.11"}}\n'
    b'servers:\n- {name: x, bootMACAddress: "52:54:00:12:34:56", bmc: *b}\n'
)
_CSV: Final = b"Name,Serial Number,PXE MAC,Rack\nr01-u01,S1,52:54:00:12:34:56,r01\n"


def _packing_list(data: bytes) -> object:
    return read_packing_list(data, "a list")


TARGETS: Final = (
    Target("dhcp", _dhcp, lambda: [captured(name) for name in CAPTURED], most_bytes=10_000),
    Target("dhcp-of-a-host", read_dhcp_of_host, lambda: [captured(name) for name in CAPTURED]),
    Target("capture", read_messages, lambda: [_pcap(), *_golden("dhcp/*.hex")()], (Refused,), most_bytes=65_536),
    Target("join-request", parse_join_request, lambda: [body()], (Refused,), MAX_REQUEST_BYTES + 1),
    Target("report", _report, lambda: [json.dumps(REPORT).encode(), b"mac=52-54-00-12-34-56&stage=Root&bootID=x"]),
    Target("unknown-machine", _unknown_machine, lambda: [b"mac=52-54-00-12-34-56&uuid=1&serial=a%20b&product=x"]),
    Target("claims", _claims, lambda: [b"52-54-00-12-34-56&uuid&serial&maker&product&x86_64"], (Refused,)),
    Target("head-of-a-host", read_head, lambda: [b"GET /boot.ipxe HTTP/1.1\r\nHost: boot\r\n\r\n"]),
    Target("manifest", read_image_manifest, _golden("image/manifest-*"), (Refused,), 70_000),
    Target("manifest-in-the-node", _manifest_in_the_node, _golden("image/manifest-*"), (ImageError,), 70_000),
    Target("certificate-request", _subject, _golden("join/*.pem"), (SubjectError,), 16_384),
    Target("tpm-evidence", tpm.evidence, tpm.some_evidence, (Refused,), MAX_REQUEST_BYTES),
    Target("tpm-public-area", tpm.public_area, tpm.some_public_areas, (MalformedTpmData,)),
    Target("tpm-quote", tpm.quote, tpm.some_quotes, (MalformedTpmData,)),
    Target("tpm-signature", tpm.signature, tpm.some_signatures, (MalformedTpmData,)),
    Target("endorsement-certificate", tpm.certificate, tpm.some_certificates, most_bytes=5000),
    Target("event-log", tpm.event_log, tpm.some_event_logs, (MalformedTpmData,), LARGEST_LOG_BYTES + 1),
    Target("pe-program", authenticode_sha256, tpm.some_programs, (Refused,)),
    Target("tpm-answer", tpm.answer, tpm.some_answers),
    Target("tpm-device", tpm.device, tpm.some_answers_of_a_device, (TpmError,), most_bytes=8192),
    Target("tpm-challenge", tpm.challenge, tpm.some_challenges, (ValueError,), 16_384),
    Target("packing-list", _packing_list, lambda: [_YAML, _CSV], (BadPackingList,), 4096),
    Target("json-file", read_json, lambda: [b'{"a": [1.5e3, null, "\\u001b"]}', b"[[[[{}]]]]"], (Unreadable,)),
    Target("kernel-log", read_kernel_line, lambda: [line.encode() for line, *_ in FAULTS]),
    Target("log-lines", _log_lines, lambda: [b"script 200 1024 0.001 -", b'{"time":"2026-01-02T12:00:00+00:00"}']),
)  # fmt: skip
"""What is added here is tried by `make test` and `make fuzz` alike."""
